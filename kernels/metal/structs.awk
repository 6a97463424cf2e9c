# structs.awk: turns the structs of C headers into those that kernels see.
#
#   awk [-v check=1] -f structs.awk TEXT >OUT
#
# TEXT is kernels/metal/params.h after the preprocessor, with names like int32_t left as they are.
# Kernels see pointers as numbers (ulong), and the types of Metal; enums stay, everything else is
# left out. With check=1 the result is C that compares the layout of each struct with the original,
# member by member. Runs on any POSIX awk.

function trim(text) { gsub(/^[ \t]+|[ \t]+$/, "", text); return text }

# One member: its declaration for kernels, and for the comparison.
function add_member(text,    n, names, i, type, name) {
    text = trim(text)
    if (text == "") return
    if (text ~ /\(/) { print "structs.awk: " text >"/dev/stderr"; failed = 1; exit 1 }
    n = split(text, names, ",")
    type = trim(names[1])
    sub(/[*]*[A-Za-z_0-9]+(\[[^]]*\])*$/, "", type)
    type = trim(type)
    for (i = 1; i <= n; i++) {
        name = trim(names[i])
        if (i == 1) match(name, /[*]*[A-Za-z_0-9]+(\[[^]]*\])*$/)
        if (i == 1) name = substr(name, RSTART)
        add_one(type, name)
    }
}

function add_one(type, name,    is_pointer, plain) {
    is_pointer = sub(/^[*]+/, "", name)
    plain = name
    sub(/\[.*/, "", plain)
    if (is_pointer) type = check ? "uint64_t" : "ulong"
    else if (check) sub(/^struct /, "struct metal_", type)
    else {
        sub(/^const /, "", type)
        sub(/^(struct|enum) /, "", type)
        if (type in METAL_TYPE) type = METAL_TYPE[type]
    }
    members = members "    " type " " name ";\n"
    asserts = asserts "static_assert(offsetof(struct metal_" struct_name ", " plain \
              ") == offsetof(struct " struct_name ", " plain "), \"" plain "\");\n"
}

function add_struct(head, inside,    n, parts, i) {
    struct_name = head
    sub(/^struct[ \t]+/, "", struct_name)
    struct_name = trim(struct_name)
    members = asserts = ""
    n = split(inside, parts, ";")
    for (i = 1; i <= n; i++) add_member(parts[i])
    print "struct " (check ? "metal_" : "") struct_name " {\n" members "};"
    if (!check) return
    print "static_assert(sizeof(struct metal_" struct_name ") == sizeof(struct " struct_name \
          "), \"" struct_name "\");"
    print asserts
}

# A declaration at the outermost level: the text before its first brace, and what is inside.
function add_declaration(head, inside) {
    head = trim(head)
    if (head ~ /^enum/ && !check) print head " {" inside "};"
    if (head ~ /^struct [A-Za-z_0-9]+$/ && inside !~ /\(\*/) add_struct(head, inside)
}

BEGIN {
    METAL_TYPE["int8_t"] = "char"; METAL_TYPE["uint8_t"] = "uchar"
    METAL_TYPE["int16_t"] = "short"; METAL_TYPE["uint16_t"] = "ushort"
    METAL_TYPE["int32_t"] = "int"; METAL_TYPE["uint32_t"] = "uint"
    METAL_TYPE["int64_t"] = "long"; METAL_TYPE["uint64_t"] = "ulong"
    if (check) print "#include \"kernels/metal/params.h\"\n\n#include <assert.h>\n#include <stddef.h>"
}

/^#/ { next }
{ text = text " " $0 }

# Takes the text apart at braces and semicolons.
END {
    if (failed) exit 1
    gsub(/[ \t]+/, " ", text)
    head = inside = ""
    depth = 0
    while (match(text, /[{};]/)) {
        c = substr(text, RSTART, 1)
        before = substr(text, 1, RSTART - 1)
        text = substr(text, RSTART + 1)
        if (depth) inside = inside before
        else head = head before
        if (c == "{") {
            if (depth++) inside = inside "{"
        } else if (c == "}") {
            if (--depth) inside = inside "}"
            else if (head ~ /\(/) head = inside = "" # a function ends without a semicolon
        } else if (depth) inside = inside ";"
        else {
            if (inside != "") add_declaration(head, inside)
            head = inside = ""
        }
    }
}
