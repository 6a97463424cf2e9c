# fake.mk: builds the look-alike Metal, one library with an Objective-C runtime, Foundation and
# Metal, in which the kernels run on the host, and runs the long checks of them. Read by the
# Makefile, after kernels.mk. Needs x86-64 and a C++ compiler; without them nothing is built here.

METAL_FAKE := $(EMU)/libmetal.so
METAL_FAKE_SOURCES := main_libmetal $(addprefix fake_,objc foundation device buffer encoder queue)
METAL_FAKE_OBJECTS := $(METAL_FAKE_SOURCES:%=$D/metal/%.o)
HAVE_METAL_FAKE := $(and $(HAVE_METAL_HOST),$(filter-out tsan fuzz,$(BUILD)))

.PHONY: fake-metal metal-check metal-race metal-bugs
fake-metal: $(if $(HAVE_METAL_HOST),$(METAL_FAKE))

$(METAL_FAKE_OBJECTS): $D/metal/%.o: tests/metal/%.c $D/emulator/flags
	@mkdir -p $(@D)
	@echo '  CC    $D/$<'
	@$(CC) $(EMU_C) $(EMU_COMMON) -MMD -MP -c -o $@ $<

$(METAL_FAKE): $(METAL_FAKE_OBJECTS) $(METAL_HOST) $D/metal/metal_source.o
	@mkdir -p $(@D)
	@echo '  LINK  $@'
	@$(EMU_CXX) $(EMU_COMMON) $(EMU_CHECKS) -shared $(if $(SANITIZED),,-Wl,-z,defs) -o $@ $^ -lm -lpthread

ifneq ($(HAVE_METAL_FAKE),)
emulator programs: fake-metal
else
PROGRAMS := $(filter-out tests/kernels/test_metal.c tests/kernels/test_metal_rules.c,$(PROGRAMS))
endif

# make test runs the same scripts with METAL_ALL unset, which takes a fraction of the time.
metal-check: ## every op, split and model on the emulated Metal, deliberate bugs and races (clang)
	@$(MAKE) BUILD=release build programs model
	@$(call AGAINST,build,build/release) METAL_ALL=1 TEST_TIMEOUT=1800 \
	  sh tests/run.sh tests/cli/cli_metal.sh tests/cli/cli_metal_kernels.sh tests/cli/cli_metal_dialect.sh
	@$(MAKE) metal-bugs metal-race

metal-bugs: ## whether check_ops finds bugs that are put into the Metal kernels
	@$(MAKE) BUILD=release fake-metal build/release/tests/kernels/check_ops
	@TEST_TIMEOUT=1800 sh tests/run.sh tests/metal_bugs.sh

metal-race: ## every emulated Metal kernel under TSan, and what a missing barrier does (clang)
	@sh tests/deps.sh extra
	@$(MAKE) BUILD=tsan fake-metal
	@$(MAKE) BUILD=release build/race/check_ops
	@TEST_TIMEOUT=3600 sh tests/run.sh tests/race_metal.sh
