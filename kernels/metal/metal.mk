# metal.mk: builds the Metal backend into the program. Read by the Makefile.
#
# The backend is plain C that finds Metal when it runs, so it is built on every system; its kernels
# are text in the program (source.mk), which Metal compiles when a device is opened.

LIBRARY += $(wildcard kernels/metal/*.c)
