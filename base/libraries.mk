# base/libraries.mk: which libraries are here, and what is built without them. Read by the Makefile.
#
# base/ and kernels/ need hwloc alone, and nothing with HWLOC=0: then the system itself is asked for
# the threads of a core. All else needs the other libraries too, of which only jemalloc can be left
# out: with JEMALLOC=0 nobody counts what is allocated. make test needs them all. "auto" leaves out
# what is not here, says so, and lets everything be built that can be; make gpu-check asks for that,
# on a bare machine. libedit is used where it is, but with LIBEDIT=0, and so are libcurl and nettle,
# together, but with CURL=0, and zstd, the library with the program, but with ZSTD=0 or CUDA=0: it packs the
# kernels for GPUs. A library is found by pkg-config or, without it, by compiling and linking.
#
# STATIC=1 puts what is linked into the program, for one that runs on many systems: it then needs
# glibc and, unless HWLOC=0 CURL=0, libhwloc.so.15 and libcurl.so.4, which have had these numbers
# since Debian 11 and Ubuntu 20.04. (utf8proc has another one in Debian 13.)
#
# For macOS the three that a model needs are built from their sources and linked statically
# (packaging/macos_libraries.sh), and the others are left out.

WANTED := $(if $(filter darwin,$(SYSTEM)),0,1)
HWLOC ?= $(WANTED)
JEMALLOC ?= $(WANTED)
LIBEDIT ?= $(WANTED)
CURL ?= $(WANTED)
ZSTD ?= $(WANTED)

LIBRARIES := hwloc libpcre2-8 libutf8proc jansson jemalloc libedit libcurl nettle libzstd
HEADER_hwloc := hwloc.h
HEADER_libpcre2-8 := pcre2.h
HEADER_libutf8proc := utf8proc.h
HEADER_jansson := jansson.h
HEADER_jemalloc := jemalloc/jemalloc.h
HEADER_libedit := histedit.h
HEADER_libcurl := curl/curl.h
HEADER_nettle := nettle/sha2.h
HEADER_libzstd := zstd.h
DEBIAN = $(patsubst liblib%,lib%,$(patsubst %,lib%-dev,$(1:libpcre2-8=libpcre2)))

PROBE := echo 'int main(void) { return 0; }' | $(CC) -DPCRE2_CODE_UNIT_WIDTH=8 -x c -
# $1: library. Its name if it is here.
found = $(shell { pkg-config --exists $1 2>/dev/null || \
  $(PROBE) -include $(HEADER_$1) -l$(1:lib%=%) -o /dev/null 2>/dev/null; } && echo $1)
AUTO := $(filter auto,$(HWLOC) $(JEMALLOC))
OWN := $(if $(filter darwin,$(SYSTEM)),libpcre2-8 libutf8proc jansson)
OWN_ROOT := build/macos/$(firstword $(subst -, ,$(TARGET)))
OWN_FILE_jansson := libjansson
FOUND := $(OWN) $(foreach l,$(filter-out $(OWN),$(LIBRARIES)),$(call found,$l))
LACKING := $(filter-out $(FOUND),$(LIBRARIES))
# $1: HWLOC or JEMALLOC, $2: library.
chosen = $(if $(filter auto,$($1)),$(filter $2,$(FOUND)),$(if $(filter-out 0,$($1)),$2))
USE_HWLOC := $(call chosen,HWLOC,hwloc)
USE_JEMALLOC := $(if $(SANITIZED),,$(call chosen,JEMALLOC,jemalloc))
USE_LIBEDIT := $(if $(filter-out 0,$(LIBEDIT)),$(filter libedit,$(FOUND)))
HUB_LIBRARIES := libcurl nettle
USE_CURL := $(if $(filter 0,$(CURL))$(filter-out $(FOUND),$(HUB_LIBRARIES)),,$(HUB_LIBRARIES))
USE_ZSTD := $(if $(filter 0,$(ZSTD) $(CUDA)),,$(and $(shell command -v zstd),$(filter libzstd,$(FOUND))))

PACKAGES := $(USE_HWLOC) libpcre2-8 libutf8proc jansson $(USE_JEMALLOC) $(USE_LIBEDIT) $(USE_CURL) $(USE_ZSTD)
NEEDED := $(filter $(LACKING),$(PACKAGES))
# Without these nothing of runtime/ can be built.
MODELS_LACK := $(filter $(NEEDED),libpcre2-8 libutf8proc jansson)
ifneq ($(AUTO),)
PACKAGES := $(filter-out $(NEEDED),$(PACKAGES))
NEEDED :=
ifeq ($(USE_HWLOC),)
$(info tandem: built without hwloc (libhwloc-dev): slow cores are taken for fast ones)
endif
ifeq ($(USE_JEMALLOC),)
$(info tandem: built without jemalloc (libjemalloc-dev): nobody counts what is allocated)
endif
endif
ifeq ($(USE_LIBEDIT)$(MAKELEVEL)$(OWN),0)
$(info tandem: built without libedit (libedit-dev): tandem chat has no line editing)
endif
ifeq ($(USE_CURL)$(MAKELEVEL)$(OWN),0)
$(info tandem: built without libcurl (libcurl4-openssl-dev) and nettle (nettle-dev): it cannot fetch models)
endif
ifeq ($(USE_ZSTD)$(filter 0,$(CUDA))$(MAKELEVEL)$(OWN),0)
$(info tandem: built without zstd (zstd and libzstd-dev): each program with kernels for GPUs is some 40 MB larger)
endif

# $1: libraries.
cflags_of = $(if $(OWN),-I$(OWN_ROOT)/include) \
  $(foreach l,$(filter-out $(OWN),$1),$(shell pkg-config --cflags $l 2>/dev/null))
libs_of = $(foreach l,$(filter $(OWN),$1),$(OWN_ROOT)/lib/$(or $(OWN_FILE_$l),$l).a) \
  $(foreach l,$(filter-out $(OWN),$1),$(shell pkg-config --libs $l 2>/dev/null || echo -l$(l:lib%=%)))
SYSTEM_LIBS := -lm -ldl -lpthread
# An archive for each library, and for what it needs itself.
ARCHIVE_libpcre2-8 := pcre2-8
ARCHIVE_libutf8proc := utf8proc
ARCHIVE_jansson := jansson
ARCHIVE_jemalloc := jemalloc_pic stdc++
ARCHIVE_libedit := edit tinfo bsd md
ARCHIVE_nettle := nettle
ARCHIVE_libzstd := zstd
archives_of = $(foreach l,$1,$(if $(ARCHIVE_$l),$(ARCHIVE_$l:%=-l:lib%.a),$(call libs_of,$l)))
LIBS := $(call $(if $(filter-out 0,$(STATIC)),archives_of,libs_of),$(PACKAGES)) $(SYSTEM_LIBS)
# Programs linked with the archive of base/ and kernels/ alone, which need no more than it does.
KERNEL_LIBS := $(call libs_of,$(USE_HWLOC) $(USE_ZSTD)) $(SYSTEM_LIBS)
KERNEL_BINS = $(addprefix $D/,tests/kernels/check_ops bench/bench_device bench/bench_link bench/bench_ops bench/cuda/bench_peak)

.PHONY: libraries
libraries:
ifneq ($(NEEDED),)
	@echo 'tandem: libraries are missing: make deps, or: apt-get install $(call DEBIAN,$(NEEDED))'
	@exit 1
endif
ifneq ($(OWN),)
	@CC='$(CC)' AR='$(AR)' sh packaging/macos_libraries.sh $(OWN_ROOT)
endif
