# templates.mk: puts the chat templates of this folder into the program. Read by the Makefile; a new
# file *.jinja needs no line here.

TEMPLATES := $(sort $(wildcard configs/templates/*.jinja))
$D/obj/runtime/text/chat_builtin.o: build/templates.def $(TEMPLATES)
$D/obj/runtime/text/chat_builtin.o: ISA := -DTEMPLATE_FILES='"build/templates.def"'

# Written anew only when its text changes.
build/templates.def: FORCE
	@mkdir -p $(@D)
	@n=0; for path in $(TEMPLATES); do echo "TEMPLATE_FILE($$n, \"$$(basename $$path .jinja)\", \"$$path\")"; \
	  n=$$((n + 1)); done >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
