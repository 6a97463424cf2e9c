# emulator.mk: builds the look-alike libcuda.so.1 in which the kernels run on the host, and the race
# suite. Read by the Makefile. Needs x86-64 and a C++ compiler; without them nothing is built here.
#
# The .cu files are compiled as C++ once per instruction set of the images; the objects of a set are
# linked into one of which only the table of its kernels is visible.

EMU := $(TOP)/emulator
EMU_LIB := $(EMU)/libcuda.so.1
EMU_SETS := 610 750 800
EMU_CXX := $(if $(findstring clang,$(CC)),clang++,g++)
ifeq ($(HAVE_EMULATOR),)
HAVE_EMULATOR := $(and $(strip $(CUDA_IMAGES)),$(filter x86_64-%,$(TARGET)),\
  $(shell command -v $(EMU_CXX)))
endif
# The kernels under address checks, as a part of make test.
EMU_WATCHED := $(if $(HAVE_EMULATOR),\
  'build/asan/tests/kernels/check_ops --device cuda:driver=build/asan/emulator/libcuda.so.1')

# Warnings of the C compiler that C++ knows too. __shared__ arrays are thread-local variables, which
# must not keep the library from being unloaded.
EMU_WARNINGS := $(if $(SANITIZED),-w,-Wall -Wextra -Werror -Wno-unknown-pragmas \
  -Wno-unused-function -Wno-unused-const-variable)
EMU_C := -std=gnu11 -D_GNU_SOURCE $(WARNINGS)
EMU_CPP := -std=c++17 -fno-exceptions -fno-rtti $(EMU_WARNINGS) \
  $(if $(findstring clang,$(EMU_CXX)),,-fno-gnu-unique) -include tests/emulator/cuda_host.hpp
EMU_COMMON := $(if $(SANITIZED),-O1,-O2) -g1 -march=x86-64-v3 -fPIC -fvisibility=hidden -fno-strict-aliasing -I.
EMU_CHECKS := $(filter -fsanitize% -fno-sanitize% -fno-omit%,$(MODE_$(BUILD)))
# Under TSan every GPU thread is a thread of its own to it, and only the kernels are watched.
EMU_C += $(if $(filter tsan,$(BUILD)),-DSIMT_TSAN,$(EMU_CHECKS))
EMU_CPP += $(EMU_CHECKS)
EMU_SOURCES := simt main_libcuda fake_memory fake_stream fake_module
EMU_KERNELS := $(notdir $(basename $(wildcard kernels/cuda/*.cu bench/cuda/*.cu)))

.PHONY: emulator race
emulator: $(if $(HAVE_EMULATOR),$(EMU_LIB)) ## build/emulator/libcuda.so.1: a GPU without a GPU

$D/emulator/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(EMU_CXX) $(EMU_C) $(EMU_CPP) $(EMU_COMMON)' > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$D/emulator/%.o: tests/emulator/%.c $D/emulator/flags
	@echo '  CC    $D/$<'
	@$(CC) $(EMU_C) $(EMU_COMMON) -MMD -MP -c -o $@ $<

# $1: instruction set, $2: folder of the sources.
define emulator_kernels
$D/emulator/$1/%.o: $2/%.cu $D/emulator/flags
	@mkdir -p $$(@D)
	@echo '  CXX   $D/$$< $1'
	@$(EMU_CXX) -x c++ $(EMU_CPP) $(EMU_COMMON) -DCUDA_ARCH=$1 -MMD -MP -c -o $$@ $$<
endef
$(foreach set,$(EMU_SETS),$(foreach d,kernels/cuda bench/cuda,$(eval $(call emulator_kernels,$(set),$d))))

# $1: instruction set. Symbols of two sets have the same names.
define emulator_set
$D/emulator/$1/kernel_table.o: tests/emulator/kernel_table.c $D/emulator/flags
	@mkdir -p $$(@D)
	@$(CC) $(EMU_C) $(EMU_COMMON) -DKERNEL_TABLE=kernels_$1 -MMD -MP -c -o $$@ $$<
$D/emulator/kernels_$1.o: $(patsubst %,$D/emulator/$1/%.o,$(EMU_KERNELS) kernel_table)
	@ld -r --force-group-allocation -o $$@ $$^
	@objcopy --keep-global-symbol=kernels_$1 $$@
endef
$(foreach set,$(EMU_SETS),$(eval $(call emulator_set,$(set))))

$(EMU_LIB): $(EMU_SOURCES:%=$D/emulator/%.o) $(EMU_SETS:%=$D/emulator/kernels_%.o)
	@mkdir -p $(@D)
	@echo '  LINK  $@'
	@$(EMU_CXX) $(EMU_COMMON) $(EMU_CHECKS) -shared $(if $(SANITIZED),,-Wl,-z,defs) -Wl,-soname,libcuda.so.1 -o $@ $^ -lm -lpthread

# The engine's own test brings the engine and kernels of its own; TSan would need other fibers.
$D/emulator/toys.o: tests/emulator/toys.cu $D/emulator/flags
	@echo '  CXX   $D/$<'
	@$(EMU_CXX) -x c++ $(EMU_CPP) $(EMU_COMMON) -DCUDA_ARCH=800 -MMD -MP -c -o $@ $<
$D/tests/kernels/test_simt: $D/emulator/toys.o $D/emulator/simt.o
ifeq ($(and $(HAVE_EMULATOR),$(filter-out tsan,$(BUILD))),)
PROGRAMS := $(filter-out tests/kernels/test_simt.c tests/kernels/test_emulator.c,$(PROGRAMS))
endif

-include $(wildcard $D/emulator/*.d $D/emulator/*/*.d)

# ---- Races ---------------------------------------------------------------------------------------

# Only the kernels are watched: check_ops is the release one with TSan's runtime.
build/race/check_ops: build/release/obj/tests/kernels/check_ops.o build/release/libtest.a \
  build/release/libkernels.a
	@mkdir -p $(@D)
	@echo '  LINK  $@'
	@clang -fsanitize=thread -o $@ $^ $(KERNEL_LIBS) -lgomp

race: ## every emulated kernel under TSan, and what a missing barrier does (clang)
	@sh tests/deps.sh extra
	@$(MAKE) BUILD=tsan emulator
	@$(MAKE) BUILD=release build/race/check_ops
	@TEST_TIMEOUT=14400 sh tests/run.sh tests/race.sh
