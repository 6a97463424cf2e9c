# library.mk: libtandem.a and libtandem.so, which export what runtime/tandem.h declares and nothing
# else, and how they are installed. Read by the Makefile.
#
# Both hold everything but the command line. All code is compiled with hidden symbols; the archive is
# one object in which the hidden ones are local, so that no name of ours can meet a program's. Neither
# brings jemalloc: the allocator is the program's choice. Sanitizers test the same code through
# tests/runtime/test_library.c.
#
#   make install PREFIX=/usr DESTDIR=/tmp/package

PREFIX ?= /usr/local
API_VERSION := $(shell sed -n 's/^.define TANDEM_VERSION  *"\(.*\)"/\1/p' runtime/tandem.h)
SONAME := libtandem.so.$(firstword $(subst ., ,$(API_VERSION)))
API_PARTS := $(filter-out runtime/cli/% runtime/commands/% runtime/hub/% runtime/measure/% runtime/quantize/% runtime/report/%,$(LIBRARY))
API_OBJECTS := $(API_PARTS:%.c=$D/obj/%.o)
API_LIBS := $(call libs_of,$(filter-out jemalloc libedit $(HUB_LIBRARIES),$(PACKAGES))) $(SYSTEM_LIBS)

.PHONY: install install-program uninstall deb
ifeq ($(SANITIZED),)
all: $(TOP)/libtandem.a $(TOP)/libtandem.so $(TOP)/tandem.pc

$(TOP)/libtandem.a: $(API_OBJECTS) $D/members
	@echo '  AR    $@'
	@ld -r -o $D/tandem.o $(API_OBJECTS)
	@objcopy --localize-hidden --compress-debug-sections $D/tandem.o
	@rm -f $@ && ar rcs $@ $D/tandem.o && rm $D/tandem.o

$(TOP)/libtandem.so: $(API_OBJECTS) $D/members
	@echo '  LINK  $@'
	@$(CC) $(filter-out $(OPENMP),$(FLAGS)) -shared -Wl,-z,defs -Wl,-soname,$(SONAME) -o $(TOP)/$(SONAME) $(API_OBJECTS) $(API_LIBS)
	@ln -sf $(SONAME) $@

$(TOP)/tandem.pc: runtime/tandem.h $D/flags
	@printf '%s\n' 'prefix=$(PREFIX)' 'includedir=$${prefix}/include' 'libdir=$${prefix}/lib' '' \
	  'Name: tandem' 'Description: runs language models across GPU and CPU' \
	  'Version: $(API_VERSION)' 'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -ltandem' \
	  'Libs.private: -pthread $(API_LIBS)' >$@
endif

SHARE := $(PREFIX)/share
MAN := $(SHARE)/man/man1/tandem.1
BASH_COMPLETION := $(SHARE)/bash-completion/completions/tandem
ZSH_COMPLETION := $(SHARE)/zsh/site-functions/_tandem
FISH_COMPLETION := $(SHARE)/fish/vendor_completions.d/tandem.fish
LIBRARY_FILES := $(addprefix $(PREFIX)/lib/,libtandem.a libtandem.so $(SONAME) pkgconfig/tandem.pc)
INSTALLED := $(PREFIX)/bin/tandem $(MAN) $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION) \
  $(PREFIX)/include/tandem.h $(LIBRARY_FILES)

install: install-program ## after make all: all of it to PREFIX=/usr/local, below DESTDIR
	@install -d $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/lib/pkgconfig
	@install -m 644 runtime/tandem.h $(DESTDIR)$(PREFIX)/include
	@install -m 644 $(TOP)/libtandem.a $(TOP)/$(SONAME) $(DESTDIR)$(PREFIX)/lib
	@ln -sf $(SONAME) $(DESTDIR)$(PREFIX)/lib/libtandem.so
	@sed 's,^prefix=.*,prefix=$(PREFIX),' $(TOP)/tandem.pc >$(DESTDIR)$(PREFIX)/lib/pkgconfig/tandem.pc
	@case '$(DESTDIR)$(PREFIX)' in /usr | /usr/local) ldconfig 2>/dev/null || true ;; esac # else no program finds it

# The program writes its manual page and the completions of shells.
install-program: ## the program, its manual page and completions alone
	@install -D $(TOP)/tandem $(DESTDIR)$(PREFIX)/bin/tandem
	@install -d $(addprefix $(DESTDIR),$(dir $(MAN) $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION)))
	@$(TOP)/tandem help --man >$(DESTDIR)$(MAN)
	@$(TOP)/tandem help --bash >$(DESTDIR)$(BASH_COMPLETION)
	@$(TOP)/tandem help --zsh >$(DESTDIR)$(ZSH_COMPLETION)
	@$(TOP)/tandem help --fish >$(DESTDIR)$(FISH_COMPLETION)

uninstall: ## remove what install put there
	@rm -f $(addprefix $(DESTDIR),$(INSTALLED))

deb: build ## build/tandem_VERSION_ARCHITECTURE.deb: program, manual page, completions; lintian looks at it
	@rm -rf build/deb
	@$(MAKE) install-program PREFIX=/usr DESTDIR=build/deb/root
	@file=build/tandem_$(API_VERSION)_$$(dpkg --print-architecture).deb; \
	sh packaging/deb.sh $(API_VERSION) build/deb/root "$$file" && \
	if command -v lintian >/dev/null; then lintian --allow-root --fail-on error "$$file"; fi
