# kernels.mk: compiles the .metal files for the host. Read by the Makefile, after emulator.mk. Needs
# x86-64 and a C++ compiler; without them nothing is built here.
#
# A file goes through the preprocessor as it does for Metal, then through host_kernels.awk, which
# adds a trampoline for each kernel. METAL_HOST is what a program links to run them.

METAL_UNITS := $(notdir $(basename $(shell grep -lE '^kernel |host_name' /dev/null $(METAL_FILES))))
METAL_CPP := -std=c++17 -fno-exceptions -fno-rtti $(EMU_WARNINGS) $(EMU_COMMON) $(EMU_CHECKS)
HAVE_METAL_HOST := $(and $(filter x86_64-%,$(TARGET)),$(shell command -v $(EMU_CXX)))
METAL_HOST := $(METAL_UNITS:%=$D/metal/%.o) $D/metal/kernel_table.o $D/emulator/simt.o

$D/metal/%.cc: kernels/metal/%.metal tests/metal/host_kernels.awk build/metal/args.metal
	@mkdir -p $(@D)
	@$(METAL_JOIN) -MMD -MP -MT $@ -MF $D/metal/$*.text.d -o $D/metal/$*.text $<
	@awk -v mode=host -f tests/metal/host_kernels.awk $D/metal/$*.text >$@.new && mv $@.new $@
$D/metal/%.o: $D/metal/%.cc tests/metal/metal_host.hpp $D/emulator/flags
	@echo '  CXX   $D/kernels/metal/$*.metal'
	@$(EMU_CXX) -x c++ $(METAL_CPP) -MMD -MP -c -o $@ $<
$D/metal/kernel_table.o $D/metal/run_kernel.o: $D/metal/%.o: tests/metal/%.c $D/emulator/flags
	@mkdir -p $(@D)
	@$(CC) $(EMU_C) $(EMU_COMMON) -MMD -MP -c -o $@ $<
$D/metal/%.o: build/metal/%.c
	@mkdir -p $(@D)
	@$(CC) $(EMU_C) $(EMU_COMMON) -c -o $@ $<

$D/tests/kernels/test_metal_kernels $D/tests/kernels/test_metal_matmul: $(METAL_HOST) $D/metal/run_kernel.o
$D/tests/kernels/test_metal_kernels: $D/metal/args_check.o
ifeq ($(and $(HAVE_METAL_HOST),$(filter-out tsan,$(BUILD))),)
PROGRAMS := $(filter-out tests/kernels/test_metal_kernels.c tests/kernels/test_metal_matmul.c,$(PROGRAMS))
endif

-include $(wildcard $D/metal/*.d)
