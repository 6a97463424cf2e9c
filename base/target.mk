# target.mk: for which processor and operating system the program is built. Read by the Makefile.
#
# Kernels for one instruction set carry it in their file name, code for one operating system carries
# _linux or _darwin; all other code runs everywhere.

TARGET := $(shell $(CC) -dumpmachine)
SYSTEM := $(if $(findstring darwin,$(TARGET))$(findstring macos,$(TARGET)),darwin,linux)
OTHER_ISA := $(if $(filter x86_64-%,$(TARGET)),,kernels/cpu/x86/%) $(if $(filter aarch64-% arm64-%,$(TARGET)),,kernels/cpu/arm/%)
OTHER_SYSTEM := $(if $(filter darwin,$(SYSTEM)),%_linux.c,%_darwin.c)

AVX2 := -mavx2 -mfma -mf16c
AVX512 := $(AVX2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni $(MORE_AVX512)
# gcc before 11 does not know it; asked where it is needed.
AVXVNNI = $(shell $(CC) -mavxvnni -E -x c /dev/null >/dev/null 2>&1 && echo -mavxvnni)
DOTPROD ?= -march=armv8.2-a+dotprod

# Nobody has seen the warnings of Xcode's clang yet.
WERROR := $(if $(filter Darwin,$(shell uname -s)),,-Werror)

# The program has threads of its own; OpenMP is for the loops of tests/planner/test_solver.c alone,
# which alone is linked with its library. Apple's clang has none.
OPENMP := $(if $(filter darwin,$(SYSTEM)),,-fopenmp)
