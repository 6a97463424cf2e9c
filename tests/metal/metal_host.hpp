/* metal_host.hpp: the language of the .metal files for the host's compilers.
 *
 * Read in two ways. On the host a thread of the kernel is a fiber of tests/emulator/simt.c and a
 * simdgroup one of its warps; address spaces are empty words. With METAL_CHECK, clang reads the
 * kernels without making code: address spaces are attributes then, so that no pointer leaves its
 * space, and vectors are clang's own, because only those can be read in every space. What is not
 * here may not be used; where Metal allows more than one meaning, the strictest one holds: all
 * lanes of a simdgroup take part in each of its functions, all threads in each barrier. Owns
 * nothing. Includes nothing of the C++ library, whose names Metal has for itself. Tested by
 * tests/kernels/test_metal_kernels.c and tests/cli/cli_metal_dialect.sh.
 */
#ifndef TANDEM_TESTS_METAL_METAL_HOST_HPP
#define TANDEM_TESTS_METAL_METAL_HOST_HPP

#ifndef METAL_CHECK
#include "tests/emulator/simt.h"
#include "tests/metal/kernel_table.h"
#endif

#define HOST_FN static inline __attribute__((unused))

namespace metal {

typedef signed char host_int8;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;

template <class A, class B> struct is_same {
    enum { value = 0 };
};
template <class A> struct is_same<A, A> {
    enum { value = 1 };
};
template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };

// ---- Halves ------------------------------------------------------------------------------------

#ifdef METAL_CHECK
typedef _Float16 half;
#else
struct half {
    ushort bits;
    half() = default;
    half(float value) {
        float out;
        __asm__("vcvtps2ph $0, %1, %0" : "=x"(out) : "x"(value));
        __builtin_memcpy(&bits, &out, sizeof bits);
    }
    operator float() const {
        float in = 0, out;
        __builtin_memcpy(&in, &bits, sizeof bits);
        __asm__("vcvtph2ps %1, %0" : "=x"(out) : "x"(in));
        return out;
    }
    half &operator+=(float v) { return *this = half(float(*this) + v); }
    half &operator-=(float v) { return *this = half(float(*this) - v); }
    half &operator*=(float v) { return *this = half(float(*this) * v); }
};
// Of two halves; a half and a float are two floats, as in Metal.
#define HALF_OPERATOR(op)                                                                      \
    template <class A, class B>                                                                \
    HOST_FN typename enable_if<is_same<A, half>::value && is_same<B, half>::value, half>::type \
    operator op(A a, B b) {                                                                    \
        return half(float(a) op float(b));                                                     \
    }
HALF_OPERATOR(+)
HALF_OPERATOR(-)
HALF_OPERATOR(*)
HALF_OPERATOR(/)
#endif

template <class T> struct is_scalar {
    enum { value = 0 };
};
#define HOST_SCALAR(T)                \
    template <> struct is_scalar<T> { \
        enum { value = 1 };           \
    };
HOST_SCALAR(bool)
HOST_SCALAR(char)
HOST_SCALAR(signed char)
HOST_SCALAR(uchar)
HOST_SCALAR(short)
HOST_SCALAR(ushort)
HOST_SCALAR(int)
HOST_SCALAR(uint)
HOST_SCALAR(long)
HOST_SCALAR(ulong)
HOST_SCALAR(half)
HOST_SCALAR(float)

// ---- Vectors -----------------------------------------------------------------------------------

#ifdef METAL_CHECK

// What float4(...) becomes; the other reading checks its arguments.
#define HOST_VECTORS(T)                                                     \
    typedef T T##2 __attribute__((ext_vector_type(2)));                     \
    typedef T T##3 __attribute__((ext_vector_type(3)));                     \
    typedef T T##4 __attribute__((ext_vector_type(4)));                     \
    template <class... A> HOST_FN T##2 make_##T##2(A...) { return T##2(); } \
    template <class... A> HOST_FN T##3 make_##T##3(A...) { return T##3(); } \
    template <class... A> HOST_FN T##4 make_##T##4(A...) { return T##4(); }
template <class T, int N> using vec = T __attribute__((ext_vector_type(N)));

#else

template <class T, int N> struct vec;

// Some elements of a vector of N.
template <class T, int N, int... I> struct swizzle {
    T e[N == 3 ? 4 : N];
    operator vec<T, sizeof...(I)>() const { return vec<T, sizeof...(I)>(e[I]...); }
    swizzle &operator=(const vec<T, sizeof...(I)> &v) {
        int i = 0;
        ((e[I] = v.e[i++]), ...);
        return *this;
    }
};

#define VECTOR_MEMBERS(N)                                                                \
    vec() = default;                                                                     \
    vec(const vec &) = default;                                                          \
    vec &operator=(const vec &) = default;                                               \
    template <class U> explicit vec(const vec<U, N> &v) {                                \
        for (int i = 0; i < N; i++) e[i] = T(v.e[i]);                                    \
    }                                                                                    \
    template <class S, class = typename enable_if<is_scalar<S>::value>::type> vec(S v) { \
        for (int i = 0; i < N; i++) e[i] = T(v);                                         \
    }                                                                                    \
    T &operator[](int i) { return e[i]; }                                                \
    const T &operator[](int i) const { return e[i]; }

template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
    union {
        struct {
            T x, y;
        };
        T e[2];
        swizzle<T, 2, 0, 1> xy;
        swizzle<T, 2, 1, 0> yx;
        swizzle<T, 2, 0, 0> xx;
        swizzle<T, 2, 1, 1> yy;
    };
    VECTOR_MEMBERS(2)
    vec(T a, T b) : x(a), y(b) {}
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> {
    union {
        struct {
            T x, y, z;
        };
        T e[4];
        swizzle<T, 3, 0, 1> xy;
        swizzle<T, 3, 1, 2> yz;
        swizzle<T, 3, 0, 1, 2> xyz;
    };
    VECTOR_MEMBERS(3)
    vec(T a, T b, T c) : x(a), y(b), z(c) {}
    vec(const vec<T, 2> &a, T c) : x(a.x), y(a.y), z(c) {}
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
    union {
        struct {
            T x, y, z, w;
        };
        T e[4];
        swizzle<T, 4, 0, 1> xy;
        swizzle<T, 4, 2, 3> zw;
        swizzle<T, 4, 0, 2> xz;
        swizzle<T, 4, 1, 3> yw;
        swizzle<T, 4, 0, 1, 2> xyz;
        swizzle<T, 4, 0, 1, 2, 3> xyzw;
        swizzle<T, 4, 3, 2, 1, 0> wzyx;
    };
    VECTOR_MEMBERS(4)
    vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
    vec(const vec<T, 2> &a, const vec<T, 2> &b) : x(a.x), y(a.y), z(b.x), w(b.y) {}
    vec(const vec<T, 3> &a, T d) : x(a.x), y(a.y), z(a.z), w(d) {}
};

#define SCALAR_ONLY class = typename enable_if<is_scalar<S>::value>::type
#define VECTOR_OPERATOR(op)                                                 \
    template <class T, int N>                                               \
    HOST_FN vec<T, N> operator op(const vec<T, N> &a, const vec<T, N> &b) { \
        vec<T, N> r;                                                        \
        for (int i = 0; i < N; i++) r.e[i] = T(a.e[i] op b.e[i]);           \
        return r;                                                           \
    }                                                                       \
    template <class T, int N, class S, SCALAR_ONLY>                         \
    HOST_FN vec<T, N> operator op(const vec<T, N> &a, S b) {                \
        return a op vec<T, N>(b);                                           \
    }                                                                       \
    template <class T, int N, class S, SCALAR_ONLY>                         \
    HOST_FN vec<T, N> operator op(S a, const vec<T, N> &b) {                \
        return vec<T, N>(a) op b;                                           \
    }                                                                       \
    template <class T, int N>                                               \
    HOST_FN vec<T, N> &operator op##=(vec<T, N> &a, const vec<T, N> &b) {   \
        return a = a op b;                                                  \
    }                                                                       \
    template <class T, int N, class S, SCALAR_ONLY>                         \
    HOST_FN vec<T, N> &operator op##=(vec<T, N> &a, S b) {                  \
        return a = a op vec<T, N>(b);                                       \
    }
VECTOR_OPERATOR(+)
VECTOR_OPERATOR(-)
VECTOR_OPERATOR(*)
VECTOR_OPERATOR(/)
VECTOR_OPERATOR(%)
VECTOR_OPERATOR(&)
VECTOR_OPERATOR(|)
VECTOR_OPERATOR(^)
VECTOR_OPERATOR(<<)
VECTOR_OPERATOR(>>)
template <class T, int N> HOST_FN vec<T, N> operator-(const vec<T, N> &a) {
    vec<T, N> r;
    for (int i = 0; i < N; i++) r.e[i] = T(-a.e[i]);
    return r;
}
template <class T, int N> HOST_FN vec<T, N> operator~(const vec<T, N> &a) {
    vec<T, N> r;
    for (int i = 0; i < N; i++) r.e[i] = T(~a.e[i]);
    return r;
}
#define VECTOR_COMPARISON(op)                                                  \
    template <class T, int N>                                                  \
    HOST_FN vec<bool, N> operator op(const vec<T, N> &a, const vec<T, N> &b) { \
        vec<bool, N> r;                                                        \
        for (int i = 0; i < N; i++) r.e[i] = a.e[i] op b.e[i];                 \
        return r;                                                              \
    }                                                                          \
    template <class T, int N, class S, SCALAR_ONLY>                            \
    HOST_FN vec<bool, N> operator op(const vec<T, N> &a, S b) {                \
        return a op vec<T, N>(b);                                              \
    }
VECTOR_COMPARISON(<)
VECTOR_COMPARISON(>)
VECTOR_COMPARISON(<=)
VECTOR_COMPARISON(>=)
VECTOR_COMPARISON(==)
VECTOR_COMPARISON(!=)

#define HOST_VECTORS(T)     \
    typedef vec<T, 2> T##2; \
    typedef vec<T, 3> T##3; \
    typedef vec<T, 4> T##4;

#endif

#ifndef METAL_CHECK
HOST_VECTORS(bool)
#endif
HOST_VECTORS(uchar)
HOST_VECTORS(short)
HOST_VECTORS(ushort)
HOST_VECTORS(int)
HOST_VECTORS(uint)
HOST_VECTORS(long)
HOST_VECTORS(ulong)
HOST_VECTORS(half)
HOST_VECTORS(float)
// char is signed in Metal.
#ifdef METAL_CHECK
HOST_VECTORS(char)
#else
typedef vec<signed char, 2> char2;
typedef vec<signed char, 3> char3;
typedef vec<signed char, 4> char4;
static_assert((char)-1 < 0, "char is signed, as in Metal");
#endif

template <class To, class From> HOST_FN To as_type(From from) {
    static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
    To to;
    __builtin_memcpy((void *)&to, (const void *)&from, sizeof to);
    return to;
}

// ---- Arithmetic --------------------------------------------------------------------------------

#define HOST_UNARY(name, expression)                               \
    HOST_FN float name(float a) { return expression; }             \
    template <int N> HOST_FN vec<float, N> name(vec<float, N> v) { \
        vec<float, N> r;                                           \
        for (int i = 0; i < N; i++) {                              \
            float a = v[i];                                        \
            r[i] = expression;                                     \
        }                                                          \
        return r;                                                  \
    }
#define HOST_FUNCTIONS                                                   \
    HOST_UNARY(exp, __builtin_expf(a))                                   \
    HOST_UNARY(exp2, __builtin_exp2f(a))                                 \
    HOST_UNARY(log, __builtin_logf(a))                                   \
    HOST_UNARY(log2, __builtin_log2f(a))                                 \
    HOST_UNARY(sqrt, __builtin_sqrtf(a))                                 \
    HOST_UNARY(rsqrt, 1.0F / __builtin_sqrtf(a))                         \
    HOST_UNARY(sin, __builtin_sinf(a))                                   \
    HOST_UNARY(cos, __builtin_cosf(a))                                   \
    HOST_UNARY(tanh, __builtin_tanhf(a))                                 \
    HOST_FN float pow(float a, float b) { return __builtin_powf(a, b); } \
    HOST_FN float divide(float a, float b) { return a / b; }
HOST_FUNCTIONS
namespace precise {
HOST_FUNCTIONS
}
namespace fast {
HOST_FUNCTIONS
}
HOST_UNARY(fabs, __builtin_fabsf(a))
HOST_UNARY(floor, __builtin_floorf(a))
HOST_UNARY(ceil, __builtin_ceilf(a))
HOST_UNARY(trunc, __builtin_truncf(a))
HOST_UNARY(rint, __builtin_rintf(a))
HOST_UNARY(round, __builtin_roundf(a))
HOST_FN float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HOST_FN float fmod(float a, float b) { return __builtin_fmodf(a, b); }
HOST_FN float ldexp(float a, int b) { return __builtin_ldexpf(a, b); }
HOST_FN float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
HOST_FN float fmin(float a, float b) { return __builtin_fminf(a, b); }
HOST_FN bool isnan(float a) { return __builtin_isnan(a); }
HOST_FN bool isinf(float a) { return __builtin_isinf(a); }
HOST_FN bool isfinite(float a) { return __builtin_isfinite(a); }
HOST_FN bool signbit(float a) { return __builtin_signbit(a); }
template <int N> HOST_FN vec<float, N> fma(vec<float, N> a, vec<float, N> b, vec<float, N> c) {
    vec<float, N> r;
    for (int i = 0; i < N; i++) r[i] = fma(float(a[i]), float(b[i]), float(c[i]));
    return r;
}
template <class T, int N> HOST_FN T dot(vec<T, N> a, vec<T, N> b) {
    T sum = a[0] * b[0];
    for (int i = 1; i < N; i++) sum += a[i] * b[i];
    return sum;
}

// As in Metal, both arguments have one type; floats give the one that is no NaN.
#define HOST_ORDER(T)                                 \
    HOST_FN T min(T a, T b) { return b < a ? b : a; } \
    HOST_FN T max(T a, T b) { return a < b ? b : a; } \
    HOST_FN T clamp(T a, T low, T high) { return min(max(a, low), high); }
HOST_ORDER(int)
HOST_ORDER(uint)
HOST_ORDER(short)
HOST_ORDER(ushort)
HOST_ORDER(long)
HOST_ORDER(ulong)
HOST_FN float min(float a, float b) { return __builtin_fminf(a, b); }
HOST_FN float max(float a, float b) { return __builtin_fmaxf(a, b); }
HOST_FN float clamp(float a, float low, float high) { return min(max(a, low), high); }
HOST_FN int abs(int a) { return a < 0 ? -a : a; }
HOST_FN uint popcount(uint a) { return (uint)__builtin_popcount(a); }
HOST_FN uint clz(uint a) { return a ? (uint)__builtin_clz(a) : 32; }
HOST_FN uint ctz(uint a) { return a ? (uint)__builtin_ctz(a) : 32; }
template <class T> HOST_FN T select(T a, T b, bool second) { return second ? b : a; }
HOST_FN float mix(float a, float b, float t) { return a + (b - a) * t; }
HOST_FN float sign(float a) { return a > 0 ? 1 : a < 0 ? -1 : 0; }
HOST_FN uint extract_bits(uint a, uint offset, uint n) {
    return n == 0 ? 0 : n == 32 ? a : a >> offset & ((1U << n) - 1);
}

// ---- Order among threads -----------------------------------------------------------------------

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
HOST_FN constexpr mem_flags operator|(mem_flags a, mem_flags b) {
    return mem_flags((int)a | (int)b);
}

enum memory_order { memory_order_relaxed };
struct atomic_uint {
    uint value;
};
struct atomic_int {
    int value;
};

#ifdef METAL_CHECK

#define HOST_HERE
#define HOST_COMMA_HERE
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
template <class T> T simd_sum(T);
template <class T> T simd_max(T);
template <class T> T simd_min(T);
template <class T> T simd_or(T);
template <class T> T simd_prefix_exclusive_sum(T);
template <class T> T simd_prefix_inclusive_sum(T);
template <class T> T simd_shuffle(T, ushort);
template <class T> T simd_shuffle_xor(T, ushort);
template <class T> T simd_shuffle_down(T, ushort);
template <class T> T simd_shuffle_up(T, ushort);
template <class T> T simd_broadcast(T, ushort);
template <class T> T simd_broadcast_first(T);
bool simd_any(bool);
bool simd_all(bool);
struct simd_vote {
    typedef ulong vote_t;
    explicit operator vote_t() const;
};
simd_vote simd_ballot(bool);
#define device      __attribute__((address_space(1)))
#define threadgroup __attribute__((address_space(3)))
#define ATOMIC_SPACE(space)                                                  \
    uint atomic_load_explicit(const space atomic_uint *, memory_order);      \
    int atomic_load_explicit(const space atomic_int *, memory_order);        \
    void atomic_store_explicit(space atomic_uint *, uint, memory_order);     \
    void atomic_store_explicit(space atomic_int *, int, memory_order);       \
    uint atomic_fetch_add_explicit(space atomic_uint *, uint, memory_order); \
    int atomic_fetch_add_explicit(space atomic_int *, int, memory_order);    \
    uint atomic_fetch_max_explicit(space atomic_uint *, uint, memory_order); \
    int atomic_fetch_max_explicit(space atomic_int *, int, memory_order);    \
    uint atomic_fetch_or_explicit(space atomic_uint *, uint, memory_order);
ATOMIC_SPACE(device)
ATOMIC_SPACE(threadgroup)

template <class T, int ROWS, int COLUMNS> struct simdgroup_matrix {};
#define MATRIX_SPACE(space)                                                                  \
    template <class T>                                                                       \
    void simdgroup_load(simdgroup_matrix<T, 8, 8> &, const space T *, ulong = 8,             \
                        ulong2 = ulong2(), bool = false);                                    \
    template <class T>                                                                       \
    void simdgroup_store(simdgroup_matrix<T, 8, 8>, space T *, ulong = 8, ulong2 = ulong2(), \
                         bool = false);
MATRIX_SPACE(device)
MATRIX_SPACE(threadgroup)
template <class A, class B>
void simdgroup_multiply_accumulate(simdgroup_matrix<float, 8, 8> &, simdgroup_matrix<A, 8, 8>,
                                   simdgroup_matrix<B, 8, 8>, simdgroup_matrix<float, 8, 8>);
#undef device
#undef threadgroup

#else

// The line of the call: only a default argument that is nothing but these knows it.
#define HOST_HERE       const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define HOST_COMMA_HERE , HOST_HERE
#define HOST_PLACE      (simt_place{file, line})

HOST_FN void threadgroup_barrier(mem_flags, HOST_HERE) { simt_barrier(HOST_PLACE); }
HOST_FN void simdgroup_barrier(mem_flags, HOST_HERE) {
    simt_exchange(~0U, nullptr, 0, nullptr, HOST_PLACE);
}

template <class T> HOST_FN uint64_t host_word(T v) {
    static_assert(sizeof(T) <= 8, "lanes exchange words of 64 bits");
    uint64_t word = 0;
    __builtin_memcpy(&word, (const void *)&v, sizeof v);
    return word;
}
template <class T> HOST_FN T host_value(uint64_t word) {
    T v;
    __builtin_memcpy((void *)&v, &word, sizeof v);
    return v;
}

struct host_add {
    template <class T> static T apply(T a, T b) { return T(a + b); }
};
struct host_max {
    template <class T> static T apply(T a, T b) { return a < b || a != a ? b : a; }
};
struct host_min {
    template <class T> static T apply(T a, T b) { return b < a || a != a ? b : a; }
};
struct host_or {
    template <class T> static T apply(T a, T b) { return T(a | b); }
};

// In pairs, as a device does: lanes 0..31 become 16, 8, 4, 2 and one. The result goes to all.
template <class T, class Op> void host_reduce(simt_lanes *lanes) {
    T v[SIMT_WARP];
    for (int i = 0; i < SIMT_WARP; i++) v[i] = host_value<T>(lanes->word[i][0]);
    for (int n = SIMT_WARP / 2; n; n /= 2)
        for (int i = 0; i < n; i++) v[i] = Op::apply(v[i], v[i + n]);
    lanes->word[0][1] = host_word(v[0]);
}
#define SIMD_REDUCTION(name, Op)                                                       \
    template <class T> HOST_FN T name(T v, HOST_HERE) {                                \
        uint64_t word = host_word(v);                                                  \
        return host_value<T>(                                                          \
            simt_exchange(~0U, &word, 1, host_reduce<T, Op>, HOST_PLACE)->word[0][1]); \
    }
SIMD_REDUCTION(simd_sum, host_add)
SIMD_REDUCTION(simd_max, host_max)
SIMD_REDUCTION(simd_min, host_min)
SIMD_REDUCTION(simd_or, host_or)

template <class T> HOST_FN T host_prefix(T v, unsigned n, simt_place here) {
    uint64_t word = host_word(v);
    const simt_lanes *lanes = simt_exchange(~0U, &word, 1, nullptr, here);
    T sum = T(0);
    for (unsigned i = 0; i < n; i++) sum = T(sum + host_value<T>(lanes->word[i][0]));
    return sum;
}
template <class T> HOST_FN T simd_prefix_exclusive_sum(T v, HOST_HERE) {
    return host_prefix(v, simt_self()->lane, HOST_PLACE);
}
template <class T> HOST_FN T simd_prefix_inclusive_sum(T v, HOST_HERE) {
    return host_prefix(v, simt_self()->lane + 1, HOST_PLACE);
}

// The v of a lane; of one that does not exist it is undefined in Metal, and a fault here.
template <class T> HOST_FN T host_read_lane(T v, unsigned source, simt_place here) {
    uint64_t word = host_word(v);
    const simt_lanes *lanes = simt_exchange(~0U, &word, 1, nullptr, here);
    if (source >= SIMT_WARP)
        simt_fault("a shuffle at %s:%d reads lane %u", here.file, here.line, source);
    return host_value<T>(lanes->word[source][0]);
}
template <class T> HOST_FN T simd_shuffle(T v, ushort lane, HOST_HERE) {
    return host_read_lane(v, lane, HOST_PLACE);
}
template <class T> HOST_FN T simd_broadcast(T v, ushort lane, HOST_HERE) {
    return host_read_lane(v, lane, HOST_PLACE);
}
template <class T> HOST_FN T simd_broadcast_first(T v, HOST_HERE) {
    return host_read_lane(v, 0, HOST_PLACE);
}
template <class T> HOST_FN T simd_shuffle_xor(T v, ushort bits, HOST_HERE) {
    return host_read_lane(v, simt_self()->lane ^ bits, HOST_PLACE);
}
// Lanes without a source get a NaN, or all ones: their value is undefined in Metal.
template <class T> HOST_FN T host_shift(T v, unsigned source, simt_place here) {
    T moved = host_read_lane(v, source < SIMT_WARP ? source : 0, here);
    return source < SIMT_WARP ? moved : host_value<T>(~0UL);
}
template <class T> HOST_FN T simd_shuffle_down(T v, ushort by, HOST_HERE) {
    return host_shift(v, simt_self()->lane + by, HOST_PLACE);
}
template <class T> HOST_FN T simd_shuffle_up(T v, ushort by, HOST_HERE) {
    return host_shift(v, simt_self()->lane - by, HOST_PLACE);
}

struct simd_vote {
    typedef ulong vote_t;
    vote_t votes;
    explicit operator vote_t() const { return votes; }
};
HOST_FN simd_vote simd_ballot(bool v, HOST_HERE) {
    uint64_t word = v;
    const simt_lanes *lanes = simt_exchange(~0U, &word, 1, nullptr, HOST_PLACE);
    simd_vote vote = {0};
    for (int i = 0; i < SIMT_WARP; i++) vote.votes |= lanes->word[i][0] << i;
    return vote;
}
HOST_FN bool simd_any(bool v, HOST_HERE) { return simd_ballot(v, file, line).votes != 0; }
HOST_FN bool simd_all(bool v, HOST_HERE) { return simd_ballot(v, file, line).votes == 0xffffffff; }

#define HOST_ATOMICS(A, T)                                                                    \
    HOST_FN T atomic_load_explicit(const A *p, memory_order) {                                \
        return __atomic_load_n(&p->value, __ATOMIC_RELAXED);                                  \
    }                                                                                         \
    HOST_FN void atomic_store_explicit(A *p, T v, memory_order) {                             \
        __atomic_store_n(&p->value, v, __ATOMIC_RELAXED);                                     \
    }                                                                                         \
    HOST_FN T atomic_fetch_add_explicit(A *p, T v, memory_order) {                            \
        return __atomic_fetch_add(&p->value, v, __ATOMIC_RELAXED);                            \
    }                                                                                         \
    HOST_FN T atomic_fetch_or_explicit(A *p, T v, memory_order) {                             \
        return __atomic_fetch_or(&p->value, v, __ATOMIC_RELAXED);                             \
    }                                                                                         \
    HOST_FN T atomic_fetch_max_explicit(A *p, T v, memory_order) {                            \
        T old = __atomic_load_n(&p->value, __ATOMIC_RELAXED);                                 \
        while (old < v && !__atomic_compare_exchange_n(&p->value, &old, v, false,             \
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
        }                                                                                     \
        return old;                                                                           \
    }
HOST_ATOMICS(atomic_uint, uint)
HOST_ATOMICS(atomic_int, int)

// ---- Matrices of a simdgroup -------------------------------------------------------------------

// A lane holds two neighbours of a row. Metal does not say which, so kernels reach them by load and
// store only; here no lane has those that a kernel would guess, so that a barrier between a store
// and a lane's own read is missed.
template <class T, int ROWS, int COLUMNS> struct simdgroup_matrix {
    static_assert(ROWS == 8 && COLUMNS == 8, "Metal has matrices of 8 by 8");
    T v[2];
};

// The number of a lane's pair among those of the rows one after another.
HOST_FN unsigned host_matrix_pair(unsigned lane) { return (lane * 5 + 7) % SIMT_WARP; }

// Rows begin at multiples of 16 bytes: so no device takes the slow way.
HOST_FN void host_check_matrix(const void *p, ulong row_bytes, simt_place here) {
    if (((uintptr_t)p | row_bytes) & 15)
        simt_fault("a row of the matrix at %s:%d is not aligned to 16 bytes", here.file, here.line);
}
// The place of element i of this lane.
HOST_FN ulong host_matrix_place(int i, ulong stride, const ulong2 &origin, bool transposed) {
    const ulong element = host_matrix_pair(simt_self()->lane) * 2 + (ulong)i;
    const ulong row = element / 8, column = element % 8;
    return transposed ? (origin.y + column) * stride + origin.x + row
                      : (origin.y + row) * stride + origin.x + column;
}
template <class T>
HOST_FN void simdgroup_load(simdgroup_matrix<T, 8, 8> &m, const T *p, ulong stride = 8,
                            ulong2 origin = ulong2(0UL, 0UL), bool transposed = false, HOST_HERE) {
    host_check_matrix(p, stride * sizeof(T), HOST_PLACE);
    for (int i = 0; i < 2; i++) m.v[i] = p[host_matrix_place(i, stride, origin, transposed)];
}
template <class T>
HOST_FN void simdgroup_store(const simdgroup_matrix<T, 8, 8> &m, T *p, ulong stride = 8,
                             ulong2 origin = ulong2(0UL, 0UL), bool transposed = false, HOST_HERE) {
    host_check_matrix(p, stride * sizeof(T), HOST_PLACE);
    for (int i = 0; i < 2; i++) p[host_matrix_place(i, stride, origin, transposed)] = m.v[i];
}

// Words 0, 1 and 2 of a lane: its elements of A, B and C, as floats; C becomes the result.
HOST_FN void host_multiply(simt_lanes *lanes) {
    float a[8][8], b[8][8], c[8][8];
    for (int i = 0; i < SIMT_WARP; i++) {
        const unsigned p = host_matrix_pair((unsigned)i);
        __builtin_memcpy(&a[p / 4][p % 4 * 2], &lanes->word[i][0], 8);
        __builtin_memcpy(&b[p / 4][p % 4 * 2], &lanes->word[i][1], 8);
        __builtin_memcpy(&c[p / 4][p % 4 * 2], &lanes->word[i][2], 8);
    }
    for (int row = 0; row < 8; row++)
        for (int k = 0; k < 8; k++)
            for (int column = 0; column < 8; column++) c[row][column] += a[row][k] * b[k][column];
    for (int i = 0; i < SIMT_WARP; i++) {
        const unsigned p = host_matrix_pair((unsigned)i);
        __builtin_memcpy(&lanes->word[i][2], &c[p / 4][p % 4 * 2], 8);
    }
}
template <class A, class B>
HOST_FN void simdgroup_multiply_accumulate(simdgroup_matrix<float, 8, 8> &d,
                                           const simdgroup_matrix<A, 8, 8> &a,
                                           const simdgroup_matrix<B, 8, 8> &b,
                                           const simdgroup_matrix<float, 8, 8> &c, HOST_HERE) {
    const float held[6] = {float(a.v[0]), float(a.v[1]), float(b.v[0]),
                           float(b.v[1]), c.v[0],        c.v[1]};
    uint64_t words[3];
    __builtin_memcpy(words, held, sizeof words);
    const simt_lanes *lanes = simt_exchange(~0U, words, 3, host_multiply, HOST_PLACE);
    __builtin_memcpy(d.v, &lanes->word[simt_self()->lane][2], sizeof d.v);
}

#endif

typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
template <class T, int ROWS, int COLUMNS>
HOST_FN simdgroup_matrix<T, ROWS, COLUMNS> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, ROWS, COLUMNS> m;
#ifndef METAL_CHECK
    m.v[0] = m.v[1] = value;
#else
    (void)value;
#endif
    return m;
}

// ---- For trampolines ---------------------------------------------------------------------------

#ifndef METAL_CHECK
struct host_pointer {
    void *p;
    template <class T> operator T *() const { return static_cast<T *>(p); }
};
HOST_FN simt_dim host_position_in_grid() {
    const simt_thread *t = simt_self();
    const simt_block *b = t->block;
    return simt_dim{b->index.x * b->size.x + t->index.x, b->index.y * b->size.y + t->index.y,
                    b->index.z * b->size.z + t->index.z};
}
HOST_FN simt_dim host_threads_per_grid() {
    const simt_block *b = simt_self()->block;
    return simt_dim{b->grid.x * b->size.x, b->grid.y * b->size.y, b->grid.z * b->size.z};
}
HOST_FN unsigned host_simdgroups() {
    const simt_block *b = simt_self()->block;
    return (b->size.x * b->size.y * b->size.z + SIMT_WARP - 1) / SIMT_WARP;
}
#endif

} // namespace metal

#define INFINITY __builtin_inff()
#define NAN      __builtin_nanf("")
#define MAXFLOAT __FLT_MAX__
#define M_PI_F   3.14159265358979323846F

#define kernel
#define thread
#ifdef METAL_CHECK
#define device      __attribute__((address_space(1)))
#define constant    const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#else
#define device
#define constant const
#define threadgroup
#endif

#endif
