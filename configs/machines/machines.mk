# machines.mk: puts the machines of this folder into the program. Read by the Makefile; a new file
# *.json needs no line here.

MACHINES := $(sort $(wildcard configs/machines/*.json))
$D/obj/planner/machine/machine_builtin.o: build/machines.def $(MACHINES)
$D/obj/planner/machine/machine_builtin.o: ISA := -DMACHINE_FILES='"build/machines.def"'

# Written anew only when its text changes.
build/machines.def: FORCE
	@mkdir -p $(@D)
	@n=0; for path in $(MACHINES); do echo "MACHINE_FILE($$n, \"$$(basename $$path .json)\", \"$$path\")"; \
	  n=$$((n + 1)); done >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
