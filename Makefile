# Makefile: builds, tests and runs tandem. `make` alone lists what it can do.
#
# Sources are found by folder, so a new file needs no line here. Everything that is made goes to
# build/, one folder per variant (release, debug, asan, ubsan, tsan, fuzz, arm); the release programs
# build/tandem and build/tandem-sim lie on top. A changed flag or compiler rebuilds that variant.

BUILD ?= release
FUZZ_SECONDS ?= 60
MODEL ?= models/SmolLM2-135M-Instruct.Q4_1.gguf
PROMPT ?= The capital of France is
N ?= 64
export MODEL PROMPT

ifeq ($(MAKELEVEL),0)
MAKEFLAGS += --no-print-directory -j$(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
endif
ifeq ($(origin CC),default)
CC := $(if $(filter Darwin,$(shell uname -s)),clang,gcc)
endif
include tests/arm/arm.mk tests/macos/macos.mk
ifneq ($(filter tsan fuzz,$(BUILD)),)
override CC := $(if $(findstring clang,$(CC)),$(CC),clang)
endif

# ---- Flags ---------------------------------------------------------------------------------------

STOP := -fno-sanitize-recover=all
# Reports and profiles name lines; to know variables too (debug) nearly doubles the time to compile.
MODE_release := -O3 -g1 -DNDEBUG
MODE_debug   := -O1 -g
MODE_asan    := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined $(STOP)
MODE_ubsan   := -O1 -g1 -fsanitize=undefined $(STOP)
MODE_tsan    := -O2 -g1 -fsanitize=thread
MODE_fuzz    := -O1 -g1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined $(STOP)
ifndef MODE_$(BUILD)
$(error BUILD=$(BUILD) is no variant; take release, debug, asan, ubsan, tsan, fuzz, arm or macos)
endif
SANITIZED := $(findstring -fsanitize,$(MODE_$(BUILD)))

include base/target.mk base/libraries.mk
# Instrumented code confuses the flow analysis behind some warnings; plain builds check them all.
# Cutting a message that is too long is what snprintf is there for (gcc would warn).
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wvla $(WERROR) $(if $(findstring clang,$(CC)),,-Wno-format-truncation)
WARNINGS := $(if $(SANITIZED),-w,$(WARNINGS))
FLAGS := -std=gnu11 -D_GNU_SOURCE $(MODE_$(BUILD)) $(WARNINGS) $(OPENMP) -fPIC -fvisibility=hidden -I.
# A program's debug sections are two fifths of it; packed they are a third of that.
FLAGS += $(if $(filter darwin,$(SYSTEM)),,-gz)
FLAGS += $(if $(USE_HWLOC),,-DHAVE_HWLOC=0) $(call cflags_of,$(PACKAGES))
CMOCKA := -lcmocka

# ---- Sources -------------------------------------------------------------------------------------

CHOSEN := runtime/cli/heap_$(if $(USE_JEMALLOC),jemalloc,none).c runtime/cli/line_editor_$(if $(USE_LIBEDIT),edit,none).c runtime/hub/transfer_$(if $(USE_CURL),curl,none).c
CORES := kernels/cpu/cores_$(or $(USE_HWLOC),$(if $(filter darwin,$(SYSTEM)),darwin,none)).c
LIBRARY := $(wildcard base/*.c base/regex/*.c kernels/*.c kernels/cpu/*.c kernels/cpu/*/*.c planner/*/*.c runtime/*/*.c)
LIBRARY := $(filter-out runtime/commands/main_%.c runtime/cli/heap_%.c runtime/cli/line_editor_%.c runtime/hub/transfer_%.c kernels/cpu/cores_%.c $(OTHER_ISA) $(OTHER_SYSTEM),$(LIBRARY))
# Fuzzers call parsers; the matmuls are left out because clang takes minutes to instrument them.
LIBRARY := $(filter-out $(if $(filter fuzz,$(BUILD)),kernels/cpu/x86/matmul_%),$(LIBRARY))
LIBRARY += $(CHOSEN) $(CORES)
# With LEND=1 a sanitized variant links these of release: to instrument them takes gcc ten minutes.
LENT := $(if $(LEND),$(filter kernels/cpu/x86/matmul_% kernels/cpu/x86/attention_avx%,$(LIBRARY)))
PROGRAMS := $(wildcard tests/*/test_*.c tests/kernels/check_ops.c)
FUZZERS := $(wildcard tests/fuzz/fuzz_*.c)
BENCHES := $(wildcard bench/bench_*.c)
HELPERS := $(filter-out tests/emulator/% tests/metal/% tests/examples/% tests/sim/main_%.c $(PROGRAMS) $(FUZZERS) $(BENCHES),$(wildcard tests/*/*.c bench/*.c bench/lib/*.c))
HELPERS := $(filter-out $(if $(filter darwin,$(SYSTEM)),$(call not_for_macos,$(HELPERS))),$(HELPERS))
TOOLS := $(shell grep -l '^int main' /dev/null $(HELPERS))
HELPERS := $(filter-out $(TOOLS),$(HELPERS))
MAINS := runtime/commands/main_tandem.c tests/sim/main_tandem_sim.c
SCRIPTS := $(wildcard tests/cli/cli_*.sh)

D := build/$(BUILD)
TOP := $(if $(filter release,$(BUILD)),build,$D)
KERNEL_LIB := $D/libkernels.a
LIB := $D/libtandem_all.a $(KERNEL_LIB)
TESTLIB := $D/libtest.a
TANDEM := $(TOP)/tandem
TANDEM_SIM := $(TOP)/tandem-sim
BENCH_BINS := $(BENCHES:%.c=$D/%)
# Where scripts find the programs: the folder of the two mains, the variant's folder.
AGAINST = TANDEM=$(CURDIR)/$1/tandem TANDEM_SIM=$(CURDIR)/$1/tandem-sim TOOLS=$(CURDIR)/$2/tests
.DEFAULT_GOAL := help
include kernels/cuda/cuda.mk tests/cuda/machine_code.mk kernels/metal/metal.mk kernels/metal/source.mk tests/emulator/emulator.mk tests/metal/kernels.mk tests/metal/fake.mk
include configs/machines/machines.mk configs/models/models.mk configs/templates/templates.mk runtime/library/library.mk
ALL := $(LIBRARY) $(PROGRAMS) $(TOOLS) $(HELPERS) $(BENCHES) $(MAINS) $(FUZZERS)

# ---- What people ask for -------------------------------------------------------------------------

.PHONY: help build all model run test check-ops bench asan ubsan tsan fuzz tidy format clean deps programs benches fuzzers fixtures FORCE

help: ## this list
	@echo 'make TARGET [BUILD=release|debug|asan|ubsan|tsan] [CC=gcc|clang]'
	@awk -F ':.*## ' '/^[a-z -]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' Makefile \
	  kernels/cuda/cuda.mk tests/emulator/emulator.mk tests/metal/fake.mk tests/arm/arm.mk tests/macos/macos.mk runtime/library/library.mk

build: libraries $(TANDEM) ## build/tandem, the program alone

all: build $(TANDEM_SIM) $D/tests/kernels/check_ops $D/bench/bench_ops ## the program, libtandem.a, libtandem.so, tandem-sim, check_ops, bench_ops

model: ## fetch the default model (98 MB) once and check it
	@sh tests/fetch_model.sh "$$MODEL"

run: ## fetch what is missing, build, and write: PROMPT="..." N=64 MODEL=file.gguf ARGS="..."
	@sh tests/deps.sh
	@$(MAKE) build model
	@$(TOP)/tandem run -m "$$MODEL" -p "$$PROMPT" -n $(N) $(ARGS)

test: ## everything: programs, scripts, then the unit tests again under address checks
	@sh tests/deps.sh
	@$(MAKE) all programs benches emulator model fixtures
	@$(MAKE) BUILD=asan LEND=1 programs emulator build/asan/tandem build/asan/tandem-sim
	@$(call AGAINST,$(TOP),$D) sh tests/run.sh $(EMU_WATCHED) $(PROGRAMS:%.c=$D/%) $(SCRIPTS) \
	  $(patsubst %.c,build/asan/%,$(filter-out %/check_ops.c,$(PROGRAMS)))

check-ops: libraries $D/tests/kernels/check_ops ## every op on every backend present against its definition
	@$D/tests/kernels/check_ops $(ARGS)

bench: benches ## the benchmarks: ARGS="..." goes to each
	@for program in $(BENCH_BINS); do echo "$$program"; $$program $(ARGS) || exit 1; done

asan ubsan tsan: ## programs and scripts with that sanitizer (tsan: clang)
	@sh tests/deps.sh extra
	@$(MAKE) BUILD=$@ all programs $(if $(filter tsan,$@),,emulator) model fixtures
	@$(call AGAINST,build/$@,build/$@) TSAN_OPTIONS=ignore_noninstrumented_modules=1 TEST_TIMEOUT=900 \
	  sh tests/run.sh $(patsubst %/check_ops,'%/check_ops --quick',$(PROGRAMS:%.c=build/$@/%)) \
	  $(shell grep -l '[$$][{]*TANDEM' /dev/null $(SCRIPTS))

fuzz: ## every parser for FUZZ_SECONDS=60 each (clang)
	@sh tests/deps.sh extra
	@$(MAKE) BUILD=fuzz fuzzers
	@sh tests/fuzz/fuzz.sh $(FUZZ_SECONDS) $(FUZZERS:%.c=build/fuzz/%)

tidy: ## the rules of the house: directions, lengths, words, formatting
	@sh tests/deps.sh extra
	@sh tests/tidy.sh

format: ## clang-format on every C and CUDA file
	@git ls-files -co --exclude-standard -- '*.c' '*.h' '*.cu' '*.cuh' '*.inc' | xargs clang-format -i

clean: ## remove build/ (the model stays)
	rm -rf build

deps: ## install what is missing through apt-get
	@sh tests/deps.sh

# ---- How it is made ------------------------------------------------------------------------------

programs: libraries $(TANDEM_SIM) $(PROGRAMS:%.c=$D/%) $(TOOLS:%.c=$D/%) $(if $(filter tsan,$(BUILD)),,$(if $(strip $(CUDA_IMAGES)),emulator))
benches: libraries $(BENCH_BINS)
fuzzers: libraries $(FUZZERS:%.c=$D/%)
fixtures:
	@sh tests/fetch_fixtures.sh

$D/obj/%_avx2.o: ISA := $(AVX2)
$D/obj/%_avxvnni.o: ISA = $(AVX2) $(AVXVNNI)
$D/obj/%_avx512.o: ISA := $(AVX512)
$D/obj/%_vbmi.o $D/obj/%_zen4.o: ISA := $(AVX512) -mavx512vbmi -mgfni -mbmi2
$D/obj/%_avx512bf16.o: ISA := $(AVX512) -mavx512bf16
$D/obj/%_dotprod.o: ISA := $(DOTPROD)
$D/obj/%_i8mm.o: ISA := $(DOTPROD)+i8mm

$D/obj/%.o: %.c $D/flags | libraries
	@mkdir -p $(@D)
	@echo '  CC    $D/$<'
	@$(CC) $(FLAGS) $(ISA) -MMD -MP -c -o $@ $<

# An archive is made anew when its list of members changes, so that a deleted file leaves it.
$D/libtandem_all.a: $(patsubst %.c,$D/obj/%.o,$(filter-out base/% kernels/% build/metal/%,$(LIBRARY))) $D/members
$(KERNEL_LIB): $(patsubst %.c,$D/obj/%.o,$(filter-out $(LENT),$(filter base/% kernels/% build/metal/%,$(LIBRARY)))) $(LENT:%.c=build/release/obj/%.o) $D/members
$(TESTLIB): $(HELPERS:%.c=$D/obj/%.o) $D/members
$(LIB) $(TESTLIB):
	@rm -f $@
	@$(AR) rcs $@ $(filter %.o,$^)

# A sanitized program that can lie anywhere is 27 MB larger, for a million addresses to be adapted.
LINK = @mkdir -p $(@D); echo '  LINK  $@'; $(CC) $(filter-out $(OPENMP),$(FLAGS)) $(if $(filter asan,$(BUILD)),-no-pie) -o $@ $(filter %.o %.a,$^)
$(TANDEM): $D/obj/runtime/commands/main_tandem.o $(LIB)
$(TANDEM_SIM): $D/obj/tests/sim/main_tandem_sim.o $(TESTLIB) $(LIB)
$(TANDEM) $(TANDEM_SIM):
	$(LINK) $(LIBS)
$(KERNEL_BINS): $D/%: $D/obj/%.o $(TESTLIB) $(KERNEL_LIB)
	$(LINK) $(KERNEL_LIBS)
$D/bench/%: $D/obj/bench/%.o $(TESTLIB) $(LIB)
	$(LINK) $(LIBS)
$D/tests/fuzz/%: $D/obj/tests/fuzz/%.o $(TESTLIB) $(LIB)
	$(LINK) -fsanitize=fuzzer $(LIBS)
$D/tests/planner/test_solver: LIBS += $(OPENMP)
# The line "// link: wrap-alloc" in a test sends every allocation through tests/lib/alloc_fail.c.
$D/tests/%: $D/obj/tests/%.o $(TESTLIB) $(LIB)
	$(LINK) $(if $(shell grep -s '^// link: wrap-alloc' tests/$*.c),$(WRAP_ALLOC)) $(CMOCKA) $(LIBS)
WRAP_ALLOC := -Wl,--wrap=mem_alloc,--wrap=mem_resize,--wrap=mem_map_pages,--wrap=mem_unmap_pages

# Both files change only when their text does.
$D/flags: FORCE
	@mkdir -p $(@D); echo '$(CC) $(FLAGS)' | cmp -s - $@ || echo '$(CC) $(FLAGS)' > $@
$D/members: FORCE
	@mkdir -p $(@D); echo '$(LIBRARY) $(HELPERS) $(LENT)' | cmp -s - $@ || echo '$(LIBRARY) $(HELPERS) $(LENT)' > $@
.SECONDARY:
-include $(ALL:%.c=$D/obj/%.d)
