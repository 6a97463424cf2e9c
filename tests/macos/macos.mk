# macos.mk: the variant BUILD=macos, made on any system by the clang inside the ziglang package of
# PyPI, which carries the headers of macOS, and what is checked about it. Read by the Makefile.
#
# Nothing of it can run here. The Metal backend is in it as soon as kernels/metal/ has sources. On a
# Mac `make build` takes Xcode's clang and none of this.
#
#   make macos-check MACOS_TARGET=x86_64-macos.11.0      the same for Macs with Intel processors

MACOS_TARGET ?= aarch64-macos.11.0
MODE_macos := -O3 -g1 -DNDEBUG
ZIG := $(CURDIR)/build/macos/zig/ziglang/zig
ifeq ($(BUILD),macos)
ZIG_RUN := env ZIG_GLOBAL_CACHE_DIR=$(CURDIR)/build/macos/cache ZIG_LOCAL_CACHE_DIR=$(CURDIR)/build/macos/cache $(ZIG)
override CC := $(ZIG_RUN) cc -target $(MACOS_TARGET)
override AR := $(ZIG_RUN) ar
# zig's own names of instructions; Xcode's clang takes those of gcc.
DOTPROD := -mcpu=generic+dotprod
MORE_AVX512 := -mevex512
CUDA := 0
endif

# There is no cmocka for macOS, so what needs it is left out with the tests. $1: sources.
not_for_macos = $(shell grep -lE 'cmocka[.]h|memfd_create' /dev/null $1)

MACOS_PROGRAMS := build/macos/tandem $(addprefix build/macos/,tests/kernels/check_ops bench/bench_device bench/bench_engine bench/make_model)

.PHONY: macos-check
macos-check: ## the whole program as Mach-O for a Mac, by the clang of PyPI's ziglang, see tests/macos/
	@sh tests/macos/zig.sh build/macos/zig
	+@$(MAKE) BUILD=macos $(MACOS_PROGRAMS)
	@MACOS_TARGET=$(MACOS_TARGET) MACOS_PROGRAMS="$(MACOS_PROGRAMS)" sh tests/run.sh tests/macos/test_macos.sh
	@file build/macos/tandem 2>/dev/null || true
	@grep "^#" build/log/test_macos.log
