# cuda.mk: compiles the kernels into images that cuda_images.c embeds. Read by the Makefile.
#
# clang makes PTX without any toolkit, for compute capability 6.1, 7.5 and 8.0, in a second each;
# the driver turns it into native code when a device first sees it. The first clang that compiles a
# kernel is taken. Where nvcc is, it makes native code besides (and PTX, if no clang can), at 24 s of
# one core for each architecture: by default for the GPU of this machine alone. With neither
# compiler, or with CUDA=0, the program is built for the CPU. Images are the same for every BUILD.
#
#   make build CUBINS=all           native code for 7.5 8.0 8.6 8.9 9.0 10.0 and 12.0
#   make build CUBINS="86 90"       for these; CUBINS=none: PTX only
#   make build CUDA_CLANGS=clang-22 no other clang

CUDA ?= $(if $(filter darwin,$(SYSTEM)),0,1)
CUBINS ?= $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u)
CUBINS := $(CUBINS)
export CUBINS

# Targets, the PTX that each needs and the oldest driver that reads it: PTX 6.0 came with CUDA 9.0,
# 6.5 (the first with all of 7.5's mma and ldmatrix) with 10.2 and 7.0 with 11.0.
CUDA_PTX_VERSION_61 := 60
CUDA_PTX_VERSION_75 := 65
CUDA_PTX_VERSION_80 := 70
CUDA_DRIVER_61 := 9000
CUDA_DRIVER_75 := 10020
CUDA_DRIVER_80 := 11000
CUDA_PTX := 61 75 80

# clang-14 comes first because its code is what is measured.
CUDA_CLANGS ?= clang-14 clang $(addprefix clang-,$(shell seq 40 -1 15))
NVCC ?= $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
ifeq ($(CUDA),0)
CUDA_FOUND := -
NVCC :=
else
CUDA_FOUND := $(shell sh kernels/cuda/clang.sh find build/cuda/clang \
  "$(foreach a,$(CUDA_PTX),$a:$(CUDA_PTX_VERSION_$a))" $(CUDA_CLANGS))
endif
CUDA_CLANG := $(filter-out -,$(firstword $(CUDA_FOUND)))
CUDA_REFUSED := $(wordlist 2,$(words $(CUDA_FOUND)),$(CUDA_FOUND))

# Native code of nvcc needs a driver of its generation; its PTX, which is of its own version, one that is
# as new. An nvcc of CUDA 13 knows no device before 7.5.
NVCC_RELEASE := $(if $(NVCC),$(shell $(NVCC) --version | sed -n 's/.*release \([0-9]*\)[.]\([0-9]*\).*/\1 \2/p'))
NVCC_DRIVER := $(firstword $(NVCC_RELEASE))000
NVCC_PTX_DRIVER := $(firstword $(NVCC_RELEASE))0$(lastword $(NVCC_RELEASE))0
NVCC_ARCHS := $(if $(NVCC),$(shell $(NVCC) --list-gpu-arch | sed 's/compute_//'))
ifeq ($(CUDA_CLANG),)
CUDA_PTX := $(filter $(CUDA_PTX),$(NVCC_ARCHS))
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
# 42 MB of PTX are 5 MB when packed, in every program; cuda_images.c unpacks a device's in 20 ms.
CUDA_PACKED := $(if $(USE_ZSTD),.zst)

ifneq ($(strip $(CUDA_IMAGES)),)
FLAGS += -DHAVE_CUDA=1
LIBRARY += $(wildcard kernels/cuda/*.c)
$D/obj/kernels/cuda/cuda_images.o: build/cuda/images.def $(CUDA_IMAGES:%=%$(CUDA_PACKED))
$D/obj/kernels/cuda/cuda_images.o: ISA := -DCUDA_IMAGES='"build/cuda/images.def"' -DCUDA_PACKED=$(if $(CUDA_PACKED),1,0)
# Measures how fast the instructions behind the matmuls are, with kernels of its own.
MAINS += bench/cuda/bench_peak.c
CUDA_PEAK := $D/bench/cuda/bench_peak
programs: $(CUDA_PEAK)
$D/obj/bench/cuda/bench_peak.o: build/cuda/peak_images.def $(call images_of,peak)
$D/obj/bench/cuda/bench_peak.o: ISA := -DCUDA_IMAGES='"build/cuda/peak_images.def"'
else
PROGRAMS := $(filter-out tests/kernels/test_cuda%,$(PROGRAMS))
endif

# Said once, before anything is built.
ifeq ($(MAKELEVEL)$(filter 0,$(CUDA)),0)
ifneq ($(CUDA_REFUSED),)
$(info tandem: kernels for GPUs: $(CUDA_REFUSED) $(or $(CUDA_CLANG),$(NVCC),nothing) makes them)
endif
ifeq ($(strip $(CUDA_IMAGES)),)
$(info tandem: no clang that can and no nvcc is here: built for the CPU only (apt-get install clang))
else ifeq ($(CUDA_CLANG),)
$(info tandem: kernels by nvcc need a driver of CUDA $(firstword $(NVCC_RELEASE)).$(lastword $(NVCC_RELEASE))$(if \
  $(filter 61,$(CUDA_PTX)),, and a GPU of 7.5 or newer), by clang one of 9.0 and 6.1)
endif
endif

# The host's compiler, which nvcc may find too new, has no part in the images.
NVCC_FLAGS := -std=c++17 -O3 -I. -allow-unsupported-compiler

# Changes with the compilers only.
build/cuda/compilers: FORCE
	@mkdir -p $(@D); echo '$(CUDA_CLANG) $(NVCC) $(NVCC_FLAGS)' | cmp -s - $@ || echo '$(CUDA_CLANG) $(NVCC) $(NVCC_FLAGS)' >$@

# $1: architecture, $2: folder of the sources.
define cuda_target
build/cuda/compute_$1/%.ptx: $2/%.cu $(CUDA_HEADERS) $(filter-out kernels/cuda/%,$(wildcard $2/*.h)) build/cuda/compilers kernels/cuda/clang.sh
	@mkdir -p $$(@D)
	@echo '  PTX   compute_$1 $$<'
	@$(if $(CUDA_CLANG),sh kernels/cuda/clang.sh compile $(CUDA_CLANG) $1 $(CUDA_PTX_VERSION_$1) $$< $$@,\
	  $(NVCC) $(NVCC_FLAGS) -ptx -arch=compute_$1 -o $$@ $$<)
build/cuda/sm_$1/%.cubin: $2/%.cu $(CUDA_HEADERS) $(filter-out kernels/cuda/%,$(wildcard $2/*.h)) build/cuda/compilers kernels/cuda/clang.sh
	@mkdir -p $$(@D)
	@echo '  CUBIN sm_$1 $$<'
	@$(NVCC) $(NVCC_FLAGS) -cubin -arch=sm_$1 -o $$@ $$<
endef
$(foreach a,$(sort $(CUDA_PTX) $(CUDA_NATIVE)),$(foreach d,kernels/cuda bench/cuda,\
  $(eval $(call cuda_target,$a,$d))))

build/cuda/%.zst: build/cuda/%
	@zstd -q -9 -f -o $@ $<

# Written anew only when their text changes. A line: CUDA_IMAGE(target, architecture, whether it is
# PTX, oldest driver, file, path).
build/cuda/images.def: CUDA_LISTED := $(CUDA_FILES)
build/cuda/images.def: CUDA_ENDING := $(CUDA_PACKED)
build/cuda/peak_images.def: CUDA_LISTED := peak
build/cuda/images.def build/cuda/peak_images.def: FORCE
	@mkdir -p $(@D)
	@{ $(foreach a,$(CUDA_PTX),$(foreach f,$(CUDA_LISTED),echo 'CUDA_IMAGE(compute_$a, $a, true,' \
	  '$(if $(CUDA_CLANG),$(CUDA_DRIVER_$a),$(NVCC_PTX_DRIVER)), $f, "build/cuda/compute_$a/$f.ptx$(CUDA_ENDING)")';)) \
	  $(foreach a,$(CUDA_NATIVE),$(foreach f,$(CUDA_LISTED),echo 'CUDA_IMAGE(sm_$a, $a, false,' \
	  '$(NVCC_DRIVER), $f, "build/cuda/sm_$a/$f.cubin$(CUDA_ENDING)")';)) } >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

.PHONY: cuda-images
cuda-images: $(CUDA_IMAGES)

# ---- On a machine with a GPU -----------------------------------------------------------------------

# Programs that run a model need libraries that a bare machine lacks; see base/libraries.mk.
GPU_KERNELS := $(addprefix build/release/,tests/kernels/check_ops bench/bench_device bench/bench_link \
  $(if $(strip $(CUDA_IMAGES)),bench/cuda/bench_peak))
# A Mac has its GPU's compiler in the system.
GPU_HERE := $(strip $(CUDA_IMAGES))$(filter darwin,$(SYSTEM))
GPU_MODELS := build/tandem $(addprefix build/release/,bench/bench_engine bench/bench_prediction \
  bench/make_model tests/lib/compare_logits)
.PHONY: gpu-check gpu-programs gpu-pack
# Native code of nvcc needs a driver of its generation; a dry run emulates one.
gpu-check: ## check and measure everything on this machine's GPU: DRY=1 on the emulator
	@[ -d build/gpu-pack ] || $(MAKE) BUILD=release HWLOC=auto JEMALLOC=auto gpu-programs
	@$(if $(filter 1,$(DRY)),$(MAKE) BUILD=release emulator && DRY=1 \
	  $(if $(CUDA_CLANG),,EMU_CUDA_DRIVER=$${EMU_CUDA_DRIVER:-$(NVCC_PTX_DRIVER)}) \
	  LD_LIBRARY_PATH="$(CURDIR)/build/emulator:$$LD_LIBRARY_PATH") sh tests/gpu_check.sh

gpu-programs: $(if $(GPU_HERE),$(GPU_KERNELS) $(if $(MODELS_LACK),,$(GPU_MODELS)))
ifeq ($(GPU_HERE),)
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
