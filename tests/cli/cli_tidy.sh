#!/bin/sh
# cli_tidy.sh: shows that tests/tidy.sh can fail. A copy of base/ is in order; then one violation of
# each kind is planted in it, and each must be reported at its own file. Last, the tree itself.
set -u
tidy=$(pwd)/tests/tidy.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
copy=$work/tree expected=$work/expected findings=$work/findings
mkdir "$copy"
: >"$expected"

check() { # name, exit code of the test before it
    if [ "$2" -eq 0 ]; then echo "ok $1"; else echo "not ok $1"; fi
}

cp -r base .clang-format "$copy"
git -C "$copy" init -q
sh "$tidy" "$copy" >"$findings" 2>&1
check tidy_accepts_a_clean_tree $?

# plant PATH: the text of standard input under a proper header comment.
plant() {
    mkdir -p "$copy/$(dirname "$1")"
    { echo "/* $(basename "$1"): planted. */"; cat; } >"$copy/$1"
}
# violate RULE PATH [TEXT]: plants standard input; RULE must be reported there, holding TEXT.
violate() {
    plant "$2"
    echo "$1|$2|${3:-}" >>"$expected"
}

violate include base/a.c 'may not include' <<'X'
#include "kernels/ops.h"
X
violate include base/b.c 'libc alone' <<'X'
#include <hwloc.h>
X
violate include kernels/a.c <<'X'
#include "planner/planner.h"
X
violate include kernels/cpu/a.c <<'X'
#include "kernels/cuda/cuda.h"
X
violate include planner/a.c <<'X'
#include "kernels/device.h"
X
violate include planner/shape/a.c <<'X'
#include "planner/planner.h"
X
violate include runtime/a.c <<'X'
#include "planner/solver.h"
X
violate include runtime/text/a.c <<'X'
#include "runtime/model/model.h"
X
violate include runtime/b.c 'from the root' <<'X'
#include "b.h"
X
violate include runtime/c.c immintrin <<'X'
#include <immintrin.h>
X
violate dead runtime/d.c <<'X'
#if 0
int d(void);
#endif
X
violate dead runtime/e.c <<'X'
// call_me(1);
X
violate opening runtime/opens_a.c 'Of a unit' <<'X'
// Of a unit on a device.
X
violate opening runtime/opens_b.c Likewise <<'X'
int rows(void); // Likewise for rows.
X
violate opening runtime/opens_c.c 'What it does' <<'X'
/* Adds two numbers.
 * What it does not check is overflow. */
X
violate opening kernels/opens.def 'What a row' <<'X'
/* What a row says. */
X
printf '# %s it runs is planted.\n' What | violate opening tests/opens.sh 'What it runs'
printf 'all:\n\t# %s here.\n' Likewise | violate opening tests/opens.mk Likewise
violate backend runtime/f.c 'belongs in' <<'X'
#if HAVE_CUDA
#endif
X
violate backend runtime/g.c named <<'X'
int g(void) { return sizeof "metal"; }
X
violate system runtime/h.c <<'X'
#ifdef __linux__
#endif
X
violate isa runtime/i.c <<'X'
#ifdef __AVX2__
#endif
X
violate columns runtime/j.c '101 columns' <<X
// $(printf '%098d' 0)
X
violate tab runtime/k.c <<X
int k(void) {$(printf '\t')return 0; }
X
violate word runtime/l.c <<'X'
// TODO: someday.
X
violate word runtime/m.c <<'X'
// Good enough for now.
X
violate word runtime/n.c <<'X'
// FIXME
X
violate malloc runtime/o.c <<'X'
void *o(void) { return malloc(1); }
X
violate exit runtime/p.c <<'X'
void p(void) { exit(1); }
X
violate getenv runtime/q.c <<'X'
char *q(void) { return getenv("HOME"); }
X
violate variable runtime/r.c <<'X'
static int counter;
X
violate variable runtime/s.c <<'X'
static const char *name = "x";
X
violate variable runtime/t.c <<'X'
int shared = 1;
X
violate variable runtime/u.c <<'X'
int u(void) {
    static int calls;
    return ++calls;
}
X
violate variable runtime/v.c <<'X'
static struct {
    int calls;
} state;
X
violate parameters runtime/w.c '7 parameters' <<'X'
int w(int a, int b, int c, int d, int e, int f, void (*g)(int, int)) { return a + b + c + d + e + f; }
X
violate guard runtime/x.h <<'X'
int x(void);
X
# CUDA files, includes and lists.
violate parameters kernels/cuda/a.cu 'a: 7 parameters' <<'X'
KERNEL void __launch_bounds__(32) a(int b, int c, int d, int e, int f, int g, int h) { *b = c; }
X
violate parameters kernels/cuda/b.cu 'b: 7 parameters' <<'X'
template <int DIM> struct b_base : c_base<DIM> {
    int first, last;
    DEVICE_FN int b(int c, int d, int e, int f, int g, int h, int i) const { return c; }
};
X
{ echo 'template <int N>'; echo 'DEVICE_FN void c(int *n) {'; seq 68 | sed 's/.*/    work();/'; echo '}'; } |
    violate function kernels/cuda/c.cu 'c: 71 lines'
{ echo 'struct d_type {'; echo '    int n;'; echo '    void d() {'; seq 69 | sed 's/.*/        work();/'
  echo '    }'; echo '};'; } | violate function kernels/cuda/d.cu 'd: 71 lines'
violate variable kernels/cuda/e.cu <<'X'
__device__ int counter;
X
violate columns kernels/cuda/f.cu '101 columns' <<X
// $(printf '%098d' 0)
X
violate word kernels/cuda/g.cuh <<'X'
// FIXME
X
violate guard kernels/cuda/h.cuh <<'X'
DEVICE_FN int h();
X
violate include kernels/cuda/i.cu 'may not include' <<'X'
#include "runtime/options.h"
X
violate dead kernels/cuda/j.cuh <<'X'
#if 0
#endif
X
violate space kernels/cuda/k.cuh <<X
int k(); $(printf ' ')
X
echo 'int l();' >"$copy/kernels/cuda/l.cu"
echo 'header|kernels/cuda/l.cu|' >>"$expected"
violate parameters kernels/cpu/a.inc '7 parameters' <<'X'
INLINE int a(int b, int c, int d, int e, int f, int g, int h) { return b; }
X
violate malloc kernels/cpu/b.inc <<'X'
INLINE void *b(void) { return malloc(1); }
X
violate columns kernels/a.def '101 columns' <<X
A($(printf '%098d' 0))
X
violate word kernels/b.def <<'X'
// TODO: another one.
X
violate space kernels/c.def <<X
C(1) $(printf ' ')
X
echo 'D(1)' >"$copy/kernels/d.def"
echo 'header|kernels/d.def|' >>"$expected"
# Functions inside extern "C" are looked at too.
violate parameters runtime/ee.h '7 parameters' <<'X'
#ifndef TANDEM_RUNTIME_EE_H
#define TANDEM_RUNTIME_EE_H
#ifdef __cplusplus
extern "C" {
#endif
static inline int ee(int a, int b, int c, int d, int e, int f, int g) { return a; }
#ifdef __cplusplus
}
#endif
#endif
X
violate alone runtime/y.h <<'X'
#ifndef TANDEM_RUNTIME_Y_H
#define TANDEM_RUNTIME_Y_H
struct unknown y(void);
uint64_t z(void);
#endif
X
violate space runtime/z.c <<X
int z(void); $(printf ' ')
X
{ echo 'int long_one(void) {'; seq 69 | sed 's/.*/    work();/'; echo '}'; } |
    violate function runtime/aa.c 'long_one: 71 lines'
seq 1000 | sed 's/.*/int a(void);/' | violate length runtime/bb.c '1001 lines'
mkdir -p "$copy/models"
head -c 1048577 /dev/zero >"$copy/big.bin"
echo 'size|big.bin|1048577 bytes' >>"$expected"
echo 'int c;' >"$copy/runtime/cc.c"
echo 'header|runtime/cc.c|' >>"$expected"
if clang-format --version 2>/dev/null | grep -q ' version 14\.'; then
    violate format runtime/dd.c <<'X'
int   dd(void);
X
    violate format kernels/cuda/m.cuh <<'X'
int   m();
X
    violate format kernels/cpu/c.inc <<'X'
int   c(void);
X
fi
# Circles, each reported at its first file: by includes, by calls alone, of rooms but of no files.
violate circle runtime/cli/a.h '2 files: runtime/cli/a.h:2 includes runtime/cli/b.h; runtime/cli/b.h:2' <<'X'
#include "runtime/cli/b.h"
X
plant runtime/cli/b.h <<'X'
#include "runtime/cli/a.h"
X
plant runtime/text/work.h <<'X'
int first_work(int n);
enum status *second_work(int (*n)(int),
                         int m);
extern const int FIRST_WORK[2];
X
violate circle runtime/text/first.c '2 files: runtime/text/first.c:5 calls second_work of' <<'X'
#include "runtime/text/work.h"
const int FIRST_WORK[2] = {1, 2};
int first_work(int n) {
    return n ? *second_work(first_work, 1) : 0;
}
X
plant runtime/text/second.c <<'X'
#include "runtime/text/work.h"
enum status *second_work(int (*n)(int),
                         int m) {
    return n(FIRST_WORK[m]);
}
X
violate circle runtime/host/a.c '2 rooms: runtime/host/a.c:2 includes runtime/measure/a.h; runtime/measure/b.c:2' <<'X'
#include "runtime/measure/a.h"
X
plant runtime/measure/b.c <<'X'
#include "runtime/host/b.h"
X
plant runtime/measure/a.h </dev/null
plant runtime/host/b.h </dev/null
# A call upwards that no include shows.
violate call runtime/gguf/a.c 'calls engine_work of runtime/engine/a.c' <<'X'
int engine_work(void);
static int (*const WORK)(void) = engine_work;
X
plant runtime/engine/a.c <<'X'
int engine_work(void) { return 1; }
X
# Lines that look alike and are allowed: no finding may name these files.
plant runtime/gguf/fine.c <<'X'
int engine_work(void);
struct engine_work {
    int engine_work; // engine_work()
};
int fine_work(struct engine_work *w) {
    struct engine_work v = *w; // engine_work() and "
    return sizeof "engine_work()" + w->engine_work + v.engine_work;
}
X
plant runtime/text/fine.c <<'X'
#include "runtime/text/work.h"
int fine_text(void) { return first_work(1); }
X
plant runtime/engine/fine.c <<'X'
static int first_work(int n) { return n; }
int fine_engine(void) { return first_work(1); }
X
plant kernels/drivers.c <<'X'
#include "kernels/cuda/back.h"
X
plant kernels/cuda/back.h <<'X'
#include "kernels/drivers.h"
X
plant kernels/drivers.h </dev/null
plant runtime/fine.c <<'X'
#include "base/err.h"

// TODO #12: a number is enough. Nothing is freed here; free() in a comment is no call.
static const int TABLE[] = {1, 2};
static const char *const NAMES[] = {"exit(1)", "/* \" */"};
static const struct { int a; } PAIRS[] = {{1}, {2}};
static const struct {
    int a;
    const char *b;
} TRIPLES[] = {{1, "a"}};
enum { LIMIT = 3 };
struct view {
    int (*read)(int, int);
};

static int at_limit(int a, int b, int c, int d, int e, int (*f)(int, int)) {
    static const int STEP = 2;
    char brace = '{';
    int sum = a + b + c + d + e + f(1, 2);
    return sum + STEP + brace + TABLE[0] + PAIRS[0].a + TRIPLES[0].a + LIMIT;
}

int fine(struct view v) { return at_limit(1, 2, 3, 4, !NAMES[0], v.read); }
X
plant kernels/cuda/fine.cu <<'X'
#include "kernels/cuda/fine.cuh"

static constexpr int SIDE = 32;
struct fine_block {
    int first, last;
    static constexpr int BYTES = 32;
    DEVICE_FN int fine(int a, int b, int c, int d, int e, int f) const { return a + SIDE; }
};
KERNEL void __launch_bounds__(32) fine(int a, int b, int c, int d, int e, int f) { work(a); }
X
plant kernels/cuda/fine.cuh <<'X'
#ifndef TANDEM_KERNELS_CUDA_FINE_CUH
#define TANDEM_KERNELS_CUDA_FINE_CUH
#endif
X
plant kernels/fine.def <<'X'
FINE("CUDA", static int counter)
X
{ echo 'int seventy(void) {'; seq 68 | sed 's/.*/    work();/'; echo '}'; } | plant runtime/limit.c

sh "$tidy" "$copy" >"$findings" 2>&1
code=$?
[ "$code" -eq 1 ]
check tidy_fails_on_findings $?
number=0
while IFS='|' read -r rule path text; do
    number=$((number + 1))
    grep "^$path:[0-9]*: $rule: " "$findings" | grep -qF -e "$text"
    check "tidy_finds_${rule}_$number" $?
done <"$expected"
! grep -E '^((runtime|kernels)/(([a-z]+/)?fine\.|limit\.c)|kernels/drivers\.c|base/(err|mem))' "$findings"
check tidy_is_silent_on_what_is_allowed $?

tree=$(sh "$tidy" . 2>&1)
check the_tree_is_tidy $?
case $tree in *findings*) echo "$tree" ;; esac
