# source.awk: turns the preprocessed text of all kernels into a C string.
#
#   awk -f source.awk TEXT >metal_source.c
#
# Metal's own header, which the preprocessor left out, comes first. Empty lines are dropped where
# the next marker says the line anyway. Runs on any POSIX awk.

function add(text) {
    gsub(/\\/, "\\\\", text)
    gsub(/"/, "\\\"", text)
    print "    \"" text "\\n\""
}

BEGIN {
    print "#include \"kernels/metal/metal_source.h\"\n\nconst char metal_source[] ="
    add("#include <metal_stdlib>")
    add("using namespace metal;")
}

/^# [0-9]+ "</ { next } # names of the preprocessor's own
/^# [0-9]+ "/ {
    empty = 0
    marker = "#line " $2 " " $3
    sub(/"\.\//, "\"", marker)
    next
}
/^[ \t]*$/ { empty++; next }
{
    if (marker != "") { add(marker); marker = "" }
    for (; empty > 0; empty--) add("")
    sub(/^[ \t]+/, "")
    if (/host_name/) gsub(/" *"/, "") # the name of a kernel in one piece
    add($0)
}

END { print "    ;" }
