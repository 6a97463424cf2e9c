# cuda.mk: compiles the kernels into images that cuda_images.c embeds. Read by the Makefile.
#
# clang makes PTX without any toolkit, for compute capability 6.1, 7.5 and 8.0, in a second each;
# the driver turns it into native code when a device first sees it. Where nvcc is, it makes native
# code besides (and PTX, if there is no clang), at 24 s of one core for each architecture: by default
# for the GPU of this machine alone. With neither compiler, or with CUDA=0, the program is built for
# the CPU. Images are the same for every BUILD.
#
#   make build CUBINS=all           native code for 7.5 8.0 8.6 8.9 9.0 10.0 and 12.0
#   make build CUBINS="86 90"       for these; CUBINS=none: PTX only

CUDA ?= 1
CUBINS ?= $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u)
CUBINS := $(CUBINS)
export CUBINS

CUDA_CLANG := $(shell command -v clang-14 || command -v clang)
NVCC ?= $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
NVCC_MAJOR := $(if $(NVCC),$(shell $(NVCC) --version | sed -n 's/.*release \([0-9]*\)[.].*/\1/p'))
NVCC_ARCHS := $(if $(NVCC),$(shell $(NVCC) --list-gpu-arch | sed 's/compute_//'))
ifeq ($(CUDA),0)
CUDA_CLANG :=
NVCC :=
endif

# Targets, and the oldest driver that reads each: PTX 6.0 came with CUDA 9.0, 6.5 (the first with all
# of 7.5's mma and ldmatrix) with 10.2 and 7.0 with 11.0; what nvcc writes needs a driver of its own
# generation.
CUDA_PTX_VERSION_61 := 60
CUDA_PTX_VERSION_75 := 65
CUDA_PTX_VERSION_80 := 70
CUDA_DRIVER_61 := 9000
CUDA_DRIVER_75 := 10020
CUDA_DRIVER_80 := 11000
ifneq ($(CUDA_CLANG),)
CUDA_PTX := 61 75 80
else ifneq ($(NVCC),)
CUDA_PTX := $(filter 61 75 80,$(NVCC_ARCHS))
endif
ifneq ($(NVCC),)
CUDA_NATIVE := $(filter $(if $(filter all,$(CUBINS)),75 80 86 89 90 100 120,$(CUBINS)),$(NVCC_ARCHS))
endif

CUDA_SOURCES := $(wildcard kernels/cuda/*.cu)
CUDA_HEADERS := $(wildcard kernels/cuda/*.cuh kernels/cuda/params.h kernels/*.def kernels/dtypes.h) \
  kernels/ops.h
CUDA_FILES := $(CUDA_SOURCES:kernels/cuda/%.cu=%)
# $1: files without their ending.
images_of = $(foreach a,$(CUDA_PTX),$(1:%=build/cuda/compute_$a/%.ptx)) \
  $(foreach a,$(CUDA_NATIVE),$(1:%=build/cuda/sm_$a/%.cubin))
CUDA_IMAGES := $(call images_of,$(CUDA_FILES))

ifneq ($(strip $(CUDA_IMAGES)),)
FLAGS += -DHAVE_CUDA=1
LIBRARY += $(wildcard kernels/cuda/*.c)
$D/obj/kernels/cuda/cuda_images.o: build/cuda/images.def $(CUDA_IMAGES)
$D/obj/kernels/cuda/cuda_images.o: ISA := -DCUDA_IMAGES='"build/cuda/images.def"'
# What the instructions behind the matmuls reach; it has kernels of its own.
MAINS += bench/cuda/bench_peak.c
CUDA_PEAK := $D/bench/cuda/bench_peak
programs: $(CUDA_PEAK)
$D/obj/bench/cuda/bench_peak.o: build/cuda/peak_images.def $(call images_of,peak)
$D/obj/bench/cuda/bench_peak.o: ISA := -DCUDA_IMAGES='"build/cuda/peak_images.def"'
else
PROGRAMS := $(filter-out tests/kernels/test_cuda.c,$(PROGRAMS))
ifeq ($(MAKELEVEL)$(filter 0,$(CUDA)),0)
$(info tandem: neither clang nor nvcc is here: built for the CPU only (apt-get install clang))
endif
endif

CUDA_FLAGS := -std=c++17 -O3 -I.
CUDA_CLANG_FLAGS := $(CUDA_FLAGS) -x cuda --cuda-device-only -nocudainc -nocudalib -S -Wall -Wextra \
  -Werror -Wno-unknown-cuda-version


# $1: architecture, $2: folder of the sources.
define cuda_target
build/cuda/compute_$1/%.ptx: $2/%.cu $(CUDA_HEADERS) $(wildcard $2/*.h) kernels/cuda/cuda.mk
	@mkdir -p $$(@D)
	@echo '  PTX   compute_$1 $$<'
	@$(if $(CUDA_CLANG),$(CUDA_CLANG) $(CUDA_CLANG_FLAGS) --cuda-gpu-arch=sm_$1 \
	  -Xclang -target-feature -Xclang +ptx$(CUDA_PTX_VERSION_$1),\
	  $(NVCC) $(CUDA_FLAGS) -ptx -arch=compute_$1) -o $$@ $$<
build/cuda/sm_$1/%.cubin: $2/%.cu $(CUDA_HEADERS) $(wildcard $2/*.h) kernels/cuda/cuda.mk
	@mkdir -p $$(@D)
	@echo '  CUBIN sm_$1 $$<'
	@$(NVCC) $(CUDA_FLAGS) -cubin -arch=sm_$1 -o $$@ $$<
endef
$(foreach a,$(sort $(CUDA_PTX) $(CUDA_NATIVE)),$(foreach d,kernels/cuda bench/cuda,\
  $(eval $(call cuda_target,$a,$d))))

# Written anew only when their text changes. A line: CUDA_IMAGE(target, architecture, whether it is
# PTX, oldest driver, file, path).
build/cuda/images.def: CUDA_LISTED := $(CUDA_FILES)
build/cuda/peak_images.def: CUDA_LISTED := peak
build/cuda/images.def build/cuda/peak_images.def: FORCE
	@mkdir -p $(@D)
	@{ $(foreach a,$(CUDA_PTX),$(foreach f,$(CUDA_LISTED),echo 'CUDA_IMAGE(compute_$a, $a, true,' \
	  '$(if $(CUDA_CLANG),$(CUDA_DRIVER_$a),$(NVCC_MAJOR)000), $f, "build/cuda/compute_$a/$f.ptx")';)) \
	  $(foreach a,$(CUDA_NATIVE),$(foreach f,$(CUDA_LISTED),echo 'CUDA_IMAGE(sm_$a, $a, false,' \
	  '$(NVCC_MAJOR)000, $f, "build/cuda/sm_$a/$f.cubin")';)) } >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

.PHONY: cuda-images
cuda-images: $(CUDA_IMAGES)

# ---- On a machine with a GPU -----------------------------------------------------------------------

# What runs a model needs libraries that a bare machine lacks; see base/libraries.mk.
GPU_KERNELS := $(addprefix build/release/,tests/kernels/check_ops bench/bench_device bench/cuda/bench_peak)
GPU_MODELS := build/tandem $(addprefix build/release/bench/,bench_engine make_model)
.PHONY: gpu-check gpu-programs gpu-pack
# What nvcc writes needs a driver of its generation; a dry run emulates one.
gpu-check: ## check and measure everything on this machine's GPU: DRY=1 on the emulator
	@[ -d build/gpu-pack ] || $(MAKE) BUILD=release HWLOC=auto JEMALLOC=auto gpu-programs
	@$(if $(filter 1,$(DRY)),$(MAKE) BUILD=release emulator && DRY=1 \
	  $(if $(CUDA_CLANG),,EMU_CUDA_DRIVER=$${EMU_CUDA_DRIVER:-$(NVCC_MAJOR)000}) \
	  LD_LIBRARY_PATH="$(CURDIR)/build/emulator:$$LD_LIBRARY_PATH") sh tests/gpu_check.sh

gpu-programs: $(if $(strip $(CUDA_IMAGES)),$(GPU_KERNELS) $(if $(MODELS_LACK),,$(GPU_MODELS)))
ifeq ($(strip $(CUDA_IMAGES)),)
	@echo 'tandem: neither clang nor nvcc is here to make the kernels; make gpu-pack on another'
	@echo '  machine brings everything in build/gpu-pack'; exit 1
else ifneq ($(MODELS_LACK),)
	@rm -f $(GPU_MODELS)
	@echo 'tandem: no model can be run without $(MODELS_LACK):'
	@echo '  apt-get install $(call DEBIAN,$(MODELS_LACK)), or make gpu-pack on another machine and'
	@echo '  copy its build/gpu-pack here; only single ops are checked and measured now'
endif

gpu-pack: $(GPU_KERNELS) $(GPU_MODELS) ## what gpu-check needs, to carry to a bare machine: CUBINS="90"
	@rm -rf build/gpu-pack && mkdir -p build/gpu-pack/lib && cp $^ build/gpu-pack
	@ldd $^ | awk '$$3 ~ /^\// { print $$3 }' | sort -u | \
	  grep -vE '/(libc|libm|libdl|libpthread|librt)[.]so' | xargs cp -Lt build/gpu-pack/lib
	@strip --strip-debug build/gpu-pack/[!l]*; du -sh build/gpu-pack
