# models.mk: puts the models of this folder into the program. Read by the Makefile; a new file
# *.json needs no line here.

SHAPES := $(sort $(wildcard configs/models/*.json))
$D/obj/planner/shape/shape_builtin.o: build/models.def $(SHAPES)
$D/obj/planner/shape/shape_builtin.o: ISA := -DMODEL_FILES='"build/models.def"'

# Written anew only when its text changes.
build/models.def: FORCE
	@mkdir -p $(@D)
	@n=0; for path in $(SHAPES); do echo "MODEL_FILE($$n, \"$$(basename $$path .json)\", \"$$path\")"; \
	  n=$$((n + 1)); done >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
