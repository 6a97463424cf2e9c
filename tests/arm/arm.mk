# arm.mk: the variant BUILD=arm, made by Debian's cross compiler for aarch64, and its tests under
# qemu. Read by the Makefile.
#
# The programs are linked statically, without hwloc, jemalloc and CUDA, so that qemu needs nothing
# but them. Libraries for aarch64 lie in build/arm/root (tests/arm/root.sh). The linker warns of a
# dlopen in libgomp, which nothing here calls.

ARM_CC ?= aarch64-linux-gnu-gcc
MODE_arm := -O3 -g1 -DNDEBUG -static
ARM_ROOT := build/arm/root
# make's shell function sees what the environment holds and no exports of a makefile.
ARM_MAKE := PKG_CONFIG_LIBDIR=$(CURDIR)/$(ARM_ROOT)/usr/lib/aarch64-linux-gnu/pkgconfig \
  PKG_CONFIG_SYSROOT_DIR=$(CURDIR)/$(ARM_ROOT) $(MAKE) BUILD=arm
ifeq ($(BUILD),arm)
override CC := $(ARM_CC)
HWLOC := 0
JEMALLOC := 0
CUDA := 0
endif

.PHONY: test-arm
test-arm: ## the kernels and tiny models on aarch64: cross compiler and qemu, see tests/arm/
	@sh tests/deps.sh arm
	@sh tests/arm/root.sh $(ARM_ROOT)
	+@$(MAKE) build/release/tests/kernels/check_ops build/release/tests/lib/check_logits
	+@$(ARM_MAKE) build/arm/tandem build/arm/tests/kernels/check_ops
	@TEST_TIMEOUT=1500 sh tests/run.sh tests/arm/test_arm.sh
