# machine_code.mk: what ptxas makes of the kernels, compared with a table. Read by the Makefile.
#
# The table is of clang's PTX, so nothing is compared where nvcc or another clang compiles.

MACHINE_CODE = python3 tests/cuda/machine_code.py
MACHINE_CODE_OF = tests/expected/machine_code.tsv build/cuda build/cuda-tools \
  "$$($(CUDA_CLANG) --version | head -n 1)"
.PHONY: machine-code machine-code-update
machine-code: cuda-images ## registers, spills and loads of the kernels against tests/expected/machine_code.tsv
	$(if $(CUDA_CLANG),,$(error no clang that compiles the kernels is here: apt-get install clang))
	@sh tests/cuda/tools.sh build/cuda-tools
	@$(MACHINE_CODE) $(MACHINE_CODE_OF)

machine-code-update: cuda-images ## the same, written to the table
	@sh tests/cuda/tools.sh build/cuda-tools
	@$(MACHINE_CODE) --update $(MACHINE_CODE_OF)

# ---- The newest clang ----------------------------------------------------------------------------

# clang 14 makes the images; people with fresh distributions have another.
.PHONY: newest-clang
newest-clang: ## the kernels compiled by the newest clang, which is brought from PyPI
	@TEST_TIMEOUT=1200 sh tests/run.sh tests/cuda/test_newest_clang.sh
