// Arithmetic of inline PTX.
#include "program.h"

namespace emulator::ptx {

bool parse_type(const std::string& word, Type& t)
{
    if (word == "pred") return t = {'p', 1}, true;
    if (word == "f16") return t = {'h', 16}, true;
    if (word == "bf16") return t = {'g', 16}, true;
    if (word == "tf32") return t = {'t', 32}, true;
    if (word == "f16x2") return t = {'H', 32}, true;
    if (word == "bf16x2") return t = {'G', 32}, true;
    if (word == "e4m3" || word == "e4m3x2") return t = {'4', word.size() == 4 ? 8u : 16u}, true;
    if (word == "e5m2" || word == "e5m2x2") return t = {'5', word.size() == 4 ? 8u : 16u}, true;
    if (word.size() < 2 || !std::strchr("usfb", word[0])) return false;
    const int bits = std::atoi(word.c_str() + 1);
    if (std::to_string(bits) != word.substr(1) || (bits != 8 && bits != 16 && bits != 32 && bits != 64 && bits != 128))
        return false;
    return t = {word[0], static_cast<unsigned>(bits)}, true;
}

std::uint64_t calculate(int code, Type t, std::uint64_t a, std::uint64_t b)
{
    if (t.kind == 'H' || t.kind == 'G') {
        const Type half{t.kind == 'H' ? 'h' : 'g', 16};
        return calculate(code, half, a & 0xffff, b & 0xffff) | calculate(code, half, a >> 16 & 0xffff, b >> 16 & 0xffff)
                                                                   << 16;
    }
    if (is_real(t)) {
        if (t.kind == 'f' && t.bits == 32) {  // rounded once
            const float x = bits_of<float>(std::uint32_t(a)), y = bits_of<float>(std::uint32_t(b));
            const float r = code == add    ? x + y
                            : code == sub  ? x - y
                            : code == mul  ? x * y
                            : code == div_ ? x / y
                            : code == min_ ? fminf(x, y)
                            : code == max_ ? fmaxf(x, y)
                                           : y;
            return bits_of<std::uint32_t>(r);
        }
        const double x = real(a, t), y = real(b, t);
        return bits_of_real(code == add    ? x + y
                            : code == sub  ? x - y
                            : code == mul  ? x * y
                            : code == div_ ? x / y
                            : code == min_ ? fmin(x, y)
                            : code == max_ ? fmax(x, y)
                                           : y,
                            t);
    }
    const unsigned bits = t.kind == 'p' ? 1 : t.bits;
    const bool is_signed = t.kind == 's';
    const std::int64_t x = is_signed ? extended(a, bits) : static_cast<std::int64_t>(cut(a, bits));
    const std::int64_t y = is_signed ? extended(b, bits) : static_cast<std::int64_t>(cut(b, bits));
    const std::uint64_t ux = cut(a, bits), uy = cut(b, bits);
    std::uint64_t r = 0;
    switch (code) {
    case add: r = a + b; break;
    case sub: r = a - b; break;
    case mul: r = a * b; break;
    case mul_hi:
        r = is_signed ? std::uint64_t(__int128(x) * y >> bits) : std::uint64_t((unsigned __int128)ux * uy >> bits);
        break;
    case mul_wide: return is_signed ? cut(x * y, 2 * bits) : cut(ux * uy, 2 * bits);
    case min_: r = is_signed ? std::min(x, y) : std::min(ux, uy); break;
    case max_: r = is_signed ? std::max(x, y) : std::max(ux, uy); break;
    case and_: r = a & b; break;
    case or_: r = a | b; break;
    case xor_: r = a ^ b; break;
    case shl: r = uy >= bits || std::uint32_t(b) >= bits ? 0 : ux << std::uint32_t(b); break;
    case shr:
        r = is_signed                  ? x >> std::min<std::uint32_t>(b, bits - 1)
            : std::uint32_t(b) >= bits ? 0
                                       : ux >> std::uint32_t(b);
        break;
    case div_: r = uy == 0 ? ~0ull : is_signed ? std::uint64_t(x / y) : ux / uy; break;
    case rem: r = uy == 0 ? ux : is_signed ? std::uint64_t(x % y) : ux % uy; break;
    case exch: r = b; break;
    case inc: r = ux >= uy ? 0 : ux + 1; break;
    case dec: r = ux == 0 || ux > uy ? uy : ux - 1; break;
    default: break;  // cas compares, and writes what it is given
    }
    return cut(r, bits);
}

void run_binary(const Instruction& i, Frame& f)
{
    set(i.operands[0], f, calculate(i.code, i.type, get(i.operands[1], f), get(i.operands[2], f)));
}
void run_multiply_add(const Instruction& i, Frame& f)
{
    const std::uint64_t a = get(i.operands[1], f), b = get(i.operands[2], f), c = get(i.operands[3], f);
    if (i.type.kind == 'f' && i.type.bits == 32) {
        set(i.operands[0], f,
            bits_of<std::uint32_t>(fmaf(bits_of<float>(std::uint32_t(a)), bits_of<float>(std::uint32_t(b)),
                                        bits_of<float>(std::uint32_t(c)))));
    } else if (i.type.kind == 'f') {
        set(i.operands[0], f, bits_of<std::uint64_t>(fma(bits_of<double>(a), bits_of<double>(b), bits_of<double>(c))));
    } else if (is_real(i.type)) {
        set(i.operands[0], f, bits_of_real(real(a, i.type) * real(b, i.type) + real(c, i.type), i.type));
    } else if (i.type.kind == 'H' || i.type.kind == 'G') {
        const Type t{i.type.kind == 'H' ? 'h' : 'g', 16};
        const auto one = [&](unsigned by) {
            return bits_of_real(real(a >> by & 0xffff, t) * real(b >> by & 0xffff, t) + real(c >> by & 0xffff, t), t)
                   << by;
        };
        set(i.operands[0], f, one(0) | one(16));
    } else {
        const unsigned bits = i.code == mul_wide ? 2 * i.type.bits : i.type.bits;
        set(i.operands[0], f, cut(calculate(i.code, i.type, a, b) + c, bits));
    }
}
// d = a + b with a carry from the instruction before, for the one after, or both; of mad, a is a half of a product.
void run_carry(const Instruction& i, Frame& f)
{
    const bool is_sum_of_product = i.operands.size() > 3;
    const std::uint64_t a = get(i.operands[1], f), b = get(i.operands[2], f);
    const std::uint64_t first = is_sum_of_product ? calculate(i.code, i.type, a, b) : a;
    const std::uint64_t second = is_sum_of_product ? get(i.operands[3], f) : b;
    using Wide = unsigned __int128;
    const Wide x = cut(first, i.type.bits), y = Wide(cut(second, i.type.bits)) + (i.flag && carry());
    const Wide result = i.code == sub ? x - y : x + y;
    if (i.other) carry() = result >> i.type.bits & 1;
    set(i.operands[0], f, cut(std::uint64_t(result), i.type.bits));
}
static std::uint64_t changed(const std::string& name, Type t, std::uint64_t a)
{
    if (t.kind == 'H' || t.kind == 'G') {
        const Type half{t.kind == 'H' ? 'h' : 'g', 16};
        return changed(name, half, a & 0xffff) | changed(name, half, a >> 16 & 0xffff) << 16;
    }
    const unsigned bits = t.bits;
    if (name == "not") return t.kind == 'p' ? !a : cut(~a, bits);
    if (name == "neg") return is_real(t) ? a ^ 1ull << (bits - 1) : cut(-a, bits);
    if (name == "abs") return is_real(t) ? a & ~(1ull << (bits - 1)) : cut(std::llabs(extended(a, bits)), bits);
    if (name == "popc") return __builtin_popcountll(cut(a, bits));
    if (name == "clz") return cut(a, bits) ? __builtin_clzll(cut(a, bits)) - (64 - bits) : bits;
    if (name == "brev") {
        std::uint64_t r = 0;
        for (unsigned k = 0; k < bits; ++k) r |= (a >> k & 1) << (bits - 1 - k);
        return r;
    }
    const double x = real(a, t);
    return bits_of_real(name == "rcp"     ? 1 / x
                        : name == "sqrt"  ? std::sqrt(x)
                        : name == "rsqrt" ? 1 / std::sqrt(x)
                        : name == "ex2"   ? std::exp2(x)
                        : name == "lg2"   ? std::log2(x)
                        : name == "sin"   ? std::sin(x)
                        : name == "cos"   ? std::cos(x)
                                          : std::tanh(x),
                        t);
}
void run_unary(const Instruction& i, Frame& f)
{
    set(i.operands[0], f, changed(i.words[0], i.type, get(i.operands[1], f)));
}
void run_mov(const Instruction& i, Frame& f)
{
    const Operand &to = i.operands[0], &from = i.operands[1];
    if (to.kind == Operand::list) {  // taken apart
        const std::uint64_t value = get(from, f);
        const unsigned bits = i.type.bits / to.parts.size();
        for (std::size_t k = 0; k < to.parts.size(); ++k) set(to.parts[k], f, cut(value >> k * bits, bits));
    } else if (from.kind == Operand::list && from.parts.size() > 1) {
        std::uint64_t value = 0;
        const unsigned bits = i.type.bits / from.parts.size();
        for (std::size_t k = 0; k < from.parts.size(); ++k) value |= cut(get(from.parts[k], f), bits) << k * bits;
        set(to, f, value);
    } else {
        set(to, f, cut(get(from, f), i.type.bits));
    }
}
static std::uint64_t convert(const Instruction& i, std::uint64_t a, Type to, Type from)
{
    if (to.kind == 't') {
        const std::uint32_t bits = a;
        return (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & 0xffffe000u;
    }
    if (is_real(from)) {
        double x = real(a, from);
        if (i.has("relu") && !(x > 0)) x = 0;
        if (i.has("rni")) x = std::nearbyint(x);
        if (i.has("rzi")) x = std::trunc(x);
        if (i.has("rmi")) x = std::floor(x);
        if (i.has("rpi")) x = std::ceil(x);
        if (i.has("sat")) x = x > 0 ? std::min(x, 1.0) : 0;
        if (is_real(to))
            return i.has("rz") && to.kind == 'f' && to.bits == 32 ? bits_of<std::uint32_t>(cut_to_float(x))
                                                                  : bits_of_real(x, to);
        const double low = to.kind == 's' ? -std::ldexp(1, to.bits - 1) : 0,
                     high = std::ldexp(1, to.bits - (to.kind == 's')) - (to.bits < 64);
        if (std::isnan(x)) return from.bits == 64 || to.bits == 64 ? 1ull << (to.bits - 1) : 0;
        if (x <= low) return cut(static_cast<std::uint64_t>(static_cast<std::int64_t>(low)), to.bits);
        if (x >= high) return to.kind == 's' ? cut(~0ull, to.bits - 1) : cut(~0ull, to.bits);
        return cut(to.kind == 's' ? static_cast<std::uint64_t>(static_cast<std::int64_t>(x))
                                  : static_cast<std::uint64_t>(x),
                   to.bits);
    }
    const std::int64_t x = from.kind == 's' ? extended(a, from.bits) : static_cast<std::int64_t>(cut(a, from.bits));
    if (!is_real(to)) return cut(x, to.bits);
    if (to.kind == 'f' && to.bits == 32)
        return bits_of<std::uint32_t>(from.kind == 's' ? static_cast<float>(x)
                                                       : static_cast<float>(static_cast<std::uint64_t>(x)));
    return bits_of_real(from.kind == 's' ? static_cast<double>(x) : static_cast<double>(static_cast<std::uint64_t>(x)),
                        to);
}
void run_cvt(const Instruction& i, Frame& f)
{
    if (is_fp8(i.type)) {  // two, of a pair or of two operands
        const bool is_pair = i.from.kind == 'H';
        const std::uint64_t first = get(i.operands[1], f);
        const double upper = is_pair ? float_of_half(first >> 16) : real(first, i.from),
                     lower = is_pair ? float_of_half(first) : real(get(i.operands[2], f), i.from);
        const auto packed = [&](double x) { return fp8_of(i.has("relu") && x < 0 ? 0 : x, i.type.kind == '4'); };
        return set(i.operands[0], f, packed(upper) << 8 | packed(lower));
    }
    if (is_fp8(i.from)) {
        const auto unpacked = [&](std::uint64_t bits) {
            const float x = float_of_fp8(bits, i.from.kind == '4');
            return std::uint64_t(half_of(i.has("relu") && x < 0 ? 0 : x));
        };
        const std::uint64_t two = get(i.operands[1], f);
        return set(i.operands[0], f, unpacked(two >> 8) << 16 | unpacked(two));
    }
    if (i.type.kind == 'H' || i.type.kind == 'G') {  // the first goes to the upper half
        const Type half{i.type.kind == 'H' ? 'h' : 'g', 16};
        set(i.operands[0], f,
            convert(i, get(i.operands[1], f), half, i.from) << 16 | convert(i, get(i.operands[2], f), half, i.from));
    } else {
        set(i.operands[0], f, convert(i, get(i.operands[1], f), i.type, i.from));
    }
}
static bool compare(const std::string& how, Type t, std::uint64_t a, std::uint64_t b)
{
    int order;  // -1, 0, 1, or 2: not ordered
    if (is_real(t)) {
        const double x = real(a, t), y = real(b, t);
        order = x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
    } else if (t.kind == 's') {
        const auto x = extended(a, t.bits), y = extended(b, t.bits);
        order = x < y ? -1 : x > y;
    } else {
        const auto x = cut(a, t.bits), y = cut(b, t.bits);
        order = x < y ? -1 : x > y;
    }
    std::string h = how;
    if (order == 2) return h == "ne" ? false : h.size() == 3 ? true : h == "nan";
    if (h == "num") return true;
    if (h == "nan") return false;
    if (h.size() == 3) h.pop_back();  // equ, neu, ltu ...
    if (h == "eq") return order == 0;
    if (h == "ne") return order != 0;
    if (h == "lt" || h == "lo") return order < 0;
    if (h == "le" || h == "ls") return order <= 0;
    if (h == "gt" || h == "hi") return order > 0;
    return order >= 0;
}
void run_setp(const Instruction& i, Frame& f)
{
    bool holds = compare(i.words[1], i.type, get(i.operands[1], f), get(i.operands[2], f));
    bool inverse = !holds;
    if (i.operands.size() > 3) {
        const bool c = get(i.operands[3], f);
        const auto with = [&](bool p) { return i.has("and") ? p && c : i.has("or") ? p || c : p != c; };
        holds = with(holds);
        inverse = with(inverse);
    }
    if (i.operands[0].kind == Operand::list) {
        set(i.operands[0].parts[0], f, holds);
        set(i.operands[0].parts[1], f, inverse);
    } else {
        set(i.operands[0], f, holds);
    }
}
void run_selp(const Instruction& i, Frame& f)
{
    set(i.operands[0], f, get(i.operands[get(i.operands[3], f) ? 1 : 2], f));
}
void run_prmt(const Instruction& i, Frame& f)
{
    set(i.operands[0], f, __byte_perm(get(i.operands[1], f), get(i.operands[2], f), get(i.operands[3], f)));
}
void run_lop3(const Instruction& i, Frame& f)
{
    const std::uint32_t a = get(i.operands[1], f), b = get(i.operands[2], f), c = get(i.operands[3], f);
    const unsigned table = get(i.operands[4], f);
    std::uint32_t r = 0;
    for (unsigned k = 0; k < 8; ++k)
        if (table >> k & 1) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    set(i.operands[0], f, r);
}
void run_shf(const Instruction& i, Frame& f)
{
    const std::uint32_t low = get(i.operands[1], f), high = get(i.operands[2], f);
    std::uint32_t by = get(i.operands[3], f);
    by = i.has("clamp") ? std::min(by, 32u) : by & 31;
    const std::uint64_t both = std::uint64_t(high) << 32 | low;
    set(i.operands[0], f, i.has("l") ? std::uint32_t(both << by >> 32) : std::uint32_t(by == 32 ? high : both >> by));
}
void run_bfe(const Instruction& i, Frame& f)
{
    const unsigned at = get(i.operands[2], f) & 0xff, bits = get(i.operands[3], f) & 0xff;
    const std::uint64_t a = at >= i.type.bits ? 0 : cut(get(i.operands[1], f), i.type.bits) >> at;
    set(i.operands[0], f,
        bits == 0 ? 0 : cut(i.type.kind == 's' ? extended(cut(a, bits), bits) : cut(a, bits), i.type.bits));
}
void run_bfi(const Instruction& i, Frame& f)
{
    const unsigned at = get(i.operands[3], f) & 0xff, bits = get(i.operands[4], f) & 0xff;
    const std::uint64_t mask = cut(~0ull, bits) << at;
    set(i.operands[0], f, cut((get(i.operands[2], f) & ~mask) | (get(i.operands[1], f) << at & mask), i.type.bits));
}
void run_nothing(const Instruction&, Frame&) {}
void run_bra(const Instruction& i, Frame& f) { f.next = i.operands[0].index; }
void run_exit(const Instruction&, Frame& f) { f.next = ~std::size_t(0) - 1; }
void run_trap(const Instruction&, Frame& f)
{
    emulator::trap(" runs the instruction trap", f.source->file, f.source->line);
}

}  // namespace emulator::ptx
