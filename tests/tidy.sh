#!/bin/sh
# tidy.sh: checks the rules of the house that no compiler checks. Tested by tests/cli/cli_tidy.sh.
#
#   sh tests/tidy.sh [ROOT]
#
# Prints "path:line: rule: what is wrong" per finding; exit code 1 if there is any. The C rules are
# in tests/tidy.awk, circles and calls in tests/graph.py; here are the tables they read, and the
# rules about whole files.
set -u
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-.}" || exit 1

# Exceptions, one "path rule" or "path rule name" per line. This list may only shrink.
exceptions='
tests/emulator/fake_module.c parameters cuLaunchKernel
'

# A row for each room, lowest first, of what it may use of ours: the first path prefix that fits
# decides, the rest of the line is a regular expression of the headers that it may include and of
# the .c files that it may call. Rows share what many rooms may use.
shared="base/|kernels/[^/]*\$"
lists="kernels/(ops|op_command|op_cost|dtypes|kv_page)[.]|kernels/[a-z_]*[.]def\$"
devices="$lists|kernels/device[.]|kernels/cpu/device/(cpu_device|isa)[.]"
below="base/|$devices|planner/(planner[.]h|.*[.]c)\$|runtime/((options|tandem)[.]h|gguf/)"
directions="
base/regex/         ^base/
base/               ^base/[^/]*\$
kernels/cpu/x86/    ^($shared|kernels/cpu/([^/]*\$|x86/))
kernels/cpu/arm/    ^($shared|kernels/cpu/([^/]*\$|arm/))
kernels/cpu/device/ ^($shared|kernels/cpu/)
kernels/cpu/        ^($shared|kernels/cpu/[^/]*\$)
kernels/cuda/       ^($shared|kernels/cuda/)
kernels/metal/      ^($shared|kernels/metal/)
kernels/drivers.c   ^(base/|kernels/)
kernels/            ^($shared)
planner/machine/    ^(base/|$lists|planner/machine/)
planner/shape/      ^(base/|$lists|planner/shape/)
planner/blocks/     ^(base/|$lists|planner/(shape|blocks)/)
planner/plan/       ^(base/|$lists|planner/(machine|shape|blocks|plan)/)
planner/search/     ^(base/|$lists|planner/(machine|shape|blocks|plan|search)/)
planner/            ^planner/
runtime/gguf/       ^(base/|$lists|runtime/gguf/)
runtime/hub/        ^(base/|runtime/(tandem[.]h|hub/))
runtime/jinja/      ^(base/|runtime/jinja/)
runtime/text/       ^(base/|runtime/(gguf|jinja|text)/)
runtime/model/      ^($below|runtime/model/)
runtime/host/       ^($below|runtime/(model|host)/)
runtime/engine/     ^($below|runtime/(text|model|host|engine)/)
runtime/grammar/    ^(base/|runtime/grammar/)
runtime/generate/   ^($below|runtime/(text|model|host|engine|grammar|generate)/)
runtime/library/    ^($below|kernels/drivers[.]|runtime/(text|model|host|engine|grammar|generate|library)/)
runtime/report/     ^($below|runtime/(text|model|host|engine|generate|report)/)
runtime/quantize/   ^($below|kernels/cpu/(cpu|quantize|dequantize|team)[.]|runtime/quantize/)
runtime/cli/        ^($below|runtime/(text|model|host|engine|grammar|generate|report|hub|cli)/)
runtime/measure/    ^($below|runtime/(text|model|host|engine|generate|report|cli|measure)/)
runtime/commands/   .
runtime/tandem.h    ^\$
runtime/            ^($below)
bench/              .
tests/              .
"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
found=$work/found
: >"$found"

# Every file that is in git or could be added to it; without git, every file outside build/.
{ git ls-files -co --exclude-standard 2>/dev/null ||
    find . -type f ! -path './.git/*' ! -path './build/*' ! -path './models/*' | sed 's,^\./,,'; } |
    sort -u | while read -r path; do [ -f "$path" ] && echo "$path"; done >"$work/all"
grep -E '\.([ch]|cuh?|inc)$' "$work/all" >"$work/c"
grep -E '\.def$' "$work/all" >"$work/lists"
grep -E '\.h$' "$work/all" >"$work/headers"
if ! [ -s "$work/c" ]; then echo 'tidy: no C file here' >&2; exit 1; fi

# ---- The rules about lines, functions and names --------------------------------------------------
printf '%s\n' "$directions" >"$work/directions"
cat "$work/c" "$work/lists" |
    xargs env LC_ALL=C awk -v directions="$work/directions" -f "$here/tidy.awk" >>"$found"

# ---- Files ---------------------------------------------------------------------------------------
while read -r path; do
    size=$(wc -c <"$path")
    [ "$size" -le 1048576 ] || echo "$path:1: size: $size bytes, at most 1 MiB belongs in git"
done <"$work/all" >>"$found"

grep -E '(\.([ch]|def|inc|sh|awk|cuh?|metal)|^Makefile|^\.ci/run)$' "$work/all" |
    xargs grep -nE '[[:space:]]+$' /dev/null |
    sed 's/^\([^:]*:[0-9]*\):.*/\1: space: white space at the end of the line/' >>"$found"
grep -E '(\.(sh|py|mk|awk)|^Makefile|^\.ci/run)$' "$work/all" |
    xargs grep -nE '^[[:space:]]*#+ *(Of|Likewise|What|Who)[ ,]' /dev/null |
    sed 's/^\([^:]*:[0-9]*\):\(.*\)/\1: opening: a comment opens with its subject: \2/' >>"$found"
[ ! -f Makefile ] || [ "$(wc -l <Makefile)" -lt 200 ] || echo 'Makefile:200: length: 200 lines' >>"$found"

# ---- Circles of files and rooms, calls against the directions ------------------------------------
python3 "$here/graph.py" "$work/directions" <"$work/all" >>"$found" || exit 1

# ---- Headers: each compiles alone ----------------------------------------------------------------
isa=''
# Those of the other processor's kernels need its compiler, and are left to make test-arm.
other=kernels/cpu/x86/
[ "$(uname -m)" = x86_64 ] && other=kernels/cpu/arm/ && isa="-mavx2 -mfma -mf16c -mavxvnni \
    -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512vbmi \
    -mgfni -mbmi2 -mavx512bf16"
grep -v "^$other" "$work/headers" >"$work/own"
xargs -P 2 -n 1 sh -c "
    gcc -fsyntax-only -w -x c -std=gnu11 -D_GNU_SOURCE -fopenmp $isa -I. \"\$0\" 2>&1 |
        sed -n \"s,^,\$0:1: alone: ,; 1p\"" <"$work/own" >>"$found"

# ---- Formatting: clang-format 14 decides ---------------------------------------------------------
case $(clang-format --version 2>/dev/null) in
*' version 14.'*)
    # A pipe for each of the two: clang-format writes a message word by word.
    xargs -P 2 -n 32 sh -c '
        clang-format --dry-run "$@" 2>&1 | sed -n \
            "s/^\([^:]*\):[0-9]*:[0-9]*: warning: .*clang-format-violations.*/\1:1: format: run make format/p" |
            sort -u' clang-format <"$work/c" >>"$found" ;;
*) echo 'tidy: clang-format 14 is not installed, formatting is not checked (make deps)' >&2 ;;
esac

# ---- What is left without the exceptions ---------------------------------------------------------
printf '%s\n' "$exceptions" | awk '
    NR == FNR { if (NF) except[$1 " " $2 ":" (NF > 2 ? " " $3 ":" : "")] = 1; next }
    {
        path = $1; sub(/:.*/, "", path)
        if (!((path " " $2) in except) && !((path " " $2 " " $3) in except)) print
    }' - "$found" | sort -t : -k 1,1 -k 2,2n >"$work/left"
cat "$work/left"
count=$(wc -l <"$work/left")
[ "$count" -eq 0 ] || { echo "tidy: $count findings" >&2; exit 1; }
echo "tidy: $(wc -l <"$work/c") C and CUDA files are in order"
