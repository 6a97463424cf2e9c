# machine_code.mk: what ptxas makes of the kernels, compared with a table. Read by the Makefile.
#
# One table is of clang's PTX, the other of what nvcc makes. Nothing is compared where another clang or
# nvcc compiles.

MACHINE_CODE = python3 tests/cuda/machine_code.py
MACHINE_CODE_OF = tests/expected/machine_code.tsv build/cuda build/cuda-tools \
  "$$($(CUDA_CLANG) --version | head -n 1)"
MACHINE_CODE_OF_NVCC = $(if $(NVCC),--nvcc $(NVCC) tests/expected/machine_code_nvcc.tsv build/cuda \
  build/cuda-tools "$$($(NVCC) --version | sed -n 's/^Cuda compilation tools, //p')")
.PHONY: machine-code machine-code-update
machine-code: cuda-images ## registers, spills and loads of the kernels against tests/expected/machine_code.tsv
	$(if $(CUDA_CLANG),,$(error no clang that compiles the kernels is here: apt-get install clang))
	@sh tests/cuda/tools.sh build/cuda-tools
	@$(MACHINE_CODE) $(MACHINE_CODE_OF)
	$(if $(NVCC),@$(MACHINE_CODE) $(MACHINE_CODE_OF_NVCC))

machine-code-update: cuda-images ## the same, written to the table
	@sh tests/cuda/tools.sh build/cuda-tools
	@$(MACHINE_CODE) --update $(MACHINE_CODE_OF)
	$(if $(NVCC),@$(MACHINE_CODE) --update $(MACHINE_CODE_OF_NVCC))

# ---- The newest clang ----------------------------------------------------------------------------

# clang 14 makes the images; people with fresh distributions have another.
.PHONY: newest-clang
newest-clang: ## the kernels compiled by the newest clang, which is brought from PyPI
	@TEST_TIMEOUT=1200 sh tests/run.sh tests/cuda/test_newest_clang.sh
