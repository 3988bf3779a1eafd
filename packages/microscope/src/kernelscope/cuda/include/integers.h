// Functions of CUDA C++ on integers.
#pragma once

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
/// The place of the set bit of `mask` that is number `offset` from bit `base` on, upwards, or downwards if it is
/// negative; all ones if there is none. Bit `base` itself is number 1, or -1; if `offset` is 0, it is the one that is
/// asked for.
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

inline int __dp2a_lo(int a, int b, int c)
{
    return c + short(a) * static_cast<signed char>(b) + (a >> 16) * static_cast<signed char>(b >> 8);
}
inline int __dp2a_hi(int a, int b, int c) { return __dp2a_lo(a, b >> 16, c); }
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c)
{
    return c + (a & 0xffff) * (b & 0xff) + (a >> 16) * (b >> 8 & 0xff);
}
inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) { return __dp2a_lo(a, b >> 16, c); }

// Four bytes, or two halves, of a word at a time.
namespace emulator {
template <typename Part, typename F>
__forceinline__ unsigned by_parts(unsigned a, unsigned b, F f)
{
    constexpr unsigned bits = 8 * sizeof(Part);
    unsigned result = 0;
    for (unsigned at = 0; at < 32; at += bits)
        result |= static_cast<unsigned>(f(static_cast<Part>(a >> at), static_cast<Part>(b >> at)) & ((1ll << bits) - 1))
                  << at;
    return result;
}
}  // namespace emulator
#define EMULATOR_PARTS_AS(name, Byte, Half, expression)                                        \
    inline unsigned name##4(unsigned x, unsigned y)                                            \
    {                                                                                          \
        return emulator::by_parts<Byte>(x, y, [](int a, int b) -> int { return expression; }); \
    }                                                                                          \
    inline unsigned name##2(unsigned x, unsigned y)                                            \
    {                                                                                          \
        return emulator::by_parts<Half>(x, y, [](int a, int b) -> int { return expression; }); \
    }
#define EMULATOR_PARTS(name, u, s, expression)                                 \
    EMULATOR_PARTS_AS(__v##name##u, unsigned char, unsigned short, expression) \
    EMULATOR_PARTS_AS(__v##name##s, signed char, short, expression)
#define EMULATOR_COMPARED_PARTS(name, sign)            \
    EMULATOR_PARTS(cmp##name, u, s, a sign b ? -1 : 0) \
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
