/*
 * intrinsics: arithmetic that nvcc knows and g++ does not. Approximations (__expf and the like) are
 * the exact functions here. Atomics are plain: threads are only switched at synchronisation points.
 */
#ifndef GRAPEVINE_TESTS_CUDA_VIRTUAL_INTRINSICS_H
#define GRAPEVINE_TESTS_CUDA_VIRTUAL_INTRINSICS_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <limits>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

/* --- bits --------------------------------------------------------------------------------------*/

template <typename To, typename From> static inline To virtual_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "equal sizes");
    To to;

    memcpy(static_cast<void *>(&to), static_cast<const void *>(&from), sizeof(to));
    return to;
}

#define VIRTUAL_BITS(name, To, From)                                                               \
    static inline To name(From x)                                                                  \
    {                                                                                              \
        return virtual_bits<To>(x);                                                                \
    }
VIRTUAL_BITS(__float_as_uint, unsigned, float)
VIRTUAL_BITS(__float_as_int, int, float)
VIRTUAL_BITS(__uint_as_float, float, unsigned)
VIRTUAL_BITS(__int_as_float, float, int)
VIRTUAL_BITS(__double_as_longlong, long long, double)
VIRTUAL_BITS(__longlong_as_double, double, long long)
#undef VIRTUAL_BITS

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}

static inline int __clzll(long long x)
{
    return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}

static inline unsigned __brev(unsigned x)
{
    unsigned y = 0;

    for (int bit = 0; bit < 32; bit++) {
        y |= (x >> bit & 1u) << (31 - bit);
    }
    return y;
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}

static inline int __mulhi(int a, int b)
{
    return static_cast<int>(static_cast<int64_t>(a) * b >> 32);
}

static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
    unsigned result = 0;

    for (int i = 0; i < 4; i++) {
        unsigned choice = selector >> 4 * i & 0xFu;
        unsigned byte = static_cast<unsigned>(bytes >> 8 * (choice & 7u) & 0xFFu);
        if (choice & 8u) byte = byte & 0x80u ? 0xFFu : 0u;
        result |= byte << 8 * i;
    }
    return result;
}

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    uint64_t both = static_cast<uint64_t>(high) << 32 | low;

    return static_cast<unsigned>(both << (shift & 31u) >> 32);
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    uint64_t both = static_cast<uint64_t>(high) << 32 | low;

    return static_cast<unsigned>(both >> (shift & 31u));
}

/* --- float arithmetic --------------------------------------------------------------------------*/

#define VIRTUAL_UNARY(name, T, expression)                                                         \
    static inline T name(T x)                                                                      \
    {                                                                                              \
        return expression;                                                                         \
    }
#define VIRTUAL_BINARY(name, T, expression)                                                        \
    static inline T name(T x, T y)                                                                 \
    {                                                                                              \
        return expression;                                                                         \
    }
VIRTUAL_UNARY(virtual_expf, float, ::expf(x))
VIRTUAL_UNARY(virtual_exp10f, float, ::powf(10.0f, x))
VIRTUAL_UNARY(virtual_logf, float, ::logf(x))
VIRTUAL_UNARY(virtual_log2f, float, ::log2f(x))
VIRTUAL_UNARY(virtual_log10f, float, ::log10f(x))
VIRTUAL_UNARY(virtual_sinf, float, ::sinf(x))
VIRTUAL_UNARY(virtual_cosf, float, ::cosf(x))
VIRTUAL_UNARY(virtual_tanf, float, ::tanf(x))
VIRTUAL_UNARY(__saturatef, float, x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
VIRTUAL_UNARY(rsqrtf, float, static_cast<float>(1.0 / ::sqrt(static_cast<double>(x))))
VIRTUAL_UNARY(rsqrt, double, 1.0 / ::sqrt(x))
VIRTUAL_UNARY(__frsqrt_rn, float, rsqrtf(x))
VIRTUAL_UNARY(__frcp_rn, float, 1.0f / x)
VIRTUAL_UNARY(__fsqrt_rn, float, ::sqrtf(x))
VIRTUAL_UNARY(__dsqrt_rn, double, ::sqrt(x))
VIRTUAL_UNARY(__drcp_rn, double, 1.0 / x)
VIRTUAL_BINARY(virtual_powf, float, ::powf(x, y))
VIRTUAL_BINARY(__fdividef, float, x / y)
VIRTUAL_BINARY(__fadd_rn, float, x + y)
VIRTUAL_BINARY(__fsub_rn, float, x - y)
VIRTUAL_BINARY(__fmul_rn, float, x *y)
VIRTUAL_BINARY(__fdiv_rn, float, x / y)
VIRTUAL_BINARY(__dadd_rn, double, x + y)
VIRTUAL_BINARY(__dsub_rn, double, x - y)
VIRTUAL_BINARY(__dmul_rn, double, x *y)
VIRTUAL_BINARY(__ddiv_rn, double, x / y)
#undef VIRTUAL_UNARY
#undef VIRTUAL_BINARY

static inline float __fmaf_rn(float x, float y, float z)
{
    return ::fmaf(x, y, z);
}

static inline double __fma_rn(double x, double y, double z)
{
    return ::fma(x, y, z);
}

static inline void virtual_sincosf(float x, float *sine, float *cosine)
{
    *sine = ::sinf(x);
    *cosine = ::cosf(x);
}

/* glibc has declared these names. */
#define __expf    virtual_expf
#define __exp10f  virtual_exp10f
#define __logf    virtual_logf
#define __log2f   virtual_log2f
#define __log10f  virtual_log10f
#define __sinf    virtual_sinf
#define __cosf    virtual_cosf
#define __tanf    virtual_tanf
#define __powf    virtual_powf
#define __sincosf virtual_sincosf

/* Conversions: to the nearest (rn), down (rd), up (ru), towards zero (rz); beyond the range the
 * nearest number, NaN is 0, as cvt of the PTX ISA has it. */
template <typename To, typename From> static inline To virtual_convert(From x)
{
    const double least = static_cast<double>(std::numeric_limits<To>::min());
    const double most = static_cast<double>(std::numeric_limits<To>::max());
    double value = static_cast<double>(x);

    if (value != value) return To(0);
    if (value <= least) return std::numeric_limits<To>::min();
    if (value >= most) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
}

#define VIRTUAL_CONVERT(from, to, From, To)                                                        \
    static inline To __##from##2##to##_rn(From x)                                                  \
    {                                                                                              \
        return virtual_convert<To>(::nearbyint(static_cast<double>(x)));                           \
    }                                                                                              \
    static inline To __##from##2##to##_rd(From x)                                                  \
    {                                                                                              \
        return virtual_convert<To>(::floor(static_cast<double>(x)));                               \
    }                                                                                              \
    static inline To __##from##2##to##_ru(From x)                                                  \
    {                                                                                              \
        return virtual_convert<To>(::ceil(static_cast<double>(x)));                                \
    }                                                                                              \
    static inline To __##from##2##to##_rz(From x)                                                  \
    {                                                                                              \
        return virtual_convert<To>(::trunc(static_cast<double>(x)));                               \
    }
VIRTUAL_CONVERT(float, int, float, int)
VIRTUAL_CONVERT(float, uint, float, unsigned)
VIRTUAL_CONVERT(float, ll, float, long long)
VIRTUAL_CONVERT(float, ull, float, unsigned long long)
VIRTUAL_CONVERT(double, int, double, int)
VIRTUAL_CONVERT(double, uint, double, unsigned)
VIRTUAL_CONVERT(double, ll, double, long long)
VIRTUAL_CONVERT(double, ull, double, unsigned long long)
#undef VIRTUAL_CONVERT

static inline float __int2float_rn(int x)
{
    return static_cast<float>(x);
}

static inline float __uint2float_rn(unsigned x)
{
    return static_cast<float>(x);
}

static inline float __ll2float_rn(long long x)
{
    return static_cast<float>(x);
}

static inline float __ull2float_rn(unsigned long long x)
{
    return static_cast<float>(x);
}

static inline double __int2double_rn(int x)
{
    return static_cast<double>(x);
}

static inline double __uint2double_rn(unsigned x)
{
    return static_cast<double>(x);
}

static inline double __ull2double_rn(unsigned long long x)
{
    return static_cast<double>(x);
}

static inline float __double2float_rn(double x)
{
    return static_cast<float>(x);
}

/* CUDA's min() and max() take any two numbers; of floats, the one that is no NaN. */
template <typename A, typename B>
static inline std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>,
                               std::common_type_t<A, B>>
min(A a, B b)
{
    typedef std::common_type_t<A, B> T;

    if constexpr (std::is_floating_point_v<T>) {
        return static_cast<T>(::fmin(static_cast<T>(a), static_cast<T>(b)));
    } else {
        return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b);
    }
}

template <typename A, typename B>
static inline std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>,
                               std::common_type_t<A, B>>
max(A a, B b)
{
    typedef std::common_type_t<A, B> T;

    if constexpr (std::is_floating_point_v<T>) {
        return static_cast<T>(::fmax(static_cast<T>(a), static_cast<T>(b)));
    } else {
        return static_cast<T>(a) > static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b);
    }
}

/* --- half precision: what the headers have for the device only ---------------------------------*/

static inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c)
{
    return __float2bfloat16_rn(
        ::fmaf(__bfloat162float(a), __bfloat162float(b), __bfloat162float(c)));
}

static inline __half __hfma(__half a, __half b, __half c)
{
    return __float2half_rn(::fmaf(__half2float(a), __half2float(b), __half2float(c)));
}

static inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c)
{
    return __nv_bfloat162(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}

static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c)
{
    return __half2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}

/* --- memory ------------------------------------------------------------------------------------*/

#define VIRTUAL_LOAD(name)                                                                         \
    template <typename T> static inline T name(const T *address)                                   \
    {                                                                                              \
        return *address;                                                                           \
    }
#define VIRTUAL_STORE(name)                                                                        \
    template <typename T> static inline void name(T *address, T value)                             \
    {                                                                                              \
        *address = value;                                                                          \
    }
VIRTUAL_LOAD(__ldg)
VIRTUAL_LOAD(__ldca)
VIRTUAL_LOAD(__ldcg)
VIRTUAL_LOAD(__ldcs)
VIRTUAL_LOAD(__ldlu)
VIRTUAL_LOAD(__ldcv)
VIRTUAL_STORE(__stwb)
VIRTUAL_STORE(__stcg)
VIRTUAL_STORE(__stcs)
VIRTUAL_STORE(__stwt)
#undef VIRTUAL_LOAD
#undef VIRTUAL_STORE

/* Each returns what was there. `address` decides the type, as CUDA's overloads do. */
template <typename T> struct virtual_same {
    typedef T type;
};

#define VIRTUAL_ATOMIC(name, requirement, expression)                                              \
    template <typename T> static inline T name(T *address, typename virtual_same<T>::type value)   \
    {                                                                                              \
        static_assert(requirement, #name " of this type");                                         \
        T old = *address;                                                                          \
        *address = expression;                                                                     \
        return old;                                                                                \
    }
template <typename T>
constexpr bool virtual_is_word = sizeof(T) == 4 || (sizeof(T) == 8 && std::is_unsigned_v<T>);
VIRTUAL_ATOMIC(atomicAdd, virtual_is_word<T> || std::is_floating_point_v<T>,
               static_cast<T>(old + value))
VIRTUAL_ATOMIC(atomicSub, std::is_integral_v<T> && sizeof(T) == 4, static_cast<T>(old - value))
VIRTUAL_ATOMIC(atomicMax, std::is_integral_v<T>, old > value ? old : value)
VIRTUAL_ATOMIC(atomicMin, std::is_integral_v<T>, old < value ? old : value)
VIRTUAL_ATOMIC(atomicOr, std::is_integral_v<T>, old | value)
VIRTUAL_ATOMIC(atomicAnd, std::is_integral_v<T>, old &value)
VIRTUAL_ATOMIC(atomicXor, std::is_integral_v<T>, old ^ value)
VIRTUAL_ATOMIC(atomicExch, virtual_is_word<T>, value)
#undef VIRTUAL_ATOMIC

template <typename T>
static inline T atomicCAS(T *address, typename virtual_same<T>::type expected,
                          typename virtual_same<T>::type value)
{
    static_assert(std::is_integral_v<T>, "atomicCAS of this type");
    T old = *address;

    if (old == expected) *address = value;
    return old;
}

#endif
