// Arithmetic that the compiler must not do itself.
#include "runtime.h"

#include <cfenv>

namespace emulator {

namespace {
/// What `f` returns if the CPU rounds that way. What it calculates with is volatile, so that it is calculated there.
template <typename F>
auto with(Rounding rounding, F f)
{
    static constexpr int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    const int before = std::fegetround();
    std::fesetround(modes[static_cast<int>(rounding)]);
    const volatile auto result = f();
    std::fesetround(before);
    return result;
}
template <typename T>
T calculated(Rounding rounding, Calculation what, T first, T second, T third)
{
    const volatile T a = first, b = second, c = third;
    return with(rounding, [&]() -> T {
        switch (what) {
        case Calculation::add: return a + b;
        case Calculation::subtract: return a - b;
        case Calculation::multiply: return a * b;
        case Calculation::divide: return a / b;
        case Calculation::multiply_add: return std::fma(a, b, c);
        case Calculation::root: return std::sqrt(a);
        }
        return 0;
    });
}
template <typename To, typename From>
To converted(Rounding rounding, From from)
{
    const volatile From a = from;
    return with(rounding, [&] { return static_cast<To>(a); });
}
}  // namespace

float rounded(Rounding r, Calculation what, float a, float b, float c) { return calculated(r, what, a, b, c); }
double rounded(Rounding r, Calculation what, double a, double b, double c) { return calculated(r, what, a, b, c); }
float rounded_float(Rounding r, double a) { return converted<float>(r, a); }
float rounded_float(Rounding r, long long a) { return converted<float>(r, a); }
float rounded_float(Rounding r, unsigned long long a) { return converted<float>(r, a); }
double rounded_double(Rounding r, long long a) { return converted<double>(r, a); }
double rounded_double(Rounding r, unsigned long long a) { return converted<double>(r, a); }

double sine_of_turns(double a) { return std::sin(M_PI * std::remainder(a, 2)); }
double cosine_of_turns(double a) { return std::cos(M_PI * std::remainder(a, 2)); }
double inverse_error(double a)
{
    if (!(a > -1 && a < 1)) return a == 1 || a == -1 ? a * HUGE_VAL : NAN;
    double x = 0;  // Newton's method, from Winitzki's approximation
    const double l = std::log1p(-a * a), t = 2 / (M_PI * 0.147) + l / 2;
    x = std::copysign(std::sqrt(std::sqrt(t * t - l / 0.147) - t), a);
    for (int step = 0; step < 4; ++step) x -= (std::erf(x) - a) / (2 / std::sqrt(M_PI) * std::exp(-x * x));
    return x;
}
double scaled_complement(double a)
{
    if (a < 5) return std::exp(a * a) * std::erfc(a);
    double rest = a;  // Laplace's continued fraction: the two factors overflow and underflow
    for (int k = 60; k > 0; --k) rest = a + k / 2.0 / rest;
    return 1 / (std::sqrt(M_PI) * rest);
}
double inverse_complement(double a)
{
    if (!(a > 0 && a < 0.5)) return a == 0 ? HUGE_VAL : inverse_error(1 - a);
    double x = std::sqrt(-std::log(a));  // Newton's method, of the logarithm: it is almost a parabola
    for (int step = 0; step < 6; ++step) {
        const double scaled = scaled_complement(x);
        x += (std::log(scaled) - x * x - std::log(a)) * std::sqrt(M_PI) / 2 * scaled;
    }
    return x;
}
double modified_bessel(int order, double a)
{
    double term = order ? a / 2 : 1, sum = term;
    for (int k = 1; std::fabs(term) > 1e-17 * std::fabs(sum); ++k) {
        term *= a * a / 4 / (k * (k + order));
        sum += term;
    }
    return sum;
}

}  // namespace emulator
