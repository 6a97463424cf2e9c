# tidy.awk: the rules about single lines, functions and names, for .c, .h, .cu, .cuh and .inc files,
# and of these the ones about text for .def files, which are lists and no code. Used by tidy.sh.
#
# Reads code as clang-format lays it out: a line at a time, with comments and the insides of string
# literals taken out. That is no parser; it errs on the quiet side. Runs on any POSIX awk.

function report(line, rule, text) { print FILENAME ":" line ": " rule ": " text }

# Does text hold word as a whole identifier?
function has_word(text, word) { return (" " text " ") ~ ("[^A-Za-z0-9_](" word ")[^A-Za-z0-9_]") }
function has_call(text, word) { return (" " text) ~ ("[^A-Za-z0-9_](" word ")[ ]*[(]") }

function trim(text) { gsub(/^[ \t]+|[ \t]+$/, "", text); return text }

# The line without comments; what a string or character literal holds becomes nothing.
function strip(line,    out, i, c, two, quote) {
    if (!in_comment && line !~ /[\/"']/) return line
    out = ""
    quote = ""
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        two = substr(line, i, 2)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; i++ }
        } else if (quote != "") {
            if (c == "\\") i++
            else if (c == quote) { quote = ""; out = out c }
        } else if (two == "//") break
        else if (two == "/*") { in_comment = 1; i++ }
        else {
            if (c == "\"" || c == "'") quote = c
            out = out c
        }
    }
    return out
}

# ---- Per file ------------------------------------------------------------------------------------

function start_file(    i) {
    if (last_file != "") end_file()
    last_file = FILENAME
    in_comment = depth = wrappers = continued = 0
    statement = ""
    guard_test = guard_define = 0
    name = FILENAME
    sub(/.*\//, "", name)
    guard = "TANDEM_" toupper(FILENAME)
    gsub(/[^A-Z0-9]/, "_", guard)
    is_list = name ~ /[.]def$/
    is_cuda = name ~ /[.]cuh?$/
    in_tests = FILENAME ~ /^tests\//
    is_main = name ~ /^main_/
    allowed = ""
    for (i = 1; i <= n_directions && allowed == ""; i++)
        if (index(FILENAME, prefix[i]) == 1) allowed = pattern[i]
    if (index($0, "/* " name ": ") != 1)
        report(1, "header", "the file opens with no comment \"/* " name ": what it does\"")
}

function end_file() {
    if (last_file ~ /[.](h|cuh)$/ && !(guard_test && guard_define))
        print last_file ":1: guard: no include guard " guard
    if (last_line >= 1000) print last_file ":" last_line ": length: " last_line " lines, limit 999"
}

# ---- Per line ------------------------------------------------------------------------------------

function check_include(line,    path) {
    path = line
    sub(/^[^"<]*["<]/, "", path)
    sub(/[">].*/, "", path)
    if (line ~ /</) {
        if (FILENAME ~ /^base\/[^\/]*$/ && path ~ /^(hwloc|omp|jansson|pcre2|utf8proc|jemalloc|cmocka)/)
            report(FNR, "include", "base/ stands on libc alone, not on <" path ">")
        if (path ~ /intrin[.]h$|arm_neon|cpuid/ && FILENAME !~ /^kernels\/cpu\//)
            report(FNR, "include", "<" path "> belongs in kernels/cpu/")
    } else if (path !~ /^(base|kernels|planner|runtime|bench|tests)\//)
        report(FNR, "include", "\"" path "\" is not named from the root")
    else if (allowed == "" || path !~ allowed)
        report(FNR, "include", FILENAME " may not include \"" path "\"")
}

function check_directive(line) {
    if (line ~ /^#[ ]*include[ ]*["<]/) check_include(line)
    if (line ~ /^#[ ]*if[ ]+0/) report(FNR, "dead", "#if 0: git remembers it")
    if (line ~ /^#[ ]*(el)?if/) {
        if (line ~ /HAVE_(CUDA|METAL)/ && FILENAME != "kernels/drivers.c")
            report(FNR, "backend", "this test belongs in kernels/drivers.c")
        if (line ~ /__linux__|__APPLE__|_WIN32/ && FILENAME !~ /^(base\/|planner\/machine\/probe_|tests\/)/)
            report(FNR, "system", "this test belongs in base/ or planner/machine/probe_*.c")
        if (line ~ /__AVX|__SSE|__x86_64|__aarch64|__ARM|HAVE_X86/ &&
            FILENAME !~ /^(kernels\/cpu|bench|tests)\//)
            report(FNR, "isa", "this test belongs in kernels/cpu/")
    }
    if ($0 == "#ifndef " guard) guard_test = 1
    if ($0 == "#define " guard) guard_define = 1
}

function check_text(    columns, low) {
    columns = $0
    gsub(/[\200-\277]/, "", columns)
    if (length(columns) > 100) report(FNR, "columns", length(columns) " columns, limit 100")
    if ($0 ~ /\t/) report(FNR, "tab", "a tab; four spaces indent")
    low = tolower($0)
    if (low ~ /cuda|metal/ && !is_list && FILENAME !~ /^(kernels\/drivers[.]c|kernels\/cuda\/|kernels\/metal\/|bench\/cuda\/|tests\/)/)
        report(FNR, "backend", "a backend is named outside kernels/drivers.c")
    if (has_word($0, "FIXME|XXX|HACK|KLUDGE|WIP") || has_word(low, "for now|legacy|quick fix"))
        report(FNR, "word", "a banned word: " trim($0))
    if (has_word($0, "TODO") && $0 !~ /TODO[ (]*#[0-9]/)
        report(FNR, "word", "a TODO carries an issue number: TODO #12")
    if ($0 ~ /^[ ]*\/\/([^=]* = [^=]*;|[ ]*[A-Za-z0-9_.>-]+[(].*[)];|.*[{}])$/)
        report(FNR, "dead", "code in a comment: git remembers it")
    if ($0 ~ /(\/\/|\/\*|^ \*) *(Of|Likewise|What|Who)([^A-Za-z]|$)/)
        report(FNR, "opening", "a comment opens with its subject: " trim($0))
}

function check_calls(code) {
    if (has_call(code, "malloc|calloc|realloc|free|strdup|strndup|aligned_alloc|posix_memalign|asprintf") &&
        FILENAME !~ /^(base|tests)\//)
        report(FNR, "malloc", "memory comes from base/mem.h")
    if (has_call(code, "exit|_exit|quick_exit|abort") && !is_main && !in_tests &&
        FILENAME != "base/err.c")
        report(FNR, "exit", "only main ends the process")
    if (has_call(code, "getenv|secure_getenv|setenv|putenv") && !is_main &&
        !(in_tests && !has_call(code, "getenv|secure_getenv"))) # tests may set it for a library
        report(FNR, "getenv", "only main reads the environment")
    if (depth > 0 && code ~ /^[ ]+(static|_Thread_local) / && code !~ /const/ && !in_tests)
        report(FNR, "variable", "a static variable keeps state outside every struct")
}

# ---- Per declaration at file level ---------------------------------------------------------------

# The text before an initialiser or the end: mutable unless const, or * const where it points.
function check_variable(text,    declarator) {
    if (in_tests || wrappers || (is_main && text ~ /volatile sig_atomic_t/)) return
    declarator = text
    sub(/[ ]*=.*/, "", declarator)
    sub(/[;{].*/, "", declarator)
    if (declarator ~ /[*]/ ? declarator ~ /[*][ ]*const/ : has_word(declarator, "const|constexpr")) return
    report(start, "variable", trim(declarator) " can change and belongs to no struct")
}

# The parameters of "type name(...)", the last group of parentheses that is no attribute.
function count_parameters(text,    i, c, level, n) {
    sub(/[ ]*__attribute__.*/, "", text)
    sub(/[ ]*const$/, "", text)
    n = 1
    for (i = length(text); i > 0; i--) {
        c = substr(text, i, 1)
        if (c == ")") level++
        if (c == "(" && --level == 0) break
        if (c == "," && level == 1) n++
    }
    function_name = substr(text, 1, i - 1)
    sub(/.*[ *]/, "", function_name)
    return n
}

# Braces around functions: the types of CUDA files have some, extern "C" has declarations.
function wraps(text) {
    return text ~ /^extern ""$/ || (is_cuda && text ~ /(^| )struct [A-Za-z0-9_]+( : .*)?$/)
}

function open_brace(    text, n) {
    text = trim(statement)
    in_function = text ~ /[)]([ ]*(const|__attribute__.*))?$/ && text !~ /[^=!<>]=[^=]/
    if (in_function) {
        n = count_parameters(text)
        if (n > 6) report(start, "parameters", function_name ": " n " parameters, limit 6")
    } else if (text ~ /=$/)
        check_variable(text)
    in_type = text ~ /^(static |const |extern )*(struct|union|enum)( [A-Za-z0-9_]+)?$/
    if (wraps(text)) {
        wrappers++
        depth--
        statement = ""
    }
}

# After the body of a type the statement goes on: what it declares may be a variable.
function close_brace() {
    if (in_function && FNR - start + 1 > 70)
        report(start, "function", function_name ": " (FNR - start + 1) " lines, limit 70")
    in_function = 0
    if (!in_type) statement = ""
}

function end_statement(    text, before) {
    text = trim(statement)
    before = text
    sub(/=.*/, "", before)
    if (text != "" && before !~ /[(]/ && text !~ /^(typedef|extern|static_assert|_Static_assert) / &&
        text !~ /^(struct|union|enum)( [A-Za-z0-9_]+)?$/)
        check_variable(text)
    statement = ""
}

function scan(code,    i, c) {
    if (depth == 0 && trim(code) == "") { statement = ""; return }
    if (depth > 0 && code !~ /[{}]/) return
    for (i = 1; i <= length(code); i++) {
        c = substr(code, i, 1)
        if (c == "{") {
            if (depth++ == 0) open_brace()
        } else if (c == "}") {
            if (depth == 0 && wrappers) { wrappers--; statement = "" }
            else if (--depth == 0) close_brace()
        } else if (depth == 0) {
            if (c == ";") end_statement()
            else {
                if (statement == "") { if (c == " ") continue; start = FNR }
                statement = statement c
            }
        }
    }
    if (depth == 0 && statement != "") statement = statement " "
}

BEGIN {
    while ((getline row < directions) > 0)
        if (split(row, part, " ") == 2) { prefix[++n_directions] = part[1]; pattern[n_directions] = part[2] }
}

FNR == 1 { start_file() }
{
    last_line = FNR
    check_text()
    if (is_list) next
    code = strip($0)
    if (continued || code ~ /^[ ]*#/) {
        if (!continued) check_directive($0)
        continued = $0 ~ /\\$/
        next
    }
    check_calls(code)
    scan(code)
}
END { if (last_file != "") end_file() }
