// Functions of CUDA C++ on floating-point numbers.
#pragma once

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

/// A number without a fraction as `cvt` makes it whole: the nearest that T holds. What is no number becomes 0, or the
/// highest bit if either type has 64 bits.
template <typename T, typename Real>
__forceinline__ T whole(Real a)
{
    constexpr int bits = 8 * sizeof(T);
    constexpr bool is_signed = T(-1) < T(0);
    constexpr unsigned long long highest_bit = 1ull << (bits - 1);
    if (a != a) return bits == 64 || sizeof(Real) == 8 ? T(highest_bit) : T(0);
    if (a >= (is_signed ? 1 : 2) * Real(highest_bit)) return T(is_signed ? highest_bit - 1 : ~0ull);
    if (a < (is_signed ? -Real(highest_bit) : Real(0))) return is_signed ? T(highest_bit) : T(0);
    return T(a);
}
}  // namespace emulator

#define EMULATOR_ROUNDED(T, letter, suffix, rounding)                               \
    inline T __##letter##add_##suffix(T a, T b)                                     \
    {                                                                               \
        return emulator::rounded(rounding, emulator::Calculation::add, a, b);       \
    }                                                                               \
    inline T __##letter##sub_##suffix(T a, T b)                                     \
    {                                                                               \
        return emulator::rounded(rounding, emulator::Calculation::subtract, a, b);  \
    }                                                                               \
    inline T __##letter##mul_##suffix(T a, T b)                                     \
    {                                                                               \
        return emulator::rounded(rounding, emulator::Calculation::multiply, a, b);  \
    }                                                                               \
    inline T __##letter##div_##suffix(T a, T b)                                     \
    {                                                                               \
        return emulator::rounded(rounding, emulator::Calculation::divide, a, b);    \
    }                                                                               \
    inline T __##letter##rcp_##suffix(T a)                                          \
    {                                                                               \
        return emulator::rounded(rounding, emulator::Calculation::divide, T(1), a); \
    }                                                                               \
    inline T __##letter##sqrt_##suffix(T a)                                         \
    {                                                                               \
        return emulator::rounded(rounding, emulator::Calculation::root, a, T(0));   \
    }
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
    inline float __uint2float_##suffix(unsigned a)                                                                    \
    {                                                                                                                 \
        return emulator::rounded_float(rounding, static_cast<long long>(a));                                          \
    }                                                                                                                 \
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
inline float __frsqrt_rn(float a) { return static_cast<float>(1 / sqrt(static_cast<double>(a))); }

// What CUDA has in addition to the C library, in both widths.
namespace emulator {
double sine_of_turns(double half_turns);  // sin(pi x)
double cosine_of_turns(double half_turns);
double inverse_error(double a);               // of erf
double inverse_complement(double a);          // of erfc
double scaled_complement(double a);           // exp(a * a) * erfc(a)
double modified_bessel(int order, double a);  // 0 or 1, of the first kind
template <typename T>
__forceinline__ T length(int count, const T* from)
{
    double all = 0;
    for (int k = 0; k < count; ++k) all = hypot(all, static_cast<double>(from[k]));
    return all;
}
}  // namespace emulator
// Of float by either name: a call with an integer is ambiguous for NVRTC, too.
#define EMULATOR_BOTH(name, expression)                                                        \
    inline double name(double a) { return expression; }                                        \
    inline float name##f(float a) { return static_cast<float>(name(static_cast<double>(a))); } \
    inline float name(float a) { return name##f(a); }
EMULATOR_BOTH(rsqrt, 1 / sqrt(a))
EMULATOR_BOTH(sinpi, emulator::sine_of_turns(a))
EMULATOR_BOTH(cospi, emulator::cosine_of_turns(a))
EMULATOR_BOTH(rcbrt, 1 / cbrt(a))
EMULATOR_BOTH(erfinv, emulator::inverse_error(a))
EMULATOR_BOTH(erfcinv, emulator::inverse_complement(a))
EMULATOR_BOTH(erfcx, emulator::scaled_complement(a))
EMULATOR_BOTH(normcdf, erfc(-a * 0.70710678118654752440) / 2)
EMULATOR_BOTH(normcdfinv, -1.41421356237309504880 * emulator::inverse_complement(2 * a))
EMULATOR_BOTH(cyl_bessel_i0, emulator::modified_bessel(0, a))
EMULATOR_BOTH(cyl_bessel_i1, emulator::modified_bessel(1, a))
#undef EMULATOR_BOTH
inline float exp10(float a) { return exp10f(a); }
inline float j0(float a) { return j0f(a); }
inline float j1(float a) { return j1f(a); }
inline float jn(int order, float a) { return jnf(order, a); }
inline float y0(float a) { return y0f(a); }
inline float y1(float a) { return y1f(a); }
inline float yn(int order, float a) { return ynf(order, a); }
inline void sincos(float a, float* sine, float* cosine) { sincosf(a, sine, cosine); }
#define EMULATOR_NORMS(T, f)                                                                         \
    inline T rhypot##f(T a, T b) { return 1 / hypot##f(a, b); }                                      \
    inline T norm3d##f(T a, T b, T c) { return hypot##f(hypot##f(a, b), c); }                        \
    inline T rnorm3d##f(T a, T b, T c) { return 1 / norm3d##f(a, b, c); }                            \
    inline T norm4d##f(T a, T b, T c, T d) { return hypot##f(norm3d##f(a, b, c), d); }               \
    inline T rnorm4d##f(T a, T b, T c, T d) { return 1 / norm4d##f(a, b, c, d); }                    \
    __forceinline__ T norm##f(int count, const T* from) { return emulator::length(count, from); }    \
    __forceinline__ T rnorm##f(int count, const T* from) { return 1 / norm##f(count, from); }        \
    inline void sincospi##f(T a, T* sine, T* cosine) { *sine = sinpi##f(a), *cosine = cospi##f(a); } \
    inline T fdivide##f(T a, T b) { return a / b; }
EMULATOR_NORMS(float, f)
EMULATOR_NORMS(double, )
#undef EMULATOR_NORMS
inline void sincospi(float a, float* sine, float* cosine) { sincospif(a, sine, cosine); }

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

#define EMULATOR_TO_INTEGER(from, From, to, To)                                      \
    inline To __##from##2##to##_rn(From a) { return emulator::whole<To>(rint(a)); }  \
    inline To __##from##2##to##_rz(From a) { return emulator::whole<To>(trunc(a)); } \
    inline To __##from##2##to##_rd(From a) { return emulator::whole<To>(floor(a)); } \
    inline To __##from##2##to##_ru(From a) { return emulator::whole<To>(ceil(a)); }
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
