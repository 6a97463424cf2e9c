# source.mk: makes the text of the Metal kernels a part of the program. Read by the Makefile.
#
# The preprocessor of the host's compiler joins the .metal files, with a Metal header that is empty;
# so what Metal compiles at start is one text without includes or macros. The arguments of the ops
# become structs of that text from the C headers that the host includes. Needs a C compiler and awk.

METAL_FILES := $(wildcard kernels/metal/*.metal)
METAL_STUBS := $(addprefix build/metal/stub/,metal_stdlib stdbool.h stddef.h stdint.h)
METAL_JOIN = $(CC) -E -undef -nostdinc -x c++ -w -Ibuild/metal/stub -I.

LIBRARY += build/metal/metal_source.c
$D/obj/build/metal/metal_source.o: build/metal/metal_source.c

$(METAL_STUBS):
	@mkdir -p $(@D)
	@: >$@

build/metal/args.metal: kernels/metal/params.h kernels/metal/structs.awk $(wildcard kernels/*.h kernels/*.def) $(METAL_STUBS)
	@$(CC) -E -undef -nostdinc -x c -w -Ibuild/metal/stub -I. $< >$@.text
	@awk -f kernels/metal/structs.awk $@.text >$@.new && mv $@.new $@

# The same structs, compared with the headers' own: compiled into the tests.
build/metal/args_check.c: build/metal/args.metal
	@awk -v check=1 -f kernels/metal/structs.awk $<.text >$@.new && mv $@.new $@

build/metal/metal_source.c: $(METAL_FILES) kernels/metal/source.awk build/metal/args.metal $(wildcard kernels/*.def kernels/grids.h)
	@echo '  METAL $@'
	@for file in $(METAL_FILES); do echo "#include \"$$file\""; done >build/metal/all.metal
	@$(METAL_JOIN) build/metal/all.metal >build/metal/all.text
	@awk -f kernels/metal/source.awk build/metal/all.text >$@.new && mv $@.new $@
