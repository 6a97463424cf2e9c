# host_kernels.awk: turns the text of kernels into C++ for tests/metal/metal_host.hpp.
#
#   awk -v mode=host|check -f host_kernels.awk TEXT >OUT
#
# TEXT is a .metal file after the preprocessor. Attributes vanish; threadgroup arrays of kernels
# become thread-local ones (a worker of the emulator runs one threadgroup at a time), or static ones
# for the check of address spaces. For the host there follow, for each kernel, a trampoline that
# takes buffers, threadgroup memory and positions from where attributes say, and its row of
# kernel_table.h. An attribute that is not known, or a parameter without one, ends with an error.
# Lines keep their numbers. Runs on any POSIX awk.

function fail(text) {
    print where ": " text >"/dev/stderr"
    failed = 1
    exit 1
}

function trim(text) { gsub(/^[ \t]+|[ \t]+$/, "", text); return text }

# The number of places in text that fit an expression.
function count(text, expression) { return gsub(expression, "x", text) }

# ---- Parameters ----------------------------------------------------------------------------------

# Appends a parameter's argument to call, and its row to rows.
function add_parameter(text,    attribute, name, n, type, pointee, kind) {
    if (!match(text, /\[\[[^\]]*\]\]/)) fail("kernel " kernel_name ": no attribute in" text)
    attribute = substr(text, RSTART + 2, RLENGTH - 4)
    text = trim(substr(text, 1, RSTART - 1))
    gsub(/[ \t]/, "", attribute)
    name = attribute
    sub(/\(.*/, "", name)
    n = attribute
    if (!sub(/^[a-z_]*\(/, "", n) || !sub(/\)$/, "", n)) n = ""
    if (!match(text, /[A-Za-z_][A-Za-z_0-9]*$/)) fail("kernel " kernel_name ": " text)
    type = trim(substr(text, 1, RSTART - 1))
    if (call != "") call = call ", "
    if (name == "buffer" || name == "threadgroup") {
        if (n !~ /^[0-9]+$/ || n + 0 > 30) fail("kernel " kernel_name ": index of " text)
        if (used[name, n]++) fail("kernel " kernel_name ": " name "(" n ") twice")
        add_memory(name, n, type)
    } else {
        if (n != "") fail("kernel " kernel_name ": " name " has no argument")
        call = call position_of(name, type)
    }
}

function add_memory(name, n, type,    kind, pointee, reference) {
    kind = type ~ /(^| )constant / ? "METAL_CONSTANT" : type ~ /(^| )device / ? "METAL_DEVICE" : \
           type ~ /(^| )threadgroup / ? "METAL_THREADGROUP" : ""
    if (kind == "") fail("kernel " kernel_name ": no address space in " type)
    if ((name == "threadgroup") != (kind == "METAL_THREADGROUP"))
        fail("kernel " kernel_name ": " name " of " type)
    pointee = type
    if (!sub(/[ ]*[*&]$/, "", pointee)) fail("kernel " kernel_name ": no pointer: " type)
    gsub(/(^|[ ])(const|device|constant|threadgroup)[ ]/, " ", pointee)
    gsub(/(^|[ ])(const|device|constant|threadgroup)[ ]/, " ", pointee)
    pointee = trim(pointee)
    reference = type ~ /&$/
    if (kind == "METAL_THREADGROUP")
        call = call "host_pointer{(char *)simt_self()->block->shared + bound->threadgroup_offset[" n "]}"
    else
        call = call (reference ? "*(" pointee " *)bound->buffer[" n "]" : "host_pointer{bound->buffer[" n "]}")
    rows = rows "    {" kind ", " n ", alignof(" pointee "), sizeof(" pointee ")},\n"
    n_rows++
}

# The value of a position. All those of one kernel have as many dimensions.
function position_of(name, type,    d) {
    if (name in SCALAR) {
        if (type !~ /^u(int|short)$/) fail("kernel " kernel_name ": " name " is no " type)
        return type "(" SCALAR[name] ")"
    }
    if (!(name in POSITION)) fail("kernel " kernel_name ": unknown attribute " name)
    if (type !~ /^u(int|short)[23]?$/) fail("kernel " kernel_name ": " name " is no " type)
    d = type ~ /[23]$/ ? substr(type, length(type)) + 0 : 1
    if (dimensions && d != dimensions)
        fail("kernel " kernel_name ": positions of " d " and of " dimensions " dimensions")
    dimensions = d
    d = POSITION[name]
    if (dimensions == 1) return type "(" d ".x)"
    return type "(" d ".x, " d ".y" (dimensions == 3 ? ", " d ".z)" : ")")
}

# Reads "name(parameters)" of a definition. Commas separate parameters where no bracket is open.
function parse_kernel(text,    i, c, depth, part) {
    sub(/^.*[^A-Za-z0-9_]?kernel[ \t]+void[ \t]+/, "", text)
    kernel_name = text
    sub(/[ \t]*\(.*/, "", kernel_name)
    sub(/^[^(]*\(/, "", text)
    call = rows = part = ""
    n_rows = dimensions = depth = 0
    split("", used)
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c ~ /[[(<]/) depth++
        if (c ~ /[])>]/) depth--
        if (depth < 0 || (c == "," && !depth)) {
            if (trim(part) != "") add_parameter(part)
            part = ""
            if (depth < 0) break
        } else part = part c
    }
    if (trim(substr(text, i + 1)) !~ /^(\{|$)/) fail("kernel " kernel_name ": " substr(text, i))
    calls[kernel_name] = call
    arguments[kernel_name] = rows
    n_arguments[kernel_name] = n_rows
    threadgroup[kernel_name] = "0"
    if (is_template) templates[kernel_name] = 1
    else add_kernel(kernel_name, kernel_name, kernel_name)
}

# A kernel that the host can ask for: its name there, the function, and the definition it is of.
function add_kernel(host, callee, definition) {
    n_kernels++
    host_names[n_kernels] = host
    callees[n_kernels] = callee
    definitions[n_kernels] = definition
}

# "template [[host_name("a" "b")]] kernel type f<x>;": what may be asked for by the name ab.
function parse_instance(text,    host, callee, definition) {
    if (!match(text, /host_name\([^)]*\)/)) fail("no name: " text)
    host = substr(text, RSTART + 10, RLENGTH - 11)
    gsub(/"[ \t]*"/, "", host)
    gsub(/["]/, "", host)
    callee = text
    sub(/^.*\]\][ \t]*kernel[ \t]+[A-Za-z0-9_]+[ \t]+/, "", callee)
    sub(/[ \t]*;$/, "", callee)
    definition = callee
    sub(/<.*/, "", definition)
    if (!(definition in templates)) fail("no template kernel " definition " before its instance " host)
    add_kernel(host, callee, definition)
}

# ---- Lines ---------------------------------------------------------------------------------------

BEGIN {
    POSITION["threadgroup_position_in_grid"] = "simt_self()->block->index"
    POSITION["thread_position_in_threadgroup"] = "simt_self()->index"
    POSITION["threads_per_threadgroup"] = "simt_self()->block->size"
    POSITION["threadgroups_per_grid"] = "simt_self()->block->grid"
    POSITION["thread_position_in_grid"] = "host_position_in_grid()"
    POSITION["threads_per_grid"] = "host_threads_per_grid()"
    SCALAR["thread_index_in_threadgroup"] = "simt_self()->linear"
    SCALAR["thread_index_in_simdgroup"] = "simt_self()->lane"
    SCALAR["simdgroup_index_in_threadgroup"] = "simt_self()->linear / SIMT_WARP"
    SCALAR["simdgroups_per_threadgroup"] = "host_simdgroups()"
    SCALAR["threads_per_simdgroup"] = "SIMT_WARP"
    if (mode == "host") print "#include \"tests/metal/metal_host.hpp\"\nnamespace {"
}

# Markers of the preprocessor name the file and the number of the next line.
/^# [0-9]+ "/ {
    file = $3
    gsub(/"/, "", file)
    sub(/^\.\//, "", file)
    line = $2 - 1
    print "#line " $2 " \"" file "\""
    next
}
/^#pragma/ { line++; print; next }

{
    line++
    where = file ":" line
    text = $0
    while (match(text, /template[ \t]*\[\[[^;]*;/)) {
        instance = substr(text, RSTART, RLENGTH)
        after = substr(text, RSTART + RLENGTH)
        text = substr(text, 1, RSTART - 1)
        parse_instance(instance)
        if (mode == "check") {
            gsub(/\[\[[^\]]*\]\]/, "", instance)
            sub(/kernel/, "", instance)
            text = text instance
        }
        text = text after
    }
    if (text ~ /^[ \t]*template[ \t]*</) is_template = 1
    if (!in_head && text ~ /(^|[^A-Za-z0-9_])kernel[ \t]/) {
        if (text !~ /(^|[^A-Za-z0-9_])kernel[ \t]+void[ \t]/) fail("a kernel that is not void: " text)
        in_head = 1
        head = ""
        sub(/kernel[ \t]+void/, "static void", text)
        head_text = "kernel void" substr(text, index(text, "static void") + 11)
    } else head_text = text
    if (in_head) {
        head = head " " head_text
        if (head ~ /\{/) {
            in_head = 0
            parse_kernel(head)
            body = depth + 1
            is_template = 0
        }
    }
    gsub(/\[\[[^\]]*\]\]/, "", text)
    if (text ~ /\[\[/) fail("an attribute over two lines: " text)
    if (text ~ /^[ \t]+threadgroup[ \t]+[A-Za-z_0-9]+[ \t]+[A-Za-z_0-9]+[ \t]*(\[[^=]*)?;/) {
        if (!body) fail("a threadgroup variable outside a kernel: " trim(text))
        size = trim(text)
        sub(/^threadgroup[ \t]+/, "", size)
        sub(/;.*$/, "", size)
        if (size ~ /,/) fail("two threadgroup variables in one line: " text)
        dims = ""
        if (match(size, /\[.*$/)) { dims = substr(size, RSTART); size = substr(size, 1, RSTART - 1) }
        sub(/[ \t]+[A-Za-z_0-9]+[ \t]*$/, "", size)
        threadgroup[kernel_name] = threadgroup[kernel_name] " + (sizeof(" size dims ") + 15) / 16 * 16"
        sub(/threadgroup/, mode == "host" ? "static thread_local" : "static threadgroup", text)
    }
    else if (text ~ /^[ \t]+threadgroup[ \t]/ &&
             text !~ /^[ \t]+threadgroup[ \t]+(const[ \t]+)?[A-Za-z_0-9]+(<[^>]*>)?[ \t]*[*&]/)
        fail("neither a pointer nor a plain array: " trim(text))
    depth += count(text, "[{]") - count(text, "[}]")
    if (body && depth < body && !in_head) body = 0
    if (text ~ /[;}]/ && !depth && !in_head) is_template = 0
    if (mode == "check") {
        while (match(text, /(^|[^A-Za-z0-9_])(bool|char|uchar|short|ushort|int|uint|long|ulong|half|float)[234]\(/)) {
            at = substr(text, RSTART, 1) ~ /[a-z]/ ? RSTART : RSTART + 1
            text = substr(text, 1, at - 1) "make_" substr(text, at)
        }
    }
    print text
}

# ---- Trampolines ---------------------------------------------------------------------------------

END {
    if (failed) exit 1
    if (mode != "host") exit 0
    print "#line 1 \"trampolines\""
    for (i = 1; i <= n_kernels; i++) {
        d = definitions[i]
        h = host_names[i]
        print "static_assert(" threadgroup[d] " <= 32768, \"threadgroup memory of " h "\");"
        print "void run_" h "(const void *params) {"
        print "    const metal_bound *bound = (const metal_bound *)params;"
        print "    (void)bound, " callees[i] "(" calls[d] ");"
        print "}"
        print "const metal_argument arguments_" h "[] = {\n" arguments[d] "    {METAL_DEVICE, 0, 0, 0}};"
    }
    print "} // namespace"
    for (i = 1; i <= n_kernels; i++) {
        d = definitions[i]
        h = host_names[i]
        print "extern \"C\" const metal_function metal_function_" h ";"
        print "const metal_function metal_function_" h " = {\"" h "\", run_" h ", arguments_" h ", " \
              n_arguments[d] ", " threadgroup[d] ", 0};"
    }
}
