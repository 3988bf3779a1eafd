// An interpreter of inline PTX, and the units that work beside the threads: copies (cp.async, TMA), mbarriers, tensor
// cores. docs/microscope.md lists the instructions.
//
// What is asynchronous on a GPU is late here: a copy brings its data when a thread waits for it and not before, so that
// a thread which does not wait finds the old data, and the tracer says so. Products of wgmma are the exception: their
// sums are there at once, because C++ does not tell when a thread looks at a register; what they read of shared memory
// is in use until the thread waits.
#include "runtime.h"
#include "mma.h"
#include "tensor_core.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace emulator::ptx {
namespace {

// ---- Programs ----------------------------------------------------------------------------------------------------------

struct Type {
    char kind = 'b';  // u, s, f, b; h: half, g: bfloat16
    unsigned bits = 32;
    unsigned bytes() const { return bits / 8; }
};

struct Operand {
    enum Kind { none, slot, immediate, memory, list, label, special, sink } kind = none;
    int index = 0;             // of a slot; the instruction after a label
    bool negated = false;
    bool decimal = false;
    std::uint64_t value = 0;   // of an immediate; the offset of an address
    double number = 0;
    std::uint64_t (*ask)() = nullptr;
    std::string name;
    std::vector<Operand> parts;  // of a list, an address, a pair a|b
};

struct Instruction;
struct Frame {
    std::uint64_t* values;
    unsigned count;
    std::uint64_t* locals;
    const Source* source;
    const void* pc;
    std::size_t next;
};
using Run = void (*)(const Instruction&, Frame&);

struct Instruction {
    Run run = nullptr;
    std::vector<std::string> words;  // of the operation
    std::vector<Operand> operands;
    int predicate = -1;
    bool unless = false;
    Type type, from;
    unsigned width = 1;              // elements of a vector
    int code = 0, depth = 0, rows = 0, columns = 0;
    bool flag = false, other = false;

    // Inlined, so that the length of a word is a constant: they are asked at every step.
    [[gnu::always_inline]] bool has(std::string_view word) const
    {
        for (const auto& w : words)
            if (w.size() == word.size() && !std::memcmp(w.data(), word.data(), word.size())) return true;
        return false;
    }
    [[gnu::always_inline]] bool starts(std::string_view prefix) const
    {
        for (const auto& w : words)
            if (w.size() >= prefix.size() && !std::memcmp(w.data(), prefix.data(), prefix.size())) return true;
        return false;
    }
};

struct Program {
    std::vector<Instruction> code;
    unsigned locals = 0;
};

struct Unknown : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::uint64_t& slot(const Operand& o, Frame& f)
{
    return static_cast<unsigned>(o.index) < f.count ? f.values[o.index] : f.locals[o.index - f.count];
}

std::uint64_t get(const Operand& o, Frame& f)
{
    switch (o.kind) {
    case Operand::slot: {
        const std::uint64_t value = slot(o, f);
        return o.negated ? !value : value;
    }
    case Operand::immediate: return o.value;
    case Operand::special: return o.ask();
    case Operand::list: return get(o.parts[0], f);
    default: return 0;
    }
}
void set(const Operand& o, Frame& f, std::uint64_t value)
{
    if (o.kind == Operand::slot) slot(o, f) = value;
}
std::uint64_t address(const Operand& o, Frame& f) { return get(o.parts[0], f) + o.value; }

// ---- Numbers -------------------------------------------------------------------------------------------------------------

std::uint64_t cut(std::uint64_t value, unsigned bits) { return bits >= 64 ? value : value & ((1ull << bits) - 1); }
std::int64_t extended(std::uint64_t value, unsigned bits)
{
    return bits >= 64 ? static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value << (64 - bits)) >> (64 - bits);
}
double real(std::uint64_t bits, Type t)
{
    if (t.kind == 'h') return float_of_half(bits);
    if (t.kind == 'g') return float_of_bfloat16(bits);
    return t.bits == 64 ? bits_of<double>(bits) : bits_of<float>(static_cast<std::uint32_t>(bits));
}
std::uint64_t bits_of_real(double value, Type t)
{
    if (t.kind == 'h') return half_of(static_cast<float>(value));
    if (t.kind == 'g') return bfloat16_of(static_cast<float>(value));
    return t.bits == 64 ? bits_of<std::uint64_t>(value) : bits_of<std::uint32_t>(static_cast<float>(value));
}
bool is_real(Type t) { return t.kind == 'f' || t.kind == 'h' || t.kind == 'g'; }

bool parse_type(const std::string& word, Type& t)
{
    if (word == "pred") return t = {'p', 1}, true;
    if (word == "f16") return t = {'h', 16}, true;
    if (word == "bf16") return t = {'g', 16}, true;
    if (word == "tf32") return t = {'t', 32}, true;
    if (word == "f16x2") return t = {'H', 32}, true;
    if (word == "bf16x2") return t = {'G', 32}, true;
    if (word.size() < 2 || !std::strchr("usfb", word[0])) return false;
    const int bits = std::atoi(word.c_str() + 1);
    if (std::to_string(bits) != word.substr(1) || (bits != 8 && bits != 16 && bits != 32 && bits != 64 && bits != 128))
        return false;
    return t = {word[0], static_cast<unsigned>(bits)}, true;
}

enum Code { add, sub, mul, mul_hi, mul_wide, min_, max_, and_, or_, xor_, shl, shr, div_, rem, exch, inc, dec, cas };

std::uint64_t calculate(int code, Type t, std::uint64_t a, std::uint64_t b)
{
    if (t.kind == 'H' || t.kind == 'G') {
        const Type half{t.kind == 'H' ? 'h' : 'g', 16};
        return calculate(code, half, a & 0xffff, b & 0xffff) | calculate(code, half, a >> 16 & 0xffff, b >> 16 & 0xffff) << 16;
    }
    if (is_real(t)) {
        if (t.kind == 'f' && t.bits == 32) {  // rounded once
            const float x = bits_of<float>(std::uint32_t(a)), y = bits_of<float>(std::uint32_t(b));
            const float r = code == add ? x + y : code == sub ? x - y : code == mul ? x * y : code == div_ ? x / y
                          : code == min_ ? fminf(x, y) : code == max_ ? fmaxf(x, y) : y;
            return bits_of<std::uint32_t>(r);
        }
        const double x = real(a, t), y = real(b, t);
        return bits_of_real(code == add ? x + y : code == sub ? x - y : code == mul ? x * y : code == div_ ? x / y
                          : code == min_ ? fmin(x, y) : code == max_ ? fmax(x, y) : y, t);
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
    case mul_hi: r = is_signed ? std::uint64_t(__int128(x) * y >> bits) : std::uint64_t((unsigned __int128)ux * uy >> bits); break;
    case mul_wide: return is_signed ? cut(x * y, 2 * bits) : cut(ux * uy, 2 * bits);
    case min_: r = is_signed ? std::min(x, y) : std::min(ux, uy); break;
    case max_: r = is_signed ? std::max(x, y) : std::max(ux, uy); break;
    case and_: r = a & b; break;
    case or_: r = a | b; break;
    case xor_: r = a ^ b; break;
    case shl: r = uy >= bits || std::uint32_t(b) >= bits ? 0 : ux << std::uint32_t(b); break;
    case shr: r = is_signed ? x >> std::min<std::uint32_t>(b, bits - 1) : std::uint32_t(b) >= bits ? 0 : ux >> std::uint32_t(b); break;
    case div_: r = uy == 0 ? ~0ull : is_signed ? std::uint64_t(x / y) : ux / uy; break;
    case rem: r = uy == 0 ? ux : is_signed ? std::uint64_t(x % y) : ux % uy; break;
    case exch: r = b; break;
    case inc: r = ux >= uy ? 0 : ux + 1; break;
    case dec: r = ux == 0 || ux > uy ? uy : ux - 1; break;
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
        set(i.operands[0], f, bits_of<std::uint32_t>(fmaf(bits_of<float>(std::uint32_t(a)), bits_of<float>(std::uint32_t(b)), bits_of<float>(std::uint32_t(c)))));
    } else if (i.type.kind == 'f') {
        set(i.operands[0], f, bits_of<std::uint64_t>(fma(bits_of<double>(a), bits_of<double>(b), bits_of<double>(c))));
    } else if (is_real(i.type)) {
        set(i.operands[0], f, bits_of_real(real(a, i.type) * real(b, i.type) + real(c, i.type), i.type));
    } else if (i.type.kind == 'H' || i.type.kind == 'G') {
        const Type t{i.type.kind == 'H' ? 'h' : 'g', 16};
        const auto one = [&](unsigned by) {
            return bits_of_real(real(a >> by & 0xffff, t) * real(b >> by & 0xffff, t) + real(c >> by & 0xffff, t), t) << by;
        };
        set(i.operands[0], f, one(0) | one(16));
    } else {
        const unsigned bits = i.code == mul_wide ? 2 * i.type.bits : i.type.bits;
        set(i.operands[0], f, cut(calculate(i.code, i.type, a, b) + c, bits));
    }
}
void run_unary(const Instruction& i, Frame& f)
{
    const std::uint64_t a = get(i.operands[1], f);
    const std::string& name = i.words[0];
    const unsigned bits = i.type.bits;
    std::uint64_t r = 0;
    if (name == "not") r = i.type.kind == 'p' ? !a : cut(~a, bits);
    else if (name == "neg") r = is_real(i.type) ? a ^ 1ull << (bits - 1) : cut(-a, bits);
    else if (name == "abs") r = is_real(i.type) ? a & ~(1ull << (bits - 1)) : cut(std::llabs(extended(a, bits)), bits);
    else if (name == "popc") r = __builtin_popcountll(cut(a, bits));
    else if (name == "clz") r = cut(a, bits) ? __builtin_clzll(cut(a, bits)) - (64 - bits) : bits;
    else if (name == "brev") { for (unsigned k = 0; k < bits; ++k) r |= (a >> k & 1) << (bits - 1 - k); }
    else if (name == "rcp") r = bits_of_real(1 / real(a, i.type), i.type);
    else if (name == "sqrt") r = bits_of_real(std::sqrt(real(a, i.type)), i.type);
    else if (name == "rsqrt") r = bits_of_real(1 / std::sqrt(real(a, i.type)), i.type);
    else if (name == "ex2") r = bits_of_real(std::exp2(real(a, i.type)), i.type);
    else if (name == "lg2") r = bits_of_real(std::log2(real(a, i.type)), i.type);
    set(i.operands[0], f, r);
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
std::uint64_t convert(const Instruction& i, std::uint64_t a, Type to, Type from)
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
        if (is_real(to)) return i.has("rz") && to.kind == 'f' && to.bits == 32 ? bits_of<std::uint32_t>(cut_to_float(x)) : bits_of_real(x, to);
        const double low = to.kind == 's' ? -std::ldexp(1, to.bits - 1) : 0, high = std::ldexp(1, to.bits - (to.kind == 's')) - (to.bits < 64);
        if (std::isnan(x)) return 0;
        if (x <= low) return cut(static_cast<std::uint64_t>(static_cast<std::int64_t>(low)), to.bits);
        if (x >= high) return to.kind == 's' ? cut(~0ull, to.bits - 1) : cut(~0ull, to.bits);
        return cut(to.kind == 's' ? static_cast<std::uint64_t>(static_cast<std::int64_t>(x)) : static_cast<std::uint64_t>(x), to.bits);
    }
    const std::int64_t x = from.kind == 's' ? extended(a, from.bits) : static_cast<std::int64_t>(cut(a, from.bits));
    if (!is_real(to)) return cut(x, to.bits);
    if (to.kind == 'f' && to.bits == 32)
        return bits_of<std::uint32_t>(from.kind == 's' ? static_cast<float>(x) : static_cast<float>(static_cast<std::uint64_t>(x)));
    return bits_of_real(from.kind == 's' ? static_cast<double>(x) : static_cast<double>(static_cast<std::uint64_t>(x)), to);
}
void run_cvt(const Instruction& i, Frame& f)
{
    if (i.type.kind == 'H' || i.type.kind == 'G') {  // the first goes to the upper half
        const Type half{i.type.kind == 'H' ? 'h' : 'g', 16};
        set(i.operands[0], f, convert(i, get(i.operands[1], f), half, i.from) << 16 | convert(i, get(i.operands[2], f), half, i.from));
    } else {
        set(i.operands[0], f, convert(i, get(i.operands[1], f), i.type, i.from));
    }
}
bool compare(const std::string& how, Type t, std::uint64_t a, std::uint64_t b)
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
void run_selp(const Instruction& i, Frame& f) { set(i.operands[0], f, get(i.operands[get(i.operands[3], f) ? 1 : 2], f)); }
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
    set(i.operands[0], f, bits == 0 ? 0 : cut(i.type.kind == 's' ? extended(cut(a, bits), bits) : cut(a, bits), i.type.bits));
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
void run_trap(const Instruction&, Frame& f) { emulator::trap(" runs the instruction trap", f.source->file, f.source->line); }

// ---- Memory ----------------------------------------------------------------------------------------------------------------

char* pointer(const Instruction& i, std::uint64_t at)
{
    return i.starts("shared") ? shared_pointer(at) : reinterpret_cast<char*>(at);
}

void complain(Frame& f, const std::string& text, bool last = false)
{
    const unsigned t = thread_in_block();
    char who[64];
    std::snprintf(who, sizeof who, "thread (%u, %u): ", t % blockDim.x, t / blockDim.x % blockDim.y);
    watch::asynchrony(who + text, f.source->file, f.source->line, f.pc, last);
}

bool is_strong(const Instruction& i)
{
    return i.has("acquire") || i.has("relaxed") || i.has("release") || (i.has("volatile") && !i.starts("shared"));
}

void run_ld(const Instruction& i, Frame& f)
{
    const unsigned bytes = i.type.bytes();
    const char* from = pointer(i, address(i.operands[1], f));
    if (is_strong(i)) asks(from, bytes * i.width, f.pc), watch::atomic(from, bytes * i.width, false, f.pc);
    else if (!watch::accesses(from, bytes * i.width, false, f.pc) && i.starts("shared")) return;
    for (unsigned k = 0; k < i.width; ++k) {
        std::uint64_t value = 0;
        std::memcpy(&value, from + k * bytes, bytes);
        if (i.type.kind == 's') value = extended(value, i.type.bits);
        set(i.operands[0].kind == Operand::list ? i.operands[0].parts[k] : i.operands[0], f, value);
    }
}
void run_st(const Instruction& i, Frame& f)
{
    const unsigned bytes = i.type.bytes();
    char* to = pointer(i, address(i.operands[0], f));
    if (i.has("release")) fence(1);
    if (is_strong(i)) watch::atomic(to, bytes * i.width, true, f.pc);
    else if (!watch::accesses(to, bytes * i.width, true, f.pc) && i.starts("shared")) return;
    for (unsigned k = 0; k < i.width; ++k) {
        const std::uint64_t value = get(i.operands[1].kind == Operand::list ? i.operands[1].parts[k] : i.operands[1], f);
        std::memcpy(to + k * bytes, &value, bytes);
    }
}
void run_atom(const Instruction& i, Frame& f)
{
    const bool returns = i.words[0] == "atom";
    const std::size_t first = returns ? 1 : 0;
    char* at = pointer(i, address(i.operands[first], f));
    const unsigned bytes = i.type.bytes();
    if (i.has("release") || i.has("acq_rel")) fence(1);
    asks(at, bytes, f.pc);
    watch::atomic(at, bytes, true, f.pc);
    std::uint64_t before = 0, after;
    std::memcpy(&before, at, bytes);
    const std::uint64_t b = cut(get(i.operands[first + 1], f), i.type.bits);
    if (i.code == cas) after = before == b ? get(i.operands[first + 2], f) : before;
    else after = calculate(i.code, i.type, before, b);
    std::memcpy(at, &after, bytes);
    if (returns) set(i.operands[0], f, before);
}
void run_cvta(const Instruction& i, Frame& f)
{
    const std::uint64_t a = get(i.operands[1], f);
    const bool to = i.has("to"), shared = i.starts("shared");
    const std::uint64_t r = !shared ? a : to ? shared_number(reinterpret_cast<void*>(a)) : reinterpret_cast<std::uintptr_t>(shared_pointer(a));
    set(i.operands[0], f, cut(r, i.type.bits));
}
void run_isspacep(const Instruction& i, Frame& f)
{
    const std::uint64_t offset = get(i.operands[1], f) - reinterpret_cast<std::uintptr_t>(shared_window);
    const bool shared = offset >> block_window_bits < cluster_blocks && rank_of_shared(offset) / cluster_size == block_rank() / cluster_size;
    const bool own = shared && rank_of_shared(offset) == block_rank();
    set(i.operands[0], f, i.has("shared::cluster") ? shared : i.starts("shared") ? own : !shared);
}
// The same place in the shared memory of another block of the cluster.
void run_mapa(const Instruction& i, Frame& f)
{
    const unsigned rank = get(i.operands[2], f);
    const std::uint64_t a = get(i.operands[1], f);
    if (rank >= cluster_size)
        return complain(f, "mapa asks for block " + std::to_string(rank) + " of a cluster of " + std::to_string(cluster_size), true);
    const bool is_number = i.starts("shared");
    const std::uint32_t number = in_block_of(is_number ? a : shared_number(reinterpret_cast<void*>(a)), first_rank() + rank);
    set(i.operands[0], f, is_number ? number : reinterpret_cast<std::uintptr_t>(shared_pointer(number)));
}
void run_getctarank(const Instruction& i, Frame& f)
{
    const std::uint64_t a = get(i.operands[1], f);
    set(i.operands[0], f, rank_of_shared(i.starts("shared") ? a : shared_number(reinterpret_cast<void*>(a))) % cluster_size);
}

// ---- Barriers in shared memory -----------------------------------------------------------------------------------------------

struct MBarrier {
    std::uint32_t at;
    int expected = 0, pending = 0;
    std::int64_t bytes = 0;   // that are announced and have not come
    unsigned phase = 0;       // how many are over
    bool shown = false;       // to the units
    unsigned worker;          // what brings its bytes
    std::string made;         // where
    Known coming, known;      // of those who have arrived; of the phases that are over
};
std::unordered_map<std::uint32_t, MBarrier> barriers;

MBarrier* barrier_at(std::uint32_t number, Frame& f, bool quietly = false)
{
    const auto found = barriers.find(number);
    if (found == barriers.end()) {
        char text[96];
        std::snprintf(text, sizeof text, "there is no mbarrier at 0x%x of shared memory (mbarrier.init makes one)", number);
        complain(f, text, true);
        return nullptr;
    }
    if (!quietly) watch::uses(shared_pointer(number), 8, false, f.pc);
    return &found->second;
}

std::string describe(const MBarrier& b)
{
    char text[120];
    std::snprintf(text, sizeof text, ") at 0x%x, of which %d of %d arrivals", b.at, b.pending, b.expected);
    std::string said = "the mbarrier (made at " + b.made + text;
    if (b.bytes > 0) said += " and " + std::to_string(b.bytes) + " bytes";
    said += " are missing in phase " + std::to_string(b.phase);
    return b.bytes < 0 ? said + ", where " + std::to_string(-b.bytes) + " bytes more have come than were announced" : said;
}

void look(MBarrier& b)
{
    if (b.pending || b.bytes) return;
    ++b.phase;
    b.pending = b.expected;
    b.known = b.coming;
    wake(&b);
}

void arrive(MBarrier& b, int count, Frame& f)
{
    watch::release(b.coming);
    if (count > b.pending) {
        complain(f, "arrives at " + describe(b) + ": more arrivals than it was made for");
        count = b.pending;
    }
    b.pending -= count;
    look(b);
}

void run_mbarrier(const Instruction& i, Frame& f)
{
    const std::string& what = i.words[1];
    const bool returns = what == "test_wait" || what == "try_wait" || what == "arrive" || what == "arrive_drop";
    // A remote or sunk state may be left out: mbarrier.arrive.shared::cluster.b64 _, [a]
    const std::size_t first = returns && i.operands[0].kind != Operand::memory ? 1 : 0;
    const std::uint32_t at = i.starts("shared") ? address(i.operands[first], f)
                                                : shared_number(reinterpret_cast<void*>(address(i.operands[first], f)));
    const auto argument = [&](std::size_t k, std::uint64_t otherwise) {
        return first + k < i.operands.size() ? get(i.operands[first + k], f) : otherwise;
    };
    if (what == "init") {
        if (at % 8) return complain(f, "makes an mbarrier at an address that 8 does not divide");
        watch::uses(shared_pointer(at), 8, true, f.pc);
        const unsigned worker = copies_of_barrier + barriers.size() % 64;
        MBarrier& b = barriers[at] = MBarrier{};
        b.at = at;
        b.expected = b.pending = argument(1, 1);
        b.worker = worker;
        b.made = watch::place(f.pc, f.source->file, f.source->line);
        return;
    }
    MBarrier* b = barrier_at(at, f);
    if (!b) return;
    if (what == "inval") {
        watch::uses(shared_pointer(at), 8, true, f.pc);
        barriers.erase(at);
    } else if (what == "expect_tx") {
        b->bytes += argument(1, 0);
    } else if (what == "complete_tx") {
        b->bytes -= argument(1, 0);
        look(*b);
    } else if (what == "arrive" || what == "arrive_drop") {
        if (returns && first) set(i.operands[0], f, b->phase);
        if (what == "arrive_drop") --b->expected;
        if (i.has("expect_tx")) {
            b->bytes += argument(1, 0);
            arrive(*b, 1, f);
        } else {
            arrive(*b, argument(1, 1), f);
        }
    } else if (what == "test_wait" || what == "try_wait") {
        const std::uint64_t wanted = argument(1, 0);
        const auto done = [&] { return i.has("parity") ? (b->phase & 1) != (wanted & 1) : b->phase != wanted; };
        if (what == "try_wait") {
            while (!done())
                sleep_for(b, [](const void* o, std::uint64_t) { return describe(*static_cast<const MBarrier*>(o)); }, 0, f.source->file, f.source->line, f.pc);
        } else if (!done()) {
            let_others_run(f.source->file, f.source->line, f.pc);
        }
        const bool over = done();
        if (over) watch::acquire(b->known);
        set(i.operands[0], f, over);
    }
}

// ---- Copies --------------------------------------------------------------------------------------------------------------------

// The statement that a thread was at when it asked for work.
struct Origin {
    const Source* source;
    const void* pc;
};

struct Piece {
    char* to;
    std::vector<char> bytes;
    const char* from = nullptr;  // in shared memory, to be read when the copy ends; else null
};

// cp.async: of each thread, by group. An mbarrier may wait for the same pieces, so whoever comes first brings them.
struct Group {
    std::vector<Piece> pieces;
    Origin origin;  // of the last of them
};
using Pieces = std::shared_ptr<Group>;
struct Own {
    Pieces open = std::make_shared<Group>();
    std::deque<Pieces> groups;
    std::vector<Pieces> counted;  // by an mbarrier
    std::vector<unsigned> workers;  // of the mbarriers that counted some
};
std::vector<Own> own;

void bring(const Pieces& pieces, unsigned worker)
{
    for (Piece& piece : pieces->pieces) {
        std::memcpy(piece.to, piece.bytes.data(), piece.bytes.size());
        watch::copy_ends(piece.to, piece.bytes.size(), worker);
    }
    pieces->pieces.clear();
}

void run_cp_async(const Instruction& i, Frame& f)
{
    const unsigned bytes = get(i.operands[2], f);
    unsigned given = i.operands.size() > 3 && i.operands[3].kind != Operand::none ? get(i.operands[3], f) : bytes;
    if (i.other) given = bytes;  // the operand is a cache policy
    char* to = shared_pointer(address(i.operands[0], f));
    const char* from = reinterpret_cast<const char*>(address(i.operands[1], f));
    if (reinterpret_cast<std::uintptr_t>(to) % bytes) {
        watch::accesses(to, bytes, true, f.pc);  // reports it
        return;
    }
    if (given > bytes) {
        complain(f, "cp.async reads " + std::to_string(given) + " bytes and writes " + std::to_string(bytes));
        given = bytes;
    }
    Piece piece{to, std::vector<char>(bytes)};
    watch::goes_by(watch::by_copy);
    const bool is_there = given && watch::accesses(from, bytes, false, f.pc);
    watch::goes_by(watch::plain);
    if (is_there) std::memcpy(piece.bytes.data(), from, given);
    watch::copy_begins(to, bytes, f.pc, false);
    own[thread_number()].open->pieces.push_back(std::move(piece));
    own[thread_number()].open->origin = {f.source, f.pc};
}

void run_commit(const Instruction&, Frame&)
{
    Own& mine = own[thread_number()];
    mine.groups.push_back(std::exchange(mine.open, std::make_shared<Group>()));
}

void run_wait_group(const Instruction& i, Frame& f)
{
    Own& mine = own[thread_number()];
    if (i.flag) {  // wait_all
        run_commit(i, f);
        while (!mine.groups.empty()) bring(mine.groups.front(), thread_number()), mine.groups.pop_front();
        for (const Pieces& pieces : std::exchange(mine.counted, {})) bring(pieces, thread_number());
        return;
    }
    const std::size_t left = get(i.operands[0], f);
    while (mine.groups.size() > left) bring(mine.groups.front(), thread_number()), mine.groups.pop_front();
}

// What a tensor map says, as build/emulator.py packs it.
struct TensorMap {
    std::uint32_t magic, rank, bytes, swizzle;  // bytes of an element
    std::uint64_t base, shape[5], pitch[5];     // the innermost dimension first; pitch in bytes
    std::uint16_t box[5], step[5];
};
static_assert(sizeof(TensorMap) <= 128);
constexpr std::uint32_t map_magic = 0x70616d54;

std::uint32_t swizzled(std::uint32_t at, unsigned swizzle)
{
    if (swizzle == 128) return at ^ (at >> 3 & 0x70);
    if (swizzle == 64) return at ^ (at >> 3 & 0x30);
    if (swizzle == 32) return at ^ (at >> 3 & 0x10);
    return at;
}

const TensorMap* map_at(std::uint64_t at, Frame& f)
{
    const auto* map = reinterpret_cast<const TensorMap*>(at);
    if (map->magic == map_magic) return map;
    complain(f, "this is no tensor map of the launch; give it to the kernel as an argument {tensor_map: ...}");
    return nullptr;
}

// Calls f(offset in the box in bytes, address in global memory, bytes) for each row of a box that lies within the array.
template <typename F>
unsigned for_rows(const TensorMap& map, const std::int64_t* at, F&& each)
{
    unsigned rows = 1;
    for (unsigned d = 1; d < map.rank; ++d) rows *= map.box[d];
    const unsigned row_bytes = map.box[0] * map.bytes;
    for (unsigned row = 0; row < rows; ++row) {
        std::uint64_t from = map.base;
        bool inside = true;
        for (unsigned d = 1, rest = row; d < map.rank; rest /= map.box[d], ++d) {
            const std::int64_t c = at[d] + static_cast<std::int64_t>(rest % map.box[d]) * map.step[d];
            inside &= c >= 0 && c < static_cast<std::int64_t>(map.shape[d]);
            from += c * map.pitch[d];
        }
        const std::int64_t first = std::max<std::int64_t>(0, -at[0]);
        const std::int64_t last = std::min<std::int64_t>(map.box[0], static_cast<std::int64_t>(map.shape[0]) - at[0]);
        if (inside && first < last)
            each(row * row_bytes + first * map.bytes, from + (at[0] + first) * map.bytes, (last - first) * map.bytes);
    }
    return rows * row_bytes;
}

// Copies that an mbarrier counts.
struct Coming {
    std::uint32_t barrier;
    std::uint32_t bytes;
    std::vector<Piece> pieces;
    int thread = -1;                // whose cp.async these are; it arrives with them
    std::vector<Pieces> of_thread;
    Origin origin{};
};
std::deque<Coming> under_way;

// cp.async.mbarrier.arrive: the thread arrives when its copies have come.
void run_cp_async_arrive(const Instruction& i, Frame& f)
{
    Own& mine = own[thread_number()];
    const std::uint32_t at = i.starts("shared") ? address(i.operands[0], f) : shared_number(reinterpret_cast<void*>(address(i.operands[0], f)));
    MBarrier* b = barrier_at(at, f);
    if (!b) return;
    if (!i.has("noinc")) ++b->pending;
    mine.counted.erase(std::remove_if(mine.counted.begin(), mine.counted.end(), [](const Pieces& p) { return p->pieces.empty(); }),
                       mine.counted.end());
    std::vector<Pieces> all(mine.groups.begin(), mine.groups.end());
    all.push_back(std::exchange(mine.open, std::make_shared<Group>()));
    mine.counted.insert(mine.counted.end(), all.begin(), all.end());
    if (std::find(mine.workers.begin(), mine.workers.end(), b->worker) == mine.workers.end()) mine.workers.push_back(b->worker);
    under_way.push_back({at, 0, {}, int(thread_number()), all, {f.source, f.pc}});
    watch::release(b->coming);
}

bool deliver()
{
    if (under_way.empty()) return false;
    std::size_t which = is_random() ? random_number() % under_way.size() : 0;
    if (under_way[which].thread >= 0)  // those of one thread come in their order
        which = std::find_if(under_way.begin(), under_way.end(), [&](const Coming& c) { return c.thread == under_way[which].thread; }) -
                under_way.begin();
    Coming copy = std::move(under_way[which]);
    under_way.erase(under_way.begin() + which);
    const auto found = barriers.find(copy.barrier);
    for (Piece& piece : copy.pieces) {
        if (piece.from) std::copy_n(piece.from, piece.bytes.size(), piece.bytes.begin());
        std::memcpy(piece.to, piece.bytes.data(), piece.bytes.size());
        watch::copy_ends(piece.to, piece.bytes.size(), found == barriers.end() ? 0u + stores : found->second.worker);
    }
    for (const Pieces& pieces : copy.of_thread) bring(pieces, found == barriers.end() ? 0u + stores : found->second.worker);
    if (found != barriers.end()) {
        MBarrier& b = found->second;
        watch::finished(b.coming, b.worker);
        b.bytes -= copy.bytes;
        if (copy.thread >= 0) {
            for (unsigned worker : own[copy.thread].workers) watch::finished(b.coming, worker);
            if (b.pending) --b.pending;
        }
        look(b);
    }
    return true;
}

MBarrier* barrier_of_copy(std::uint32_t at, Frame& f)
{
    MBarrier* b = barrier_at(at, f);
    if (b && !b->shown) {
        complain(f, "a copy counts at the mbarrier made at " + b->made +
                        ", which no fence has shown to it (fence.mbarrier_init or fence.proxy.async)");
        b->shown = true;
    }
    return b;
}

// Into the blocks of the cluster that `mask` names, or to `to` alone (mask 0): a copy of these pieces, whose places count
// from `to`, and whose barrier lies in the same block.
void send(std::uint32_t to, std::uint32_t barrier, unsigned mask, std::uint32_t bytes,
          const std::vector<std::pair<std::uint32_t, Piece>>& pieces, Frame& f)
{
    if (!mask && rank_of_shared(to) != rank_of_shared(barrier))
        return complain(f, "a copy goes into one block of the cluster and counts at an mbarrier of another");
    if (mask >> cluster_size)
        return complain(f, "the mask of .multicast names blocks that a cluster of " + std::to_string(cluster_size) + " does not have", true);
    const unsigned first = rank_of_shared(to) / cluster_size * cluster_size;
    const unsigned ranks = mask ? mask : 1u << rank_of_shared(to) % cluster_size;
    for (unsigned rank = first; ranks >> (rank - first); ++rank) {
        if (!(ranks >> (rank - first) & 1)) continue;
        MBarrier* b = barrier_of_copy(in_block_of(barrier, rank), f);
        if (!b) return;
        char* const begin = shared_pointer(in_block_of(to, rank));
        watch::copy_begins(begin, bytes, f.pc, true);
        Coming copy{b->at, bytes, {}, -1, {}, {f.source, f.pc}};
        for (const auto& [at, piece] : pieces) {
            copy.pieces.push_back(piece);
            copy.pieces.back().to = begin + at;
        }
        under_way.push_back(std::move(copy));
    }
}

unsigned mask_of_blocks(const Instruction& i, std::size_t operand, Frame& f)
{
    return i.has("multicast::cluster") ? get(i.operands[operand], f) & 0xffff : 0;
}

void run_bulk_load(const Instruction& i, Frame& f)  // [to], [from], bytes, [barrier], mask
{
    const std::uint32_t to = address(i.operands[0], f), bytes = get(i.operands[2], f);
    const auto* from = reinterpret_cast<const char*>(address(i.operands[1], f));
    if (to % 16 || reinterpret_cast<std::uintptr_t>(from) % 16 || bytes % 16)
        return complain(f, "both addresses and the size of cp.async.bulk must be multiples of 16 bytes");
    if (!watch::uses(from, bytes, false, f.pc)) return;
    const unsigned mask = mask_of_blocks(i, 4, f);
    watch::global_request(from, bytes, false, __builtin_popcount(mask));
    if (!mask) watch::block_request(shared_pointer(to), bytes);
    send(to, address(i.operands[3], f), mask, bytes, {{0, {nullptr, {from, from + bytes}}}}, f);
}

// From shared memory of the block into that of a block of its cluster. It reads when it ends.
void run_bulk_between(const Instruction& i, Frame& f)  // [to], [from], bytes, [barrier]
{
    const std::uint32_t to = address(i.operands[0], f), from = address(i.operands[1], f), bytes = get(i.operands[2], f);
    const std::uint32_t barrier = address(i.operands[3], f);
    if (to % 16 || from % 16 || bytes % 16)
        return complain(f, "both addresses and the size of cp.async.bulk must be multiples of 16 bytes");
    const auto found = barriers.find(barrier);
    watch::unit_reads(shared_pointer(from), bytes, f.pc, found == barriers.end() ? 0u + stores : found->second.worker);
    watch::block_request(shared_pointer(to), bytes);
    send(to, barrier, 0, bytes, {{0, {nullptr, std::vector<char>(bytes), shared_pointer(from)}}}, f);
}

// A value into shared memory of a block of the cluster, counted by an mbarrier there.
void run_st_async(const Instruction& i, Frame& f)  // [to], value, [barrier]
{
    const unsigned bytes = i.type.bytes();
    const std::uint32_t to = address(i.operands[0], f);
    if (to % (bytes * i.width)) return (void)watch::accesses(shared_pointer(to), bytes * i.width, true, f.pc);  // reports it
    Piece piece{nullptr, std::vector<char>(bytes * i.width)};
    for (unsigned k = 0; k < i.width; ++k) {
        const std::uint64_t value = get(i.operands[1].kind == Operand::list ? i.operands[1].parts[k] : i.operands[1], f);
        std::memcpy(piece.bytes.data() + k * bytes, &value, bytes);
    }
    watch::block_request(shared_pointer(to), bytes * i.width);
    send(to, address(i.operands[2], f), 0, bytes * i.width, {{0, piece}}, f);
}

std::vector<std::int64_t> coordinates(const Operand& map, Frame& f)
{
    std::vector<std::int64_t> at;
    for (const Operand& c : map.parts[1].parts) at.push_back(static_cast<std::int32_t>(get(c, f)));
    return at;
}

void run_box_load(const Instruction& i, Frame& f)  // [to], [map, {c}], [barrier], mask
{
    const std::uint32_t to = address(i.operands[0], f);
    const TensorMap* map = map_at(address(i.operands[1], f), f);
    if (!map) return;
    const auto at = coordinates(i.operands[1], f);
    if (at.size() != map->rank) return complain(f, "the box has " + std::to_string(at.size()) + " coordinates, the tensor map " + std::to_string(map->rank) + " dimensions");
    if (to % 128) return complain(f, "the box goes to an address of shared memory that 128 does not divide");
    std::vector<char> box(1);
    unsigned rows = 1;
    for (unsigned d = 1; d < map->rank; ++d) rows *= map->box[d];
    const unsigned mask = mask_of_blocks(i, 3, f);
    box.assign(rows * map->box[0] * map->bytes, 0);
    for_rows(*map, at.data(), [&](unsigned offset, std::uint64_t from, unsigned bytes) {
        watch::uses(reinterpret_cast<void*>(from), bytes, false, f.pc);
        watch::global_request(reinterpret_cast<void*>(from), bytes, false, __builtin_popcount(mask));
        std::memcpy(box.data() + offset, reinterpret_cast<void*>(from), bytes);
    });
    std::vector<std::pair<std::uint32_t, Piece>> pieces;
    for (unsigned offset = 0; offset < box.size(); offset += 16) {
        const unsigned bytes = std::min<unsigned>(16, box.size() - offset);
        pieces.push_back({swizzled(to + offset, map->swizzle) - to, {nullptr, {box.begin() + offset, box.begin() + offset + bytes}}});
    }
    if (!mask) watch::block_request(shared_pointer(to), box.size());
    send(to, address(i.operands[2], f), mask, box.size(), pieces, f);
}

// Copies from shared to global memory: of each thread, by group. They read when they must be done, not before.
struct Store {
    std::uint32_t from;
    std::uint64_t to;
    unsigned bytes;
    const TensorMap* map;
    std::vector<std::int64_t> at;
    Origin origin;
    int reduce;  // -1, or the Code
    Type type;
};
struct Leaving {
    std::vector<Store> open;
    std::deque<std::vector<Store>> groups;
    std::deque<std::uint32_t> closed;  // when each group was
};
std::map<unsigned, Leaving> leaving;

void put_out(const std::vector<Store>& group)
{
    for (const Store& s : group) {
        const auto write = [&](std::uint32_t offset, std::uint64_t to, unsigned bytes, unsigned swizzle) {
            if (!watch::uses(reinterpret_cast<void*>(to), bytes, true, s.origin.pc)) return;
            for (unsigned k = 0; k < bytes;) {
                const unsigned n = std::min(bytes - k, 16 - (s.from + offset + k) % 16);
                const char* from = shared_pointer(swizzled(s.from + offset + k, swizzle));
                if (s.reduce < 0) {
                    std::memcpy(reinterpret_cast<char*>(to) + k, from, n);
                } else {
                    for (unsigned e = 0; e < n; e += s.type.bytes()) {
                        std::uint64_t a = 0, b = 0;
                        std::memcpy(&a, reinterpret_cast<char*>(to) + k + e, s.type.bytes());
                        std::memcpy(&b, from + e, s.type.bytes());
                        a = calculate(s.reduce, s.type, a, b);
                        std::memcpy(reinterpret_cast<char*>(to) + k + e, &a, s.type.bytes());
                    }
                }
                k += n;
            }
            watch::global_request(reinterpret_cast<void*>(to), bytes, true);
        };
        if (s.map)
            for_rows(*s.map, s.at.data(), [&](unsigned offset, std::uint64_t to, unsigned bytes) { write(offset, to, bytes, s.map->swizzle); });
        else
            write(0, s.to, s.bytes, 0);
    }
}

int reduction_of(const Instruction& i)
{
    return i.words[1] != "reduce" ? -1 : i.has("add") ? add : i.has("min") ? min_ : i.has("max") ? max_ : i.has("and") ? and_ : i.has("or") ? or_ : xor_;
}
void run_bulk_store(const Instruction& i, Frame& f)  // [to], [from], bytes
{
    Store s{std::uint32_t(address(i.operands[1], f)), address(i.operands[0], f), unsigned(get(i.operands[2], f)), nullptr, {}, {f.source, f.pc}, reduction_of(i), i.type};
    if (s.from % 16 || s.to % 16 || s.bytes % 16)
        return complain(f, "both addresses and the size of cp.async.bulk must be multiples of 16 bytes");
    watch::unit_reads(shared_pointer(s.from), s.bytes, f.pc, stores);
    leaving[thread_number()].open.push_back(std::move(s));
}
void run_box_store(const Instruction& i, Frame& f)  // [map, {c}], [from]
{
    const TensorMap* map = map_at(address(i.operands[0], f), f);
    if (!map) return;
    Store s{std::uint32_t(address(i.operands[1], f)), 0, 0, map, coordinates(i.operands[0], f), {f.source, f.pc}, reduction_of(i), i.type};
    if (s.reduce >= 0) s.type = map->bytes == 8 ? Type{'f', 64} : map->bytes == 4 ? Type{'f', 32} : Type{'g', 16};
    if (s.from % 128) return complain(f, "the box comes from an address of shared memory that 128 does not divide");
    unsigned bytes = map->bytes;
    for (unsigned d = 0; d < map->rank; ++d) bytes *= map->box[d];
    watch::unit_reads(shared_pointer(s.from), bytes, f.pc, stores);
    leaving[thread_number()].open.push_back(std::move(s));
}
void run_bulk_commit(const Instruction&, Frame&)
{
    Leaving& mine = leaving[thread_number()];
    mine.groups.push_back(std::move(mine.open));
    mine.closed.push_back(watch::now());
    mine.open.clear();
}
void run_bulk_wait(const Instruction& i, Frame& f)
{
    Leaving& mine = leaving[thread_number()];
    const std::size_t left = get(i.operands[0], f);
    while (mine.groups.size() > left) {
        put_out(mine.groups.front());
        watch::learn(stores, mine.closed.front());
        mine.groups.pop_front();
        mine.closed.pop_front();
    }
}

// ---- Barriers of some warps -----------------------------------------------------------------------------------------------------

struct Named {
    unsigned number = 0, wanted = 0, arrived = 0;
    Known coming, known;
};
std::vector<Named> named;  // 16 of each block

void run_bar(const Instruction& i, Frame& f)
{
    std::size_t k = 0;
    const bool reduces = i.has("red");
    if (reduces) ++k;
    const unsigned number = i.operands.empty() ? 0 : get(i.operands[k], f);
    const bool has_count = i.operands.size() > k + 1 + (reduces ? 1 : 0);
    const unsigned wanted = has_count ? get(i.operands[k + 1], f) : thread_count();
    const bool waits = !i.has("arrive");
    if (reduces) {
        const Operand& predicate = i.operands.back();
        const bool p = get(predicate, f), all = i.has("and");
        const unsigned count = synchronise(all ? !p : p, f.source->file, f.source->line);
        return set(i.operands[0], f, i.has("popc") ? count : all ? count == 0 : count != 0);
    }
    if (waits && number == 0 && wanted == thread_count()) {
        synchronise(false, f.source->file, f.source->line);
        return;
    }
    if (number >= 16) return complain(f, "a block has 16 barriers, 0 to 15, not number " + std::to_string(number));
    if (wanted % 32) return complain(f, "a barrier takes whole warps, not " + std::to_string(wanted) + " threads");
    Named& n = named[16 * block_rank() + number];
    n.number = number;
    if (n.arrived && n.wanted != wanted)
        complain(f, "comes to barrier " + std::to_string(number) + " with " + std::to_string(wanted) + " threads, others came with " + std::to_string(n.wanted));
    n.wanted = wanted;
    watch::release(n.coming);
    const bool complete = ++n.arrived >= wanted;
    if (complete) {
        n.arrived = 0;
        n.known = n.coming;
    }
    if (!waits) {
        if (complete) wake(&n);
        return;
    }
    const Why why = [](const void* o, std::uint64_t) {
        const auto& n = *static_cast<const Named*>(o);
        return "barrier " + std::to_string(n.number) + ", to which " + std::to_string(n.arrived) + " of " + std::to_string(n.wanted) + " threads have come";
    };
    sleep_for(&n, why, 0, f.source->file, f.source->line, f.pc, complete);
    watch::acquire(n.known);
}
void run_cluster_arrive(const Instruction& i, Frame& f) { cluster_arrive(i.has("relaxed"), f.source->file, f.source->line); }
void run_cluster_wait(const Instruction&, Frame& f) { cluster_wait(f.source->file, f.source->line, f.pc); }
void run_bar_warp(const Instruction& i, Frame& f)
{
    synchronise_warp(i.operands.empty() ? ~0u : get(i.operands[0], f), f.source->file, f.source->line);
}

void run_fence(const Instruction& i, Frame& f)
{
    if (i.has("proxy") || i.has("mbarrier_init")) {
        for (auto& [at, b] : barriers) b.shown |= rank_of_shared(at) == block_rank();
        if (i.has("proxy")) watch::proxy_fence();
        return;
    }
    fence(i.has("cta") ? 0 : 1);
    (void)f;
}

// ---- The warp ------------------------------------------------------------------------------------------------------------------------

void run_shfl(const Instruction& i, Frame& f)
{
    const Operand& to = i.operands[0].kind == Operand::list ? i.operands[0].parts[0] : i.operands[0];
    const unsigned c = get(i.operands[3], f), width = 32 - (c >> 8 & 31), mask = i.operands.size() > 4 ? get(i.operands[4], f) : ~0u;
    const Shuffle kind = i.has("up") ? Shuffle::up : i.has("down") ? Shuffle::down : i.has("bfly") ? Shuffle::exclusive_or : Shuffle::index;
    set(to, f, cut(shuffle(kind, mask, get(i.operands[1], f), get(i.operands[2], f), width, f.source->file, f.source->line), 32));
    if (i.operands[0].kind == Operand::list) set(i.operands[0].parts[1], f, 1);
}
void run_vote(const Instruction& i, Frame& f)
{
    const Vote kind = i.has("all") ? Vote::all : i.has("any") ? Vote::any : i.has("uni") ? Vote::uniform : Vote::ballot;
    set(i.operands[0], f, vote(kind, get(i.operands[2], f), get(i.operands[1], f), f.source->file, f.source->line));
}
void run_activemask(const Instruction& i, Frame& f) { set(i.operands[0], f, active_mask(f.source->file, f.source->line)); }
void run_redux(const Instruction& i, Frame& f)
{
    const Reduction kind = i.has("add") ? Reduction::add : i.has("min") ? Reduction::minimum : i.has("max") ? Reduction::maximum
                         : i.has("and") ? Reduction::conjunction : i.has("or") ? Reduction::disjunction : Reduction::exclusive_or;
    set(i.operands[0], f, reduce(kind, i.type.kind == 's', get(i.operands[2], f), get(i.operands[1], f), f.source->file, f.source->line));
}
void run_elect(const Instruction& i, Frame& f)
{
    unsigned lane = 0;
    const bool chosen = elect(get(i.operands[1], f), &lane, f.source->file, f.source->line);
    const Operand& o = i.operands[0];
    set(o.kind == Operand::list ? o.parts[0] : o, f, o.kind == Operand::list ? lane : chosen);
    if (o.kind == Operand::list) set(o.parts[1], f, chosen);
}

struct Lane {
    const Instruction* instruction;
    Frame* frame;
};
Lane& lane_of(void* const* records, unsigned lane) { return *static_cast<Lane*>(records[lane]); }

// All lanes run the instruction at once; `act` gets the Lane of each.
void all_lanes(const Instruction& i, Frame& f, void (*act)(void* const*, unsigned))
{
    Lane lane{&i, &f};
    together(~0u, &i, &lane, act, f.source->file, f.source->line);
}
bool is_whole(void* const* records, unsigned lanes)
{
    if (lanes == ~0u) return true;
    const Lane& one = lane_of(records, __builtin_ctz(lanes));
    watch::divergence("not all lanes of the warp run this instruction (" + one.instruction->words[0] + "), which needs all", one.frame->source->file, one.frame->source->line);
    return false;
}

const Operand& part(const Operand& o, unsigned k) { return o.kind == Operand::list ? o.parts[k] : o; }

void act_ldmatrix(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Instruction& i = *lane_of(records, 0).instruction;
    const bool loads = i.words[0] == "ldmatrix", turned = i.has("trans");
    const Operand &registers = i.operands[loads ? 0 : 1], &place = i.operands[loads ? 1 : 0];
    for (unsigned m = 0; m < i.width; ++m) {
        char* row[8];
        for (unsigned r = 0; r < 8; ++r) {
            Frame& f = *lane_of(records, 8 * m + r).frame;
            row[r] = pointer(i, address(place, f));
            if (reinterpret_cast<std::uintptr_t>(row[r]) % 16) return;  // has been reported
        }
        for (unsigned lane = 0; lane < 32; ++lane) {
            Frame& f = *lane_of(records, lane).frame;
            const unsigned g = lane / 4, t = lane % 4;
            std::uint16_t* const first = reinterpret_cast<std::uint16_t*>(turned ? row[2 * t] + 2 * g : row[g] + 4 * t);
            std::uint16_t* const second = reinterpret_cast<std::uint16_t*>(turned ? row[2 * t + 1] + 2 * g : row[g] + 4 * t + 2);
            if (loads) {
                std::uint16_t low, high;
                std::memcpy(&low, first, 2);
                std::memcpy(&high, second, 2);
                set(part(registers, m), f, std::uint32_t(high) << 16 | low);
            } else {
                const std::uint32_t value = get(part(registers, m), f);
                const std::uint16_t low = value, high = value >> 16;
                std::memcpy(first, &low, 2);
                std::memcpy(second, &high, 2);
            }
        }
    }
}
void run_ldmatrix(const Instruction& i, Frame& f)
{
    const bool loads = i.words[0] == "ldmatrix";
    watch::goes_by(watch::by_matrix);
    if (thread_number() % 32 < 8 * i.width) watch::accesses(pointer(i, address(i.operands[loads ? 1 : 0], f)), 16, !loads, f.pc);
    watch::goes_by(watch::plain);
    all_lanes(i, f, act_ldmatrix);
}

void act_movmatrix(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Instruction& i = *lane_of(records, 0).instruction;
    std::uint16_t m[8][8];
    for (unsigned lane = 0; lane < 32; ++lane) {
        const std::uint32_t v = get(i.operands[1], *lane_of(records, lane).frame);
        m[lane / 4][lane % 4 * 2] = v;
        m[lane / 4][lane % 4 * 2 + 1] = v >> 16;
    }
    for (unsigned lane = 0; lane < 32; ++lane)
        set(i.operands[0], *lane_of(records, lane).frame, std::uint32_t(m[lane % 4 * 2 + 1][lane / 4]) << 16 | m[lane % 4 * 2][lane / 4]);
}
void run_movmatrix(const Instruction& i, Frame& f) { all_lanes(i, f, act_movmatrix); }

// ---- Tensor cores: mma.sync ------------------------------------------------------------------------------------------------------------

Row rows[16];
Columns columns;

void clear(unsigned count, unsigned depth, Short kind)
{
    for (Row& row : rows) row.zero = true, row.special = false;
    columns.count = count;
    columns.depth = depth;
    columns.kind = kind;
    columns.special = false;
}

Short short_of(Type t) { return t.kind == 'h' ? Short::half : t.kind == 'g' ? Short::bfloat16 : Short::tf32; }

// A's fragment of 16 rows: register r of lane (g, t) is row g + 8 (r % 2), from k = per * t + (r / 2) * 4 * per on, where
// a register holds `per` elements.
void take_rows(const Operand& a, Frame& f, unsigned lane, Type t, unsigned depth, bool negated = false)
{
    const unsigned g = lane / 4, per = t.kind == 't' ? 1 : 2;
    const unsigned registers = 16 * depth / 32 / per;
    for (unsigned r = 0; r < registers; ++r) {
        const std::uint32_t v = get(part(a, r), f);
        const unsigned k = per * (lane % 4) + r / 2 * 4 * per, row = g + 8 * (r % 2);
        for (unsigned e = 0; e < per; ++e)
            set(rows[row], k + e, short_of(t), per == 1 ? v : v >> 16 * e & 0xffff, negated);
    }
}

// C's fragment: of each 8 columns, rows g and g + 8, columns 2 t and 2 t + 1; two halves share a register.
void exchange_sums(const Operand& c, Frame& f, unsigned lane, unsigned count, bool halves, bool store, float (*sums)[most_columns])
{
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned j = 0; j < count / 8; ++j)
        for (unsigned h = 0; h < 2; ++h) {
            float* const two = &sums[g + 8 * h][8 * j + 2 * t];
            if (halves) {
                const Operand& o = part(c, 2 * j + h);
                if (store) {
                    set(o, f, std::uint32_t(half_of(two[1])) << 16 | half_of(two[0]));
                } else {
                    const std::uint32_t v = get(o, f);
                    two[0] = float_of_half(v & 0xffff);
                    two[1] = float_of_half(v >> 16);
                }
            } else {
                for (unsigned v = 0; v < 2; ++v) {
                    const Operand& o = part(c, 4 * j + 2 * h + v);
                    if (store) set(o, f, bits_of<std::uint32_t>(two[v]));
                    else two[v] = bits_of<float>(static_cast<std::uint32_t>(get(o, f)));
                }
            }
        }
}

float sums[16][most_columns];

void act_mma(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Instruction& i = *lane_of(records, 0).instruction;
    const Operand &d = i.operands[0], &a = i.operands[1], &b = i.operands[2], &c = i.operands[3];
    const unsigned depth = i.depth, per = i.type.kind == 't' ? 1 : 2;
    clear(8, depth, short_of(i.type));
    for (unsigned lane = 0; lane < 32; ++lane) {
        Frame& f = *lane_of(records, lane).frame;
        take_rows(a, f, lane, i.type, depth);
        for (unsigned r = 0; r < 8 * depth / 32 / per; ++r) {
            const std::uint32_t v = get(part(b, r), f);
            for (unsigned e = 0; e < per; ++e)
                columns.set(per * (lane % 4) + r * 4 * per + e, lane / 4, per == 1 ? v : v >> 16 * e & 0xffff);
        }
        exchange_sums(c, f, lane, 8, i.flag, false, sums);
    }
    for (unsigned row = 0; row < 16; ++row) multiply(rows[row], columns, sums[row], i.other);
    for (unsigned lane = 0; lane < 32; ++lane) exchange_sums(d, *lane_of(records, lane).frame, lane, 8, i.other, true, sums);
}

// Doubles: fused multiply-adds in the order of k.
void act_mma_double(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Instruction& i = *lane_of(records, 0).instruction;
    const unsigned n_rows = i.rows, depth = i.depth, halves = n_rows / 8;
    double A[16][16], B[16][8], C[16][8];
    for (unsigned lane = 0; lane < 32; ++lane) {
        Frame& f = *lane_of(records, lane).frame;
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned k = 0; k < depth / 4; ++k) {
            for (unsigned h = 0; h < halves; ++h) A[g + 8 * h][t + 4 * k] = bits_of<double>(get(part(i.operands[1], halves * k + h), f));
            B[t + 4 * k][g] = bits_of<double>(get(part(i.operands[2], k), f));
        }
        for (unsigned h = 0; h < halves; ++h)
            for (unsigned v = 0; v < 2; ++v) C[g + 8 * h][2 * t + v] = bits_of<double>(get(part(i.operands[3], 2 * h + v), f));
    }
    for (unsigned r = 0; r < n_rows; ++r)
        for (unsigned j = 0; j < 8; ++j)
            for (unsigned k = 0; k < depth; ++k) C[r][j] = fma(A[r][k], B[k][j], C[r][j]);
    for (unsigned lane = 0; lane < 32; ++lane)
        for (unsigned h = 0; h < halves; ++h)
            for (unsigned v = 0; v < 2; ++v)
                set(part(i.operands[0], 2 * h + v), *lane_of(records, lane).frame, bits_of<std::uint64_t>(C[lane / 4 + 8 * h][2 * (lane % 4) + v]));
}

// Bytes: exact in 32 bits.
void act_mma_bytes(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Instruction& i = *lane_of(records, 0).instruction;
    const unsigned depth = i.depth;
    std::int32_t A[16][32], B[32][8], C[16][8];
    const auto byte = [](std::uint32_t v, unsigned e, bool is_signed) {
        return is_signed ? std::int32_t(std::int8_t(v >> 8 * e)) : std::int32_t(v >> 8 * e & 0xff);
    };
    for (unsigned lane = 0; lane < 32; ++lane) {
        Frame& f = *lane_of(records, lane).frame;
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned r = 0; r < depth / 8; ++r)
            for (unsigned e = 0; e < 4; ++e) A[g + 8 * (r % 2)][4 * t + 16 * (r / 2) + e] = byte(get(part(i.operands[1], r), f), e, i.flag);
        for (unsigned r = 0; r < depth / 16; ++r)
            for (unsigned e = 0; e < 4; ++e) B[4 * t + 16 * r + e][g] = byte(get(part(i.operands[2], r), f), e, i.other);
        for (unsigned h = 0; h < 2; ++h)
            for (unsigned v = 0; v < 2; ++v) C[g + 8 * h][2 * t + v] = get(part(i.operands[3], 2 * h + v), f);
    }
    for (auto r = 0; r < 16; ++r)
        for (auto j = 0; j < 8; ++j)
            for (unsigned k = 0; k < depth; ++k) C[r][j] += A[r][k] * B[k][j];
    for (unsigned lane = 0; lane < 32; ++lane)
        for (unsigned h = 0; h < 2; ++h)
            for (unsigned v = 0; v < 2; ++v)
                set(part(i.operands[0], 2 * h + v), *lane_of(records, lane).frame, std::uint32_t(C[lane / 4 + 8 * h][2 * (lane % 4) + v]));
}
void run_mma(const Instruction& i, Frame& f)
{
    all_lanes(i, f, i.type.kind == 'f' ? act_mma_double : i.type.kind == 's' || i.type.kind == 'u' ? act_mma_bytes : act_mma);
}

// ---- Tensor cores: WMMA ------------------------------------------------------------------------------------------------------------------

struct Fragments {
    int m, n, k, kind;
    bool half_sums;
    const float *a, *b, *c;
    float* d;
    const char* file;
    int line;
};

void act_fragments(void* const* records, unsigned lanes)
{
    const auto of = [&](unsigned lane) -> const Fragments& { return *static_cast<const Fragments*>(records[lane]); };
    const Fragments& one = of(__builtin_ctz(lanes));
    if (lanes != ~0u) return watch::divergence("not all lanes of the warp multiply these fragments", one.file, one.line);
    const Short kind = static_cast<Short>(one.kind);
    const auto bits = [&](float v) -> std::uint32_t {
        return kind == Short::half ? half_of(v) : kind == Short::bfloat16 ? bfloat16_of(v) : bits_of<std::uint32_t>(v);
    };
    std::vector<float> d(one.m * one.n);
    const int depth = kind == Short::tf32 ? std::min(one.k, 8) : std::min(one.k, 16);
    for (int e = 0; e < one.m * one.n; ++e) d[e] = of(e % 32).c[e / 32];
    for (int first = 0; first < one.k; first += depth) {
        clear(one.n, depth, kind);
        for (int k = 0; k < depth; ++k)
            for (int j = 0; j < one.n; ++j) {
                const int e = (first + k) * one.n + j;
                columns.set(k, j, bits(of(e % 32).b[e / 32]));
            }
        for (int r = 0; r < one.m; ++r) {
            Row row;
            row.zero = true;
            row.special = false;
            for (int k = 0; k < depth; ++k) {
                const int e = r * one.k + first + k;
                set(row, k, kind, bits(of(e % 32).a[e / 32]));
            }
            multiply(row, columns, d.data() + r * one.n, one.half_sums);
        }
    }
    for (int e = 0; e < one.m * one.n; ++e) of(e % 32).d[e / 32] = d[e];
}

// ---- Tensor cores: wgmma -------------------------------------------------------------------------------------------------------------------

struct Layout {
    std::uint32_t start, leading, stride;
    unsigned swizzle;  // bytes of a row of the pattern
    bool across;       // whether k is the outer dimension
    unsigned bytes;    // of an element

    Layout(std::uint64_t d, bool across, unsigned bytes)
        : start((d & 0x3fff) << 4), leading((d >> 16 & 0x3fff) << 4), stride((d >> 32 & 0x3fff) << 4), across(across), bytes(bytes)
    {
        constexpr unsigned widths[] = {16, 128, 64, 32};
        swizzle = widths[d >> 62];
    }
    /// Of the 16 bytes that hold element (line, k): line is a row of A or a column of B.
    char* chunk(unsigned line, unsigned k) const
    {
        std::uint32_t at;
        if (!across) {
            const unsigned byte = k * bytes;
            at = swizzle == 16 ? line / 8 * stride + line % 8 * 16 + byte / 16 * leading
                               : line / 8 * stride + line % 8 * swizzle + byte / 16 * 16;
        } else {
            const unsigned byte = line * bytes, wide = byte / swizzle;
            at = swizzle == 16 ? byte / 16 * stride + k % 8 * 16 + k / 8 * leading
                               : wide * leading + k % 8 * swizzle + k / 8 * stride + byte % swizzle / 16 * 16;
        }
        at = swizzled(start + at, swizzle == 16 ? 0 : swizzle);
        return shared_pointer(in_block_of(at & 0x3ffff, block_rank()));
    }
};

struct Products {
    std::vector<std::uint32_t> groups;  // when each was committed
    bool fenced = false;                // whether there was a wgmma.fence
};
std::vector<Products> products;  // of each warp

void act_wgmma(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Instruction& i = *lane_of(records, 0).instruction;
    Frame& first = *lane_of(records, 0).frame;
    const unsigned warp = thread_number() / 32, bytes = i.type.kind == 't' ? 4 : 2, depth = i.depth, count = i.columns;
    const Operand &d = i.operands[0], &a = i.operands[1], &b = i.operands[2];
    if (!products[warp].fenced) complain(first, "multiplies (wgmma.mma_async) before its warp's first wgmma.fence");
    products[warp].fenced = true;
    const bool accumulate = i.operands.size() > 3 ? get(i.operands[3], first) : true;
    const auto option = [&](std::size_t k) { return k < i.operands.size() ? static_cast<std::int32_t>(get(i.operands[k], first)) : 0; };
    const bool minus_a = option(4) == -1, minus_b = option(5) == -1;
    const bool from_registers = a.kind == Operand::list;
    const bool a_across = !from_registers && option(6) == 1, b_across = option(from_registers ? 6 : 7) == 1;
    clear(count, depth, short_of(i.type));
    const auto element = [&](const char* chunk, unsigned e) {
        std::uint32_t v = 0;
        std::memcpy(&v, chunk + e * bytes, bytes);
        return v;
    };
    const unsigned worker = wgmma_of_warp + warp, per = 16 / bytes;
    const auto read = [&](const Layout& layout, unsigned from, unsigned lines, auto&& put) {
        if (layout.across) {
            for (unsigned k = 0; k < depth; ++k)
                for (unsigned line = 0; line < lines; line += per) {
                    const char* chunk = layout.chunk(from + line, k);
                    watch::unit_reads(chunk, 16, first.pc, worker);
                    for (unsigned e = 0; e < per; ++e) put(line + e, k, element(chunk, e));
                }
        } else {
            for (unsigned line = 0; line < lines; ++line)
                for (unsigned k = 0; k < depth; k += per) {
                    const char* chunk = layout.chunk(from + line, k);
                    watch::unit_reads(chunk, 16, first.pc, worker);
                    for (unsigned e = 0; e < per; ++e) put(line, k + e, element(chunk, e));
                }
        }
    };
    if (from_registers) {
        for (unsigned lane = 0; lane < 32; ++lane) take_rows(a, *lane_of(records, lane).frame, lane, i.type, depth, minus_a);
    } else {
        read(Layout(get(a, first), a_across, bytes), thread_in_block() / 32 % 4 * 16, 16,
             [&](unsigned line, unsigned k, std::uint32_t v) { set(rows[line], k, columns.kind, v, minus_a); });
    }
    read(Layout(get(b, first), b_across, bytes), 0, count,
         [&](unsigned line, unsigned k, std::uint32_t v) { columns.set(k, line, v, minus_b); });
    if (accumulate) {
        for (unsigned lane = 0; lane < 32; ++lane) exchange_sums(d, *lane_of(records, lane).frame, lane, count, i.other, false, sums);
    } else {
        for (auto& row : sums) std::fill(row, row + count, 0.0f);
    }
    for (unsigned row = 0; row < 16; ++row) multiply(rows[row], columns, sums[row], i.other);
    for (unsigned lane = 0; lane < 32; ++lane) exchange_sums(d, *lane_of(records, lane).frame, lane, count, i.other, true, sums);
}
void run_wgmma(const Instruction& i, Frame& f) { all_lanes(i, f, act_wgmma); }
void act_nothing(void* const*, unsigned) {}
void act_wgmma_commit(void* const*, unsigned)
{
    Products& mine = products[thread_number() / 32];
    mine.groups.push_back(watch::now());
    wake(&mine);
}
void run_wgmma_commit(const Instruction& i, Frame& f) { all_lanes(i, f, act_wgmma_commit); }
void act_wgmma_fence(void* const*, unsigned) { products[thread_number() / 32].fenced = true; }
void run_wgmma_fence(const Instruction& i, Frame& f) { all_lanes(i, f, act_wgmma_fence); }
// A product is one operation of four warps: that a group of them is done for one warp says that it is done for all.
void run_wgmma_wait(const Instruction& i, Frame& f)
{
    const unsigned warp = thread_number() / 32, first = warp - thread_in_block() / 32 % 4;
    const std::size_t own = products[warp].groups.size(), left = get(i.operands[0], f), wanted = own > left ? own - left : 0;
    const Why why = [](const void*, std::uint64_t w) {
        return "warp " + std::to_string(w) + " of its warp group, which has not asked for the same products (wgmma)";
    };
    for (unsigned w = first; wanted && w < std::min<std::size_t>(first + 4, products.size()); ++w)
        while (products[w].groups.size() < wanted)
            sleep_for(&products[w], why, w % (block_threads() / 32), f.source->file, f.source->line, f.pc);
    all_lanes(i, f, act_nothing);
    for (unsigned w = first; wanted && w < std::min<std::size_t>(first + 4, products.size()); ++w)
        watch::learn(wgmma_of_warp + w, products[w].groups[wanted - 1]);
}

// ---- Special registers ------------------------------------------------------------------------------------------------------------------------

unsigned lane_number() { return thread_number() % 32; }
const std::map<std::string, std::uint64_t (*)()> specials = {
    {"tid.x", [] { return std::uint64_t(threadIdx.x); }}, {"tid.y", [] { return std::uint64_t(threadIdx.y); }},
    {"tid.z", [] { return std::uint64_t(threadIdx.z); }}, {"ntid.x", [] { return std::uint64_t(blockDim.x); }},
    {"ntid.y", [] { return std::uint64_t(blockDim.y); }}, {"ntid.z", [] { return std::uint64_t(blockDim.z); }},
    {"ctaid.x", [] { return std::uint64_t(blockIdx.x); }}, {"ctaid.y", [] { return std::uint64_t(blockIdx.y); }},
    {"ctaid.z", [] { return std::uint64_t(blockIdx.z); }}, {"nctaid.x", [] { return std::uint64_t(gridDim.x); }},
    {"nctaid.y", [] { return std::uint64_t(gridDim.y); }}, {"nctaid.z", [] { return std::uint64_t(gridDim.z); }},
    {"laneid", [] { return std::uint64_t(lane_number()); }}, {"warpid", [] { return std::uint64_t(thread_in_block() / 32); }},
    {"nwarpid", [] { return std::uint64_t((thread_count() + 31) / 32); }}, {"smid", [] { return std::uint64_t(0); }},
    {"nsmid", [] { return std::uint64_t(132); }}, {"clock", [] { return std::uint64_t(tick()); }},
    {"clock64", [] { return std::uint64_t(tick()); }}, {"globaltimer", [] { return std::uint64_t(tick()); }},
    {"cluster_ctarank", [] { return std::uint64_t(block_rank() % cluster_size); }}, {"cluster_nctarank", [] { return std::uint64_t(cluster_size); }},
    {"cluster_ctaid.x", [] { return std::uint64_t(blockIdx.x % clusterDim.x); }}, {"cluster_nctaid.x", [] { return std::uint64_t(clusterDim.x); }},
    {"cluster_ctaid.y", [] { return std::uint64_t(blockIdx.y % clusterDim.y); }}, {"cluster_nctaid.y", [] { return std::uint64_t(clusterDim.y); }},
    {"cluster_ctaid.z", [] { return std::uint64_t(blockIdx.z % clusterDim.z); }}, {"cluster_nctaid.z", [] { return std::uint64_t(clusterDim.z); }},
    {"clusterid.x", [] { return std::uint64_t(blockIdx.x / clusterDim.x); }}, {"nclusterid.x", [] { return std::uint64_t(gridDim.x / clusterDim.x); }},
    {"clusterid.y", [] { return std::uint64_t(blockIdx.y / clusterDim.y); }}, {"nclusterid.y", [] { return std::uint64_t(gridDim.y / clusterDim.y); }},
    {"clusterid.z", [] { return std::uint64_t(blockIdx.z / clusterDim.z); }}, {"nclusterid.z", [] { return std::uint64_t(gridDim.z / clusterDim.z); }},
    {"lanemask_eq", [] { return std::uint64_t(1u << lane_number()); }},
    {"lanemask_lt", [] { return std::uint64_t((1u << lane_number()) - 1); }},
    {"lanemask_le", [] { return std::uint64_t((2ull << lane_number()) - 1); }},
    {"lanemask_gt", [] { return std::uint64_t(~std::uint32_t((2ull << lane_number()) - 1)); }},
    {"lanemask_ge", [] { return std::uint64_t(~((1u << lane_number()) - 1)); }},
};

// ---- Reading the text --------------------------------------------------------------------------------------------------------------------------

std::string trimmed(const std::string& text)
{
    const auto first = text.find_first_not_of(" \t\r\n"), last = text.find_last_not_of(" \t\r\n");
    return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::vector<std::string> split(const std::string& text, char separator)
{
    std::vector<std::string> parts(1);
    int depth = 0;
    for (char c : text) {
        depth += c == '{' || c == '[' || c == '(';
        depth -= c == '}' || c == ']' || c == ')';
        if (c == separator && !depth) parts.emplace_back();
        else parts.back() += c;
    }
    return parts;
}

struct Reader {
    unsigned operands;  // of the asm statement
    std::map<std::string, int> registers;
    std::map<std::string, std::size_t> labels;
    Program program;

    Operand operand(std::string text)
    {
        text = trimmed(text);
        Operand o;
        if (text.empty()) return o;
        if (text[0] == '!') {
            o = operand(text.substr(1));
            o.negated = true;
            return o;
        }
        if (text == "_") return o.kind = Operand::sink, o;
        if (text[0] == '{') {
            o.kind = Operand::list;
            for (const auto& p : split(text.substr(1, text.rfind('}') - 1), ',')) o.parts.push_back(operand(p));
            return o;
        }
        if (text[0] == '[') {
            o.kind = Operand::memory;
            const auto inner = split(text.substr(1, text.rfind(']') - 1), ',');
            const std::string first = trimmed(inner[0]);
            const auto plus = first.find_first_of("+-", 1);
            o.parts.push_back(operand(first.substr(0, plus)));
            if (plus != std::string::npos) {
                const Operand offset = operand(first[plus] == '+' ? first.substr(plus + 1) : first.substr(plus));
                if (offset.kind == Operand::immediate) o.value = offset.value;
                else throw Unknown("the address " + text);
            }
            if (inner.size() > 1) o.parts.push_back(operand(inner[1]));
            return o;
        }
        if (const auto pair = split(text, '|'); pair.size() == 2) {
            o.kind = Operand::list;
            for (const auto& p : pair) o.parts.push_back(operand(p));
            return o;
        }
        // nvcc takes a register with one % too: only a number after it names an operand.
        if (text[0] == '%' && text.size() > 1 && !std::isdigit(static_cast<unsigned char>(text[1]))) {
            const std::string name = text.substr(text[1] == '%' ? 2 : 1);
            const auto found = specials.find(name);
            if (found == specials.end()) throw Unknown("the register %" + name);
            o.kind = Operand::special;
            o.ask = found->second;
            return o;
        }
        if (text[0] == '%') {
            char* end;
            o.kind = Operand::slot;
            o.index = std::strtol(text.c_str() + 1, &end, 10);
            if (*end || static_cast<unsigned>(o.index) >= operands) throw Unknown("the operand " + text);
            return o;
        }
        if (std::isdigit(static_cast<unsigned char>(text[0])) || ((text[0] == '-' || text[0] == '+') && text.size() > 1)) {
            o.kind = Operand::immediate;
            if (text.size() > 2 && text[0] == '0' && (text[1] == 'f' || text[1] == 'F' || text[1] == 'd' || text[1] == 'D')) {
                o.value = std::strtoull(text.c_str() + 2, nullptr, 16);
            } else if (text.find('.') != std::string::npos) {
                o.decimal = true;
                o.number = std::strtod(text.c_str(), nullptr);
            } else {
                // A sum of numbers, as %0 * 8 never is: PTX has constant expressions, kernels hardly use them.
                char* end;
                o.value = std::strtoll(text.c_str(), &end, 0);
                if (text.size() > 2 && text[0] == '0') o.value = std::strtoull(text.c_str(), &end, 0);
                while (*end == 'U' || *end == 'u') ++end;
                if (*end) throw Unknown("the number " + text);
            }
            return o;
        }
        if (text == "WARP_SZ") return o.kind = Operand::immediate, o.value = 32, o;
        const auto found = registers.find(text);
        if (found != registers.end()) {
            o.kind = Operand::slot;
            o.index = found->second;
            return o;
        }
        o.kind = Operand::label;
        o.name = text;
        return o;
    }

    void declare(const std::string& text)  // .reg .b32 a, b<4>
    {
        const auto space = text.find_first_of(" \t\n", text.find('.', 1));
        for (std::string name : split(text.substr(space), ',')) {
            name = trimmed(name);
            const auto range = name.find('<');
            if (range == std::string::npos) {
                registers[name] = operands + program.locals++;
            } else {
                const int count = std::atoi(name.c_str() + range + 1);
                for (int k = 0; k < count; ++k) registers[name.substr(0, range) + std::to_string(k)] = operands + program.locals++;
            }
        }
    }

    void statement(std::string text)
    {
        text = trimmed(text);
        if (text.empty()) return;
        // A label stands before what follows it: `again: ...`
        const auto colon = text.find(':');
        if (colon != std::string::npos && text[colon + 1] != ':' && text.find_first_of(" \t\n.[{") > colon) {
            labels[text.substr(0, colon)] = program.code.size();
            return statement(text.substr(colon + 1));
        }
        if (text[0] == '.') {
            if (text.rfind(".reg", 0) == 0) return declare(text);
            throw Unknown("the directive " + text.substr(0, text.find_first_of(" \t\n")));
        }
        Instruction i;
        if (text[0] == '@') {
            auto end = text.find_first_of(" \t\n");
            std::string name = text.substr(1, end - 1);
            i.unless = name[0] == '!';
            const Operand p = operand(i.unless ? name.substr(1) : name);
            if (p.kind != Operand::slot) throw Unknown("the predicate " + name);
            i.predicate = p.index;
            text = trimmed(text.substr(end));
        }
        const auto end = text.find_first_of(" \t\n");
        for (const std::string& word : split(text.substr(0, end), '.')) i.words.push_back(word);
        if (end != std::string::npos)
            for (const auto& part : split(text.substr(end), ',')) i.operands.push_back(operand(part));
        if (i.operands.size() == 1 && i.operands[0].kind == Operand::none) i.operands.clear();
        decode(i, text.substr(0, end));
        program.code.push_back(std::move(i));
    }

    static void decode(Instruction& i, const std::string& name);

    Program read(const char* text)
    {
        std::string clean;
        for (const char* c = text; *c;) {
            if (c[0] == '/' && c[1] == '/') {
                while (*c && *c != '\n') ++c;
            } else if (c[0] == '/' && c[1] == '*') {
                const char* close = std::strstr(c, "*/");
                c = close ? close + 2 : c + std::strlen(c);
            } else {
                clean += *c++;
            }
        }
        // Braces are scopes where a statement may begin, and lists of registers elsewhere.
        std::string one;
        int depth = 0;
        for (char c : clean) {
            const bool begins = trimmed(one).empty();
            if (!depth && begins && (c == '{' || c == '}')) continue;
            if (!depth && c == '}') {  // the last statement of a scope may lack its semicolon
                statement(one);
                one.clear();
                continue;
            }
            depth += c == '{';
            depth -= c == '}';
            // A label, and the brace of a scope behind it
            if (c == ';' && !depth) {
                statement(one);
                one.clear();
            } else {
                one += c;
                if (c == ':' && !depth) {
                    const std::string label = trimmed(one);
                    if (label.find_first_of(" \t\n.[{:") == label.size() - 1 && label.size() > 1) {
                        labels[label.substr(0, label.size() - 1)] = program.code.size();
                        one.clear();
                    }
                }
            }
        }
        statement(one);
        for (Instruction& i : program.code)
            for (Operand& o : i.operands)
                if (o.kind == Operand::label) {
                    const auto found = labels.find(o.name);
                    if (found == labels.end()) throw Unknown("the name " + o.name);
                    o.index = found->second;
                }
        return std::move(program);
    }
};

// Which instruction this is. Words that would change what it does, and are not known here, are refused.
void Reader::decode(Instruction& i, const std::string& name)
{
    const std::string& w = i.words[0];
    const std::string second = i.words.size() > 1 ? i.words[1] : "";
    std::vector<Type> types;
    for (std::size_t k = 1; k < i.words.size(); ++k) {
        Type t;
        if (parse_type(i.words[k], t)) types.push_back(t);
    }
    if (!types.empty()) i.type = types.back();
    const auto needs = [&](std::size_t operands) {
        if (i.operands.size() < operands) throw Unknown(name + " with " + std::to_string(i.operands.size()) + " operands");
    };
    const auto only = [&](std::initializer_list<const char*> known) {
        for (std::size_t k = 1; k < i.words.size(); ++k) {
            Type t;
            bool found = parse_type(i.words[k], t);
            for (const char* word : known) found |= i.words[k] == word;
            if (!found) throw Unknown(name);
        }
    };
    const std::map<std::string, int> binary = {{"add", add}, {"sub", sub}, {"min", min_}, {"max", max_}, {"and", and_}, {"or", or_},
                                               {"xor", xor_}, {"shl", shl}, {"shr", shr}, {"div", div_}, {"rem", rem}};
    if (const auto found = binary.find(w); found != binary.end()) {
        needs(3);
        only({"rn", "ftz", "full", "approx", "NaN"});
        i.code = found->second;
        i.run = run_binary;
    } else if (w == "mul" || w == "mul24") {
        needs(3);
        only({"rn", "ftz", "lo", "hi", "wide"});
        i.code = i.has("hi") ? mul_hi : i.has("wide") ? mul_wide : mul;
        i.run = run_binary;
    } else if (w == "mad" || w == "fma") {
        needs(4);
        only({"rn", "ftz", "lo", "hi", "wide"});
        i.code = i.has("hi") ? mul_hi : i.has("wide") ? mul_wide : mul;
        i.run = run_multiply_add;
    } else if (w == "not" || w == "neg" || w == "abs" || w == "popc" || w == "clz" || w == "brev" || w == "rcp" || w == "sqrt" ||
               w == "rsqrt" || w == "ex2" || w == "lg2") {
        needs(2);
        only({"rn", "ftz", "approx"});
        i.run = run_unary;
    } else if (w == "mov") {
        needs(2);
        i.run = run_mov;
    } else if (w == "cvt") {
        if (types.size() < 2) throw Unknown(name);
        only({"rn", "rz", "rna", "rni", "rzi", "rmi", "rpi", "ftz", "relu", "sat"});
        i.type = types[0];
        i.from = types[1];
        needs(i.type.kind == 'H' || i.type.kind == 'G' ? 3 : 2);
        if (i.type.kind == 't' && i.has("rn")) throw Unknown(name);
        i.run = run_cvt;
    } else if (w == "setp") {
        needs(3);
        i.run = run_setp;
    } else if (w == "selp") {
        needs(4);
        i.run = run_selp;
    } else if (w == "prmt") {
        needs(4);
        only({});
        i.run = run_prmt;
    } else if (w == "lop3") {
        needs(5);
        only({});
        i.run = run_lop3;
    } else if (w == "shf") {
        needs(4);
        i.run = run_shf;
    } else if (w == "bfe") {
        needs(4);
        i.run = run_bfe;
    } else if (w == "bfi") {
        needs(5);
        i.run = run_bfi;
    } else if (w == "bra") {
        needs(1);
        i.run = run_bra;
    } else if (w == "ret" || w == "exit") {
        i.run = run_exit;
    } else if (w == "trap") {
        i.run = run_trap;
    } else if (w == "setmaxnreg" || w == "nanosleep" || w == "griddepcontrol" || w == "prefetch" || w == "prefetchu" || w == "pragma" ||
               w == "applypriority" || w == "discard" || w == "brkpt" || w == "createpolicy") {
        i.run = run_nothing;
    } else if (w == "ld" || w == "ldu" || w == "st") {
        needs(2);
        for (std::size_t k = 1; k < i.words.size(); ++k) {
            const std::string& word = i.words[k];
            if (word == "v2" || word == "v4") i.width = word[1] - '0';
            if (word == "param" || word == "local" || word == "mmio") throw Unknown(name);
        }
        if (i.type.bits == 128) i.type = {'b', 64}, i.width *= 2;
        if (i.operands[w == "st" ? 0 : 1].kind != Operand::memory) throw Unknown(name);
        i.run = w == "st" ? run_st : run_ld;
        if (second == "async") {
            needs(3);
            i.run = run_st_async;
        }
    } else if (w == "atom" || w == "red") {
        needs(w == "atom" ? 3 : 2);
        const std::map<std::string, int> codes = {{"add", add}, {"min", min_}, {"max", max_}, {"and", and_}, {"or", or_}, {"xor", xor_},
                                                  {"exch", exch}, {"inc", inc}, {"dec", dec}, {"cas", cas}};
        i.code = -1;
        for (const auto& word : i.words)
            if (const auto found = codes.find(word); found != codes.end()) i.code = found->second;
        if (i.code < 0 || i.has("v2") || i.has("v4") || i.has("async")) throw Unknown(name);
        i.run = run_atom;
    } else if (w == "cvta") {
        needs(2);
        i.run = run_cvta;
    } else if (w == "isspacep") {
        needs(2);
        i.run = run_isspacep;
    } else if (w == "mapa") {
        needs(3);
        i.run = run_mapa;
    } else if (w == "getctarank") {
        needs(2);
        i.run = run_getctarank;
    } else if (w == "mbarrier") {
        if (second != "init" && second != "inval" && second != "arrive" && second != "arrive_drop" && second != "expect_tx" &&
            second != "complete_tx" && second != "test_wait" && second != "try_wait")
            throw Unknown(name);
        if (i.has("noComplete")) throw Unknown(name);
        needs(1);
        i.run = run_mbarrier;
    } else if (w == "cp" && second == "async" && i.words.size() > 2 && i.words[2] == "bulk") {
        const bool tensor = i.has("tensor");
        if (i.starts("im2col") || i.has("gather4") || i.has("scatter4") || i.starts("tile::")) throw Unknown(name);
        if (i.has("commit_group")) i.run = run_bulk_commit;
        else if (i.has("wait_group")) i.run = run_bulk_wait;
        else if (i.has("prefetch")) i.run = run_nothing;
        else if (i.starts("shared") && i.has("global") && i.starts("mbarrier")) {
            // Which of the two comes first says which way it goes.
            needs(3 + !tensor + i.has("multicast::cluster"));
            i.run = tensor ? run_box_load : run_bulk_load;
        } else if (!tensor && i.words.size() > 4 && i.words[3] == "shared::cluster" && i.words[4] == "shared::cta" && i.starts("mbarrier")) {
            needs(4);
            i.run = run_bulk_between;
        } else if (i.has("global") && i.has("bulk_group")) {
            needs(2);
            i.run = tensor ? run_box_store : run_bulk_store;
        } else {
            throw Unknown(name);
        }
    } else if (w == "cp" && second == "reduce") {
        needs(2);
        if (!i.has("bulk_group")) throw Unknown(name);
        i.run = i.has("tensor") ? run_box_store : run_bulk_store;
    } else if (w == "cp" && second == "async") {
        if (i.has("commit_group")) i.run = run_commit;
        else if (i.has("wait_group")) i.run = run_wait_group;
        else if (i.has("wait_all")) i.run = run_wait_group, i.flag = true;
        else if (i.has("mbarrier")) i.run = run_cp_async_arrive;
        else if ((i.has("ca") || i.has("cg")) && i.starts("shared")) {
            needs(3);
            i.other = i.starts("L2::cache_hint") && i.operands.size() == 4;
            i.run = run_cp_async;
        } else
            throw Unknown(name);
    } else if ((w == "bar" || w == "barrier") && second == "warp") {
        i.run = run_bar_warp;
    } else if (w == "barrier" && second == "cluster") {
        i.run = i.has("wait") ? run_cluster_wait : run_cluster_arrive;
    } else if (w == "bar" || w == "barrier") {
        i.run = run_bar;
    } else if (w == "fence" || w == "membar") {
        i.run = run_fence;
    } else if (w == "shfl") {
        needs(4);
        i.run = run_shfl;
    } else if (w == "vote") {
        needs(3);
        i.run = run_vote;
    } else if (w == "activemask") {
        needs(1);
        i.run = run_activemask;
    } else if (w == "redux") {
        needs(3);
        i.run = run_redux;
    } else if (w == "elect") {
        needs(2);
        i.run = run_elect;
    } else if (w == "ldmatrix" || w == "stmatrix") {
        needs(2);
        i.width = i.has("x4") ? 4 : i.has("x2") ? 2 : 1;
        if (!i.has("m8n8") || !i.has("b16")) throw Unknown(name);
        i.run = run_ldmatrix;
    } else if (w == "movmatrix") {
        needs(2);
        i.run = run_movmatrix;
    } else if (w == "mma") {
        needs(4);
        int rows = 0, columns = 0, depth = 0;
        for (const auto& word : i.words) std::sscanf(word.c_str(), "m%dn%dk%d", &rows, &columns, &depth);
        if (types.size() != 4 || columns != 8 || !i.has("row") || !i.has("col") || i.has("sp")) throw Unknown(name);
        i.type = types[1];
        i.rows = rows;
        i.depth = depth;
        const Type d = types[0], a = types[1], b = types[2], c = types[3];
        const auto is = [](Type t, char kind, unsigned bits) { return t.kind == kind && t.bits == bits; };
        if (is(a, 'f', 64)) {
            if (!((rows == 8 && depth == 4) || (rows == 16 && (depth == 4 || depth == 8 || depth == 16)))) throw Unknown(name);
        } else if ((a.kind == 's' || a.kind == 'u') && a.bits == 8 && b.bits == 8) {
            if (rows != 16 || (depth != 16 && depth != 32) || i.has("satfinite")) throw Unknown(name);
            i.flag = a.kind == 's';
            i.other = b.kind == 's';
        } else if (rows == 16 && ((a.kind == 'h' && b.kind == 'h') || (a.kind == 'g' && b.kind == 'g')) && (depth == 8 || depth == 16)) {
            i.flag = c.kind == 'h';
            i.other = d.kind == 'h';
        } else if (rows == 16 && a.kind == 't' && b.kind == 't' && (depth == 4 || depth == 8)) {
        } else {
            throw Unknown(name);
        }
        i.run = run_mma;
    } else if (w == "wgmma" && second == "mma_async") {
        needs(3);
        int rows = 0, columns = 0, depth = 0;
        for (const auto& word : i.words) std::sscanf(word.c_str(), "m%dn%dk%d", &rows, &columns, &depth);
        if (types.size() != 3 || rows != 64 || columns % 8 || columns > most_columns || i.has("sp")) throw Unknown(name);
        i.type = types[1];
        if (!std::strchr("hgt", i.type.kind) || types[2].kind != i.type.kind || depth != (i.type.kind == 't' ? 8 : 16)) throw Unknown(name);
        i.columns = columns;
        i.depth = depth;
        i.other = types[0].kind == 'h';
        i.run = run_wgmma;
    } else if (w == "wgmma" && second == "fence") {
        i.run = run_wgmma_fence;
    } else if (w == "wgmma" && second == "commit_group") {
        i.run = run_wgmma_commit;
    } else if (w == "wgmma" && second == "wait_group") {
        needs(1);
        i.run = run_wgmma_wait;
    } else {
        throw Unknown(name);
    }
    for (Operand& o : i.operands)
        if (o.decimal) o.value = bits_of_real(o.number, i.type);
}

std::vector<std::unique_ptr<Program>> programs;

const Program& program(unsigned number, unsigned operands)
{
    if (programs.size() <= number) programs.resize(number + 1);
    if (!programs[number]) {
        Reader reader{operands, {}, {}, {}};
        programs[number] = std::make_unique<Program>(reader.read(emulator_ptx_sources[number].text));
    }
    return *programs[number];
}

// ---- A block ---------------------------------------------------------------------------------------------------------------------------------

void block_starts()
{
    barriers.clear();
    own.assign(cluster_blocks * block_threads(), {});
    under_way.clear();
    leaving.clear();
    named.assign(16 * cluster_blocks, {});
    products.assign(cluster_blocks * block_threads() / 32, {});
}

// Work that nobody has waited for outlives the block, whose shared memory is another's then.
void still_under_way(const Origin& origin, const char* what)
{
    watch::asynchrony(std::string("the block ends, and nothing has waited for the copy that starts here; it ") + what,
                      origin.source->file, origin.source->line, origin.pc);
}

void block_ends()
{
    for (auto& [thread, mine] : leaving) {
        mine.groups.push_back(std::move(mine.open));
        for (const auto& group : mine.groups) {
            if (!group.empty()) still_under_way(group[0].origin, "may still read shared memory");
            put_out(group);
        }
    }
    for (const Coming& copy : under_way) still_under_way(copy.origin, "may still write shared memory");
    for (Own& mine : own) {
        mine.groups.push_back(mine.open);
        for (const Pieces& pieces : mine.groups)
            if (!pieces->pieces.empty()) still_under_way(pieces->origin, "may still write shared memory");
    }
}

const bool registered = [] {
    beside = {block_starts, deliver, block_ends};
    return true;
}();

}  // namespace

__attribute__((noinline)) void run(unsigned number, std::uint64_t* values, unsigned count)
{
    const Program& p = program(number, count);
    std::uint64_t locals[64];
    std::unique_ptr<std::uint64_t[]> more;
    if (p.locals > 64) more = std::make_unique<std::uint64_t[]>(p.locals);
    Frame frame{values, count, more ? more.get() : locals, &emulator_ptx_sources[number], __builtin_return_address(0), 0};
    while (frame.next < p.code.size()) {
        const Instruction& i = p.code[frame.next++];
        if (i.predicate >= 0) {
            const std::uint64_t holds = static_cast<unsigned>(i.predicate) < count ? values[i.predicate] : frame.locals[i.predicate - count];
            if ((holds != 0) == i.unless) continue;
        }
        i.run(i, frame);
    }
}

}  // namespace emulator::ptx

void emulator::multiply_fragments(int m, int n, int k, int kind, bool half_sums, const float* a, const float* b,
                                  const float* c, float* d, const char* file, int line)
{
    ptx::Fragments record{m, n, k, kind, half_sums, a, b, c, d, file, line};
    together(~0u, reinterpret_cast<const void*>(ptx::act_fragments), &record, ptx::act_fragments, file, line);
}

/// The first statement of inline PTX that the emulator does not know, as `file:line: name`; else "".
extern "C" __attribute__((visibility("default"))) const char* emulator_ptx_unknown()
{
    static std::string message;
    for (unsigned k = 0; emulator_ptx_sources[k].text; ++k) {
        try {
            emulator::ptx::Reader reader{1000, {}, {}, {}};
            reader.read(emulator_ptx_sources[k].text);
        } catch (const emulator::ptx::Unknown& unknown) {
            message = std::string(emulator_ptx_sources[k].file) + ":" + std::to_string(emulator_ptx_sources[k].line) +
                      ": the emulator does not know this inline PTX: " + unknown.what();
            return message.c_str();
        }
    }
    return "";
}
