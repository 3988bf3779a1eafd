// The functions of CUDA C++ that one thread calls by itself: atomics, intrinsics, casts of bits, hinted accesses.
//
// What reads or writes memory is inlined, so that the tracer sees the access in the kernel.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace emulator {

void atomic_access(const void* address, unsigned size);
void trap(const char* text, const char* file, int line);
std::uint32_t number_of_shared(const void* address);
void* shared_at(std::uint64_t number);
bool is_shared(const void* address, bool own);  // own: of the running block

template <typename To, typename From>
__forceinline__ To bits_of(From from)
{
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

/// The value before; afterwards it is what `change` makes of it. Not watched: atomic_access has told the tracer.
template <typename T, typename F>
__attribute__((noinline, no_sanitize("thread"), no_sanitize("bounds"))) T exchange(T* address, F change)
{
    T before;
    __builtin_memcpy(&before, address, sizeof before);
    const T after = change(before);
    __builtin_memcpy(address, &after, sizeof after);
    return before;
}

template <typename T, typename F>
__forceinline__ T atomically(T* address, F change)
{
    atomic_access(address, sizeof(T));
    return exchange(address, change);
}

int print(const char* format, ...) __attribute__((format(printf, 1, 2)));
void reads_only(const void* address, unsigned size);
/// Tells the tracer that a copy reads or writes these bytes, `piece` by `piece`; false if it is no place to touch.
bool touches(const void* address, std::size_t bytes, std::size_t piece, bool write);
void move_bytes(void* to, const void* from, std::size_t bytes);
void fill_bytes(void* to, int value, std::size_t bytes);

// In the widest pieces that the addresses and the size allow. g++ would show the tracer copies of some sizes alone.
__forceinline__ void* copied(void* to, const void* from, std::size_t bytes)
{
    const std::size_t all = reinterpret_cast<std::size_t>(to) | reinterpret_cast<std::size_t>(from) | bytes | 16;
    const bool reads = touches(from, bytes, all & -all, false), writes = touches(to, bytes, all & -all, true);
    if (reads && writes) move_bytes(to, from, bytes);
    return to;
}
__forceinline__ void* filled(void* to, int value, std::size_t bytes)
{
    const std::size_t all = reinterpret_cast<std::size_t>(to) | bytes | 16;
    if (touches(to, bytes, all & -all, true)) fill_bytes(to, value, bytes);
    return to;
}

template <typename T>
using Same = typename std::common_type<T>::type;  // no deduction from this argument

}  // namespace emulator

// ---- Least and largest, as CUDA overloads them -----------------------------------------------------------------------

// No others: where two would do, NVRTC finds the call ambiguous.
#define EMULATOR_LEAST(T, A, B)                                                              \
    constexpr T min(A a, B b) { return (T)b < (T)a ? (T)b : (T)a; }                            \
    constexpr T max(A a, B b) { return (T)a < (T)b ? (T)b : (T)a; }
#define EMULATOR_LEAST_OF(T)                                                                 \
    EMULATOR_LEAST(T, T, T)                                                                  \
    EMULATOR_LEAST(unsigned T, unsigned T, unsigned T)                                       \
    EMULATOR_LEAST(unsigned T, T, unsigned T)                                                \
    EMULATOR_LEAST(unsigned T, unsigned T, T)
EMULATOR_LEAST_OF(int)
EMULATOR_LEAST_OF(long)
EMULATOR_LEAST_OF(long long)
EMULATOR_LEAST(float, float, float)
EMULATOR_LEAST(double, double, double)
EMULATOR_LEAST(double, float, double)
EMULATOR_LEAST(double, double, float)
#undef EMULATOR_LEAST_OF
#undef EMULATOR_LEAST
inline int umin(unsigned a, unsigned b) { return b < a ? b : a; }
inline int umax(unsigned a, unsigned b) { return a < b ? b : a; }

// ---- Atomics ----------------------------------------------------------------------------------------------------------

#define EMULATOR_ATOMIC(name, expression)                                                                             \
    template <typename T>                                                                                             \
    __forceinline__ T name(T* address, emulator::Same<T> value)                                                       \
    {                                                                                                                 \
        return emulator::atomically(address, [=](T old) -> T { return expression; });                                 \
    }                                                                                                                 \
    template <typename T>                                                                                             \
    __forceinline__ T name##_block(T* address, emulator::Same<T> value) { return name(address, value); }              \
    template <typename T>                                                                                             \
    __forceinline__ T name##_system(T* address, emulator::Same<T> value) { return name(address, value); }
EMULATOR_ATOMIC(atomicAdd, old + value)
EMULATOR_ATOMIC(atomicSub, old - value)
EMULATOR_ATOMIC(atomicExch, (static_cast<void>(old), value))
EMULATOR_ATOMIC(atomicMin, value < old ? value : old)
EMULATOR_ATOMIC(atomicMax, old < value ? value : old)
EMULATOR_ATOMIC(atomicAnd, old & value)
EMULATOR_ATOMIC(atomicOr, old | value)
EMULATOR_ATOMIC(atomicXor, old ^ value)
EMULATOR_ATOMIC(atomicInc, old >= value ? T(0) : T(old + 1))
EMULATOR_ATOMIC(atomicDec, old == 0 || old > value ? value : T(old - 1))
#undef EMULATOR_ATOMIC

template <typename T>
__forceinline__ T atomicCAS(T* address, emulator::Same<T> expected, emulator::Same<T> value)
{
    return emulator::atomically(address, [=](T old) -> T {
        return __builtin_memcmp(&old, &expected, sizeof old) == 0 ? value : old;
    });
}
template <typename T>
__forceinline__ T atomicCAS_block(T* address, emulator::Same<T> expected, emulator::Same<T> value)
{
    return atomicCAS(address, expected, value);
}
template <typename T>
__forceinline__ T atomicCAS_system(T* address, emulator::Same<T> expected, emulator::Same<T> value)
{
    return atomicCAS(address, expected, value);
}

// ---- Hinted loads and stores -------------------------------------------------------------------------------------------

#define EMULATOR_LOAD(name)                                                                                           \
    template <typename T>                                                                                             \
    __forceinline__ T name(const T* address)                                                                          \
    {                                                                                                                 \
        return *address;                                                                                              \
    }
template <typename T>
__forceinline__ T __ldg(const T* address)
{
    emulator::reads_only(address, sizeof(T));
    return *address;
}
EMULATOR_LOAD(__ldca)
EMULATOR_LOAD(__ldcg)
EMULATOR_LOAD(__ldcs)
EMULATOR_LOAD(__ldlu)
EMULATOR_LOAD(__ldcv)
#undef EMULATOR_LOAD
#define EMULATOR_STORE(name)                                                                                          \
    template <typename T>                                                                                             \
    __forceinline__ void name(T* address, emulator::Same<T> value)                                                    \
    {                                                                                                                 \
        *address = value;                                                                                             \
    }
EMULATOR_STORE(__stwb)
EMULATOR_STORE(__stcg)
EMULATOR_STORE(__stcs)
EMULATOR_STORE(__stwt)
#undef EMULATOR_STORE

__forceinline__ std::size_t __cvta_generic_to_shared(const void* address) { return emulator::number_of_shared(address); }
__forceinline__ void* __cvta_shared_to_generic(std::size_t number) { return emulator::shared_at(number); }
__forceinline__ std::size_t __cvta_generic_to_global(const void* address) { return reinterpret_cast<std::size_t>(address); }
__forceinline__ void* __cvta_global_to_generic(std::size_t address) { return reinterpret_cast<void*>(address); }

// ---- Integers ----------------------------------------------------------------------------------------------------------

inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
inline int __mulhi(int a, int b) { return static_cast<long long>(a) * b >> 32; }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned long long>(a) * b >> 32; }
inline long long __mul64hi(long long a, long long b) { return static_cast<__int128>(a) * b >> 64; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return static_cast<unsigned __int128>(a) * b >> 64;
}
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
inline int __clz(int a) { return a ? __builtin_clz(a) : 32; }
inline int __clzll(long long a) { return a ? __builtin_clzll(a) : 64; }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline int __ffsll(long long a) { return __builtin_ffsll(a); }
inline unsigned __brev(unsigned a)
{
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; ++bit) reversed |= (a >> bit & 1) << (31 - bit);
    return reversed;
}
inline unsigned long long __brevll(unsigned long long a)
{
    return static_cast<unsigned long long>(__brev(a)) << 32 | __brev(a >> 32);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    const unsigned long long bytes = static_cast<unsigned long long>(b) << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned pick = selector >> 4 * i & 0xf;
        unsigned byte = bytes >> 8 * (pick & 7) & 0xff;
        if (pick & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << 8 * i;
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
    return (static_cast<unsigned long long>(high) << 32 | low) << (by & 31) >> 32;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by)
{
    return (static_cast<unsigned long long>(high) << 32 | low) >> (by & 31);
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned by)
{
    return by >= 32 ? low : __funnelshift_l(low, high, by);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by)
{
    return by >= 32 ? high : __funnelshift_r(low, high, by);
}
inline int __hadd(int a, int b) { return (static_cast<long long>(a) + b) >> 1; }
inline int __rhadd(int a, int b) { return (static_cast<long long>(a) + b + 1) >> 1; }
inline unsigned __uhadd(unsigned a, unsigned b) { return (static_cast<unsigned long long>(a) + b) >> 1; }
inline unsigned __urhadd(unsigned a, unsigned b) { return (static_cast<unsigned long long>(a) + b + 1) >> 1; }
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a < b ? b - a : a - b) + c; }
/// The place of the set bit of `mask` that is number `offset` from bit `base` on, upwards, or downwards if it is negative;
/// all ones if there is none. Bit `base` itself is number 1, or -1; if `offset` is 0, it is the one that is asked for.
inline unsigned __fns(unsigned mask, unsigned base, int offset)
{
    const int step = offset < 0 ? -1 : 1;
    int left = offset < 0 ? -offset : offset ? offset : 1;
    for (int at = base; at >= 0 && at < 32; at += offset ? step : 32)
        if (mask >> at & 1 && --left == 0) return at;
    return ~0u;
}
inline int __sad(int a, int b, unsigned c) { return (a < b ? b - a : a - b) + c; }
inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; ++i) c += static_cast<signed char>(a >> 8 * i) * static_cast<signed char>(b >> 8 * i);
    return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 4; ++i) c += (a >> 8 * i & 0xff) * (b >> 8 * i & 0xff);
    return c;
}

inline int __dp2a_lo(int a, int b, int c) { return c + short(a) * static_cast<signed char>(b) + (a >> 16) * static_cast<signed char>(b >> 8); }
inline int __dp2a_hi(int a, int b, int c) { return __dp2a_lo(a, b >> 16, c); }
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) { return c + (a & 0xffff) * (b & 0xff) + (a >> 16) * (b >> 8 & 0xff); }
inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) { return __dp2a_lo(a, b >> 16, c); }

// Four bytes, or two halves, of a word at a time.
namespace emulator {
template <typename Part, typename F>
__forceinline__ unsigned by_parts(unsigned a, unsigned b, F f)
{
    constexpr unsigned bits = 8 * sizeof(Part);
    unsigned result = 0;
    for (unsigned at = 0; at < 32; at += bits)
        result |= static_cast<unsigned>(f(static_cast<Part>(a >> at), static_cast<Part>(b >> at)) & ((1ll << bits) - 1)) << at;
    return result;
}
}  // namespace emulator
#define EMULATOR_PARTS_AS(name, Byte, Half, expression)                                                               \
    inline unsigned name##4(unsigned x, unsigned y)                                                                   \
    {                                                                                                                 \
        return emulator::by_parts<Byte>(x, y, [](int a, int b) -> int { return expression; });                        \
    }                                                                                                                 \
    inline unsigned name##2(unsigned x, unsigned y)                                                                   \
    {                                                                                                                 \
        return emulator::by_parts<Half>(x, y, [](int a, int b) -> int { return expression; });                        \
    }
#define EMULATOR_PARTS(name, u, s, expression)                                                                        \
    EMULATOR_PARTS_AS(__v##name##u, unsigned char, unsigned short, expression)                                        \
    EMULATOR_PARTS_AS(__v##name##s, signed char, short, expression)
#define EMULATOR_COMPARED_PARTS(name, sign)                                                                           \
    EMULATOR_PARTS(cmp##name, u, s, a sign b ? -1 : 0)                                                                \
    EMULATOR_PARTS(set##name, u, s, a sign b)
EMULATOR_PARTS_AS(__vadd, unsigned char, unsigned short, a + b)
EMULATOR_PARTS_AS(__vsub, unsigned char, unsigned short, a - b)
EMULATOR_PARTS_AS(__vcmpeq, unsigned char, unsigned short, a == b ? -1 : 0)
EMULATOR_PARTS_AS(__vcmpne, unsigned char, unsigned short, a != b ? -1 : 0)
EMULATOR_PARTS_AS(__vseteq, unsigned char, unsigned short, a == b)
EMULATOR_PARTS_AS(__vsetne, unsigned char, unsigned short, a != b)
EMULATOR_PARTS(max, u, s, a < b ? b : a)
EMULATOR_PARTS(min, u, s, b < a ? b : a)
EMULATOR_PARTS(absdiff, u, s, a < b ? b - a : a - b)
EMULATOR_COMPARED_PARTS(gt, >)
EMULATOR_COMPARED_PARTS(ge, >=)
EMULATOR_COMPARED_PARTS(lt, <)
EMULATOR_COMPARED_PARTS(le, <=)
#undef EMULATOR_COMPARED_PARTS
#undef EMULATOR_PARTS
#undef EMULATOR_PARTS_AS

// ---- Floating point ----------------------------------------------------------------------------------------------------

namespace emulator {
enum class Rounding { nearest, down, up, zero };
enum class Calculation { add, subtract, multiply, divide, multiply_add, root };
float rounded(Rounding, Calculation, float a, float b, float c = 0);
double rounded(Rounding, Calculation, double a, double b, double c = 0);
float rounded_float(Rounding, double a);
float rounded_float(Rounding, long long a);
float rounded_float(Rounding, unsigned long long a);
double rounded_double(Rounding, long long a);
double rounded_double(Rounding, unsigned long long a);
}  // namespace emulator

#define EMULATOR_ROUNDED(T, letter, suffix, rounding)                                                                 \
    inline T __##letter##add_##suffix(T a, T b) { return emulator::rounded(rounding, emulator::Calculation::add, a, b); } \
    inline T __##letter##sub_##suffix(T a, T b) { return emulator::rounded(rounding, emulator::Calculation::subtract, a, b); } \
    inline T __##letter##mul_##suffix(T a, T b) { return emulator::rounded(rounding, emulator::Calculation::multiply, a, b); } \
    inline T __##letter##div_##suffix(T a, T b) { return emulator::rounded(rounding, emulator::Calculation::divide, a, b); } \
    inline T __##letter##rcp_##suffix(T a) { return emulator::rounded(rounding, emulator::Calculation::divide, T(1), a); } \
    inline T __##letter##sqrt_##suffix(T a) { return emulator::rounded(rounding, emulator::Calculation::root, a, T(0)); }
#define EMULATOR_ROUNDED_TO(suffix, rounding)                                                                         \
    EMULATOR_ROUNDED(float, f, suffix, rounding)                                                                      \
    EMULATOR_ROUNDED(double, d, suffix, rounding)                                                                     \
    inline float __fmaf_##suffix(float a, float b, float c)                                                           \
    {                                                                                                                 \
        return emulator::rounded(rounding, emulator::Calculation::multiply_add, a, b, c);                             \
    }                                                                                                                 \
    inline double __fma_##suffix(double a, double b, double c)                                                        \
    {                                                                                                                 \
        return emulator::rounded(rounding, emulator::Calculation::multiply_add, a, b, c);                             \
    }                                                                                                                 \
    inline float __double2float_##suffix(double a) { return emulator::rounded_float(rounding, a); }                   \
    inline float __int2float_##suffix(int a) { return emulator::rounded_float(rounding, static_cast<long long>(a)); } \
    inline float __uint2float_##suffix(unsigned a) { return emulator::rounded_float(rounding, static_cast<long long>(a)); } \
    inline float __ll2float_##suffix(long long a) { return emulator::rounded_float(rounding, a); }                    \
    inline float __ull2float_##suffix(unsigned long long a) { return emulator::rounded_float(rounding, a); }          \
    inline double __ll2double_##suffix(long long a) { return emulator::rounded_double(rounding, a); }                 \
    inline double __ull2double_##suffix(unsigned long long a) { return emulator::rounded_double(rounding, a); }
EMULATOR_ROUNDED_TO(rd, emulator::Rounding::down)
EMULATOR_ROUNDED_TO(ru, emulator::Rounding::up)
EMULATOR_ROUNDED_TO(rz, emulator::Rounding::zero)
#undef EMULATOR_ROUNDED_TO
#undef EMULATOR_ROUNDED
// To nearest is how the emulator calculates anyway.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float a) { return 1 / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline double __drcp_rn(double a) { return 1 / a; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float a) { return expf(a); }
inline float __exp10f(float a) { return powf(10, a); }
inline float __logf(float a) { return logf(a); }
inline float __log2f(float a) { return log2f(a); }
inline float __log10f(float a) { return log10f(a); }
inline float __powf(float a, float b) { return powf(a, b); }
inline float __sinf(float a) { return sinf(a); }
inline float __cosf(float a) { return cosf(a); }
inline float __tanf(float a) { return tanf(a); }
inline float __saturatef(float a) { return a > 0 ? a < 1 ? a : 1 : 0; }
inline float __tanhf(float a) { return tanhf(a); }
inline void __sincosf(float a, float* sine, float* cosine) { sincosf(a, sine, cosine); }
inline float rsqrtf(float a) { return 1 / sqrtf(a); }
inline double rsqrt(double a) { return 1 / sqrt(a); }
inline float __frsqrt_rn(float a) { return rsqrtf(a); }


// What CUDA has beside the C library, in both widths.
namespace emulator {
double sine_of_turns(double half_turns);  // sin(pi x)
double cosine_of_turns(double half_turns);
double inverse_error(double a);  // of erf
}  // namespace emulator
#define EMULATOR_BOTH(name, expression)                                                                               \
    inline double name(double a) { return expression; }                                                               \
    inline float name##f(float a) { return static_cast<float>(name(static_cast<double>(a))); }
EMULATOR_BOTH(sinpi, emulator::sine_of_turns(a))
EMULATOR_BOTH(cospi, emulator::cosine_of_turns(a))
EMULATOR_BOTH(rcbrt, 1 / cbrt(a))
EMULATOR_BOTH(erfinv, emulator::inverse_error(a))
EMULATOR_BOTH(erfcinv, emulator::inverse_error(1 - a))
EMULATOR_BOTH(erfcx, exp(a * a) * erfc(a))
EMULATOR_BOTH(normcdf, erfc(-a * 0.70710678118654752440) / 2)
EMULATOR_BOTH(normcdfinv, 1.41421356237309504880 * emulator::inverse_error(2 * a - 1))
#undef EMULATOR_BOTH
#define EMULATOR_NORMS(T, f)                                                                                          \
    inline T rhypot##f(T a, T b) { return 1 / hypot##f(a, b); }                                                       \
    inline T norm3d##f(T a, T b, T c) { return sqrt##f(a * a + b * b + c * c); }                                      \
    inline T rnorm3d##f(T a, T b, T c) { return 1 / norm3d##f(a, b, c); }                                             \
    inline T norm4d##f(T a, T b, T c, T d) { return sqrt##f(a * a + b * b + c * c + d * d); }                         \
    inline T rnorm4d##f(T a, T b, T c, T d) { return 1 / norm4d##f(a, b, c, d); }                                     \
    inline void sincospi##f(T a, T* sine, T* cosine) { *sine = sinpi##f(a), *cosine = cospi##f(a); }                  \
    inline T fdivide##f(T a, T b) { return a / b; }
EMULATOR_NORMS(float, f)
EMULATOR_NORMS(double, )
#undef EMULATOR_NORMS

__forceinline__ int __float_as_int(float a) { return emulator::bits_of<int>(a); }
__forceinline__ unsigned __float_as_uint(float a) { return emulator::bits_of<unsigned>(a); }
__forceinline__ float __int_as_float(int a) { return emulator::bits_of<float>(a); }
__forceinline__ float __uint_as_float(unsigned a) { return emulator::bits_of<float>(a); }
__forceinline__ long long __double_as_longlong(double a) { return emulator::bits_of<long long>(a); }
__forceinline__ double __longlong_as_double(long long a) { return emulator::bits_of<double>(a); }
__forceinline__ int __double2loint(double a) { return static_cast<int>(emulator::bits_of<long long>(a)); }
__forceinline__ int __double2hiint(double a) { return static_cast<int>(emulator::bits_of<long long>(a) >> 32); }
__forceinline__ double __hiloint2double(int high, int low)
{
    return emulator::bits_of<double>(static_cast<long long>(high) << 32 | static_cast<unsigned>(low));
}

#define EMULATOR_TO_INTEGER(from, From, to, To)                                                                       \
    inline To __##from##2##to##_rn(From a) { return static_cast<To>(rint(a)); }                                       \
    inline To __##from##2##to##_rz(From a) { return static_cast<To>(a); }                                             \
    inline To __##from##2##to##_rd(From a) { return static_cast<To>(floor(a)); }                                      \
    inline To __##from##2##to##_ru(From a) { return static_cast<To>(ceil(a)); }
EMULATOR_TO_INTEGER(float, float, int, int)
EMULATOR_TO_INTEGER(float, float, uint, unsigned)
EMULATOR_TO_INTEGER(float, float, ll, long long)
EMULATOR_TO_INTEGER(float, float, ull, unsigned long long)
EMULATOR_TO_INTEGER(double, double, int, int)
EMULATOR_TO_INTEGER(double, double, uint, unsigned)
EMULATOR_TO_INTEGER(double, double, ll, long long)
EMULATOR_TO_INTEGER(double, double, ull, unsigned long long)
#undef EMULATOR_TO_INTEGER
inline float __int2float_rn(int a) { return a; }
inline float __uint2float_rn(unsigned a) { return a; }
inline float __ll2float_rn(long long a) { return a; }
inline float __ull2float_rn(unsigned long long a) { return a; }
inline double __int2double_rn(int a) { return a; }
inline double __uint2double_rn(unsigned a) { return a; }
inline double __ll2double_rn(long long a) { return a; }
inline double __ull2double_rn(unsigned long long a) { return a; }
inline float __double2float_rn(double a) { return a; }

// ---- Clocks, traps, hints ----------------------------------------------------------------------------------------------

namespace emulator {
long long tick();  // time passes with every question
}
inline long long clock64() { return emulator::tick(); }
#define clock() static_cast<int>(clock64())
inline unsigned long long globaltimer() { return emulator::tick(); }
inline void __nanosleep(unsigned) {}
inline void __trap(EMULATOR_PLACE) { emulator::trap(" calls __trap()", file, line); }
inline void __brkpt() {}
#define __builtin_assume(condition) static_cast<void>(0)
#define __builtin_assume_aligned(pointer, bytes) (pointer)
#undef assert
#define assert(condition) \
    ((condition) ? static_cast<void>(0) : emulator::trap(" fails the assertion `" #condition "`", __FILE__, __LINE__))

template <typename T>
__forceinline__ bool __isGlobal(const T* address)
{
    return !emulator::is_shared(address, false);
}
template <typename T>
__forceinline__ bool __isShared(const T* address)
{
    return emulator::is_shared(address, true);
}
template <typename T>
__forceinline__ bool __isCtaShared(const T* address)
{
    return __isShared(address);
}
template <typename T>
__forceinline__ bool __isClusterShared(const T* address)
{
    return emulator::is_shared(address, false);
}
inline void __prefetch_global_l1(const void*) {}
inline void __prefetch_global_l2(const void*) {}
