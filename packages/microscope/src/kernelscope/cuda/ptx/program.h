// A program of inline PTX as the interpreter has it, and what all instructions share.
#pragma once

#include "../runtime/watch.h"
#include "tensor_core.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string_view>

namespace emulator::ptx {

struct Type {
    char kind = 'b';  // u, s, f, b; h: half, g: bfloat16, t: TF32, 4: e4m3, 5: e5m2; H, G: two of h, g
    unsigned bits = 32;
    unsigned bytes() const { return bits / 8; }
};

struct Operand {
    enum Kind { none, slot, immediate, memory, list, label, special, sink } kind = none;
    int index = 0;  // of a slot; the instruction after a label
    bool negated = false;
    bool decimal = false;
    std::uint64_t value = 0;  // of an immediate; the offset of an address
    double number = 0;
    std::uint64_t (*ask)() = nullptr;
    std::string name;
    std::vector<Operand> parts;  // of a list, an address, a pair a|b
};

// The statement that a thread was at when it started work.
struct Origin {
    const Source* source;
    const void* pc;
};

struct Instruction;
struct Frame {
    std::uint64_t* values;
    unsigned count;
    std::uint64_t* locals;
    const Source* source;
    const void* pc;
    std::size_t next;
    const Place* places;  // of the operands, in a statement with wgmma; else null
};
using Run = void (*)(const Instruction&, Frame&);

struct Instruction {
    Run run = nullptr;
    std::vector<std::string> words;  // of the operation
    std::vector<Operand> operands;
    int predicate = -1;
    bool unless = false;
    Type type, from;
    unsigned width = 1;  // elements of a vector
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

inline std::uint64_t& slot(const Operand& o, Frame& f)
{
    return static_cast<unsigned>(o.index) < f.count ? f.values[o.index] : f.locals[o.index - f.count];
}

inline std::uint64_t get(const Operand& o, Frame& f)
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
inline void set(const Operand& o, Frame& f, std::uint64_t value)
{
    if (o.kind == Operand::slot) slot(o, f) = value;
}
inline std::uint64_t address(const Operand& o, Frame& f) { return get(o.parts[0], f) + o.value; }

// ---- Numbers --------------------------------------------------------------------------------------------------------

inline std::uint64_t cut(std::uint64_t value, unsigned bits)
{
    return bits >= 64 ? value : value & ((1ull << bits) - 1);
}
inline std::int64_t extended(std::uint64_t value, unsigned bits)
{
    return bits >= 64 ? static_cast<std::int64_t>(value)
                      : static_cast<std::int64_t>(value << (64 - bits)) >> (64 - bits);
}
inline double real(std::uint64_t bits, Type t)
{
    if (t.kind == 'h') return float_of_half(bits);
    if (t.kind == 'g') return float_of_bfloat16(bits);
    return t.bits == 64 ? bits_of<double>(bits) : bits_of<float>(static_cast<std::uint32_t>(bits));
}
inline std::uint64_t bits_of_real(double value, Type t)
{
    if (t.kind == 'h') return half_of(static_cast<float>(value));
    if (t.kind == 'g') return bfloat16_of(static_cast<float>(value));
    return t.bits == 64 ? bits_of<std::uint64_t>(value) : bits_of<std::uint32_t>(static_cast<float>(value));
}
inline bool is_real(Type t) { return t.kind == 'f' || t.kind == 'h' || t.kind == 'g'; }
inline bool is_fp8(Type t) { return t.kind == '4' || t.kind == '5'; }
bool parse_type(const std::string& word, Type& t);

enum Code { add, sub, mul, mul_hi, mul_wide, min_, max_, and_, or_, xor_, shl, shr, div_, rem, exch, inc, dec, cas };
std::uint64_t calculate(int code, Type t, std::uint64_t a, std::uint64_t b);

// ---- Places ---------------------------------------------------------------------------------------------------------

inline char* pointer(const Instruction& i, std::uint64_t at)
{
    return i.starts("shared") ? shared_pointer(at) : reinterpret_cast<char*>(at);
}

inline std::string by_thread(const std::string& text)
{
    const unsigned t = thread_in_block();
    char who[64];
    std::snprintf(who, sizeof who, "thread (%u, %u): ", t % blockDim.x, t / blockDim.x % blockDim.y);
    return who + text;
}
// Asynchronous work lacks something.
inline void complain(Frame& f, const std::string& text)
{
    watch::asynchrony(by_thread(text), f.source->file, f.source->line, f.pc);
}
// An instruction does not take what it is given; if it is the `last`, the run cannot go on.
inline void refuse(Frame& f, const std::string& text, bool last = false)
{
    watch::invalid(by_thread(text), f.source->file, f.source->line, f.pc, last);
}

inline bool is_strong(const Instruction& i)
{
    return i.has("acquire") || i.has("relaxed") || i.has("release") || (i.has("volatile") && !i.starts("shared"));
}
// Distinguishes the statements of a line.
inline unsigned statement(const Frame& f) { return f.source - emulator_ptx_sources; }

// ---- The lanes of a warp --------------------------------------------------------------------------------------------

struct Lane {
    const Instruction* instruction;
    Frame* frame;
};
inline Lane& lane_of(void* const* records, unsigned lane) { return *static_cast<Lane*>(records[lane]); }

// All lanes run the instruction at once; `act` gets the Lane of each.
inline void all_lanes(const Instruction& i, Frame& f, void (*act)(void* const*, unsigned))
{
    Lane lane{&i, &f};
    together(~0u, &i, &lane, act, f.source->file, f.source->line);
}
inline bool is_whole(void* const* records, unsigned lanes)
{
    if (lanes == ~0u) return true;
    const Lane& one = lane_of(records, __builtin_ctz(lanes));
    watch::divergence("not all lanes of the warp run this instruction (" + one.instruction->words[0] +
                          "), which needs all",
                      one.frame->source->file, one.frame->source->line);
    return false;
}

const Operand& part(Operand&& o, unsigned k) = delete;
inline const Operand& part(const Operand& o, unsigned k) { return o.kind == Operand::list ? o.parts[k] : o; }

// ---- Instructions ---------------------------------------------------------------------------------------------------

// numbers.cpp
void run_binary(const Instruction&, Frame&);
void run_multiply_add(const Instruction&, Frame&);
void run_carry(const Instruction&, Frame&);
void run_unary(const Instruction&, Frame&);
void run_mov(const Instruction&, Frame&);
void run_cvt(const Instruction&, Frame&);
void run_setp(const Instruction&, Frame&);
void run_selp(const Instruction&, Frame&);
void run_prmt(const Instruction&, Frame&);
void run_lop3(const Instruction&, Frame&);
void run_shf(const Instruction&, Frame&);
void run_bfe(const Instruction&, Frame&);
void run_bfi(const Instruction&, Frame&);
void run_nothing(const Instruction&, Frame&);
void run_bra(const Instruction&, Frame&);
void run_exit(const Instruction&, Frame&);
void run_trap(const Instruction&, Frame&);
// memory.cpp
void run_ld(const Instruction&, Frame&);
void run_st(const Instruction&, Frame&);
void run_atom(const Instruction&, Frame&);
void run_cvta(const Instruction&, Frame&);
void run_isspacep(const Instruction&, Frame&);
void run_mapa(const Instruction&, Frame&);
void run_getctarank(const Instruction&, Frame&);
// barriers.cpp
void run_mbarrier(const Instruction&, Frame&);
void run_bar(const Instruction&, Frame&);
void run_cluster_arrive(const Instruction&, Frame&);
void run_cluster_wait(const Instruction&, Frame&);
void run_bar_warp(const Instruction&, Frame&);
void run_fence(const Instruction&, Frame&);
void run_setmaxnreg(const Instruction&, Frame&);
// copies.cpp
void run_cp_async(const Instruction&, Frame&);
void run_commit(const Instruction&, Frame&);
void run_wait_group(const Instruction&, Frame&);
void run_cp_async_arrive(const Instruction&, Frame&);
void run_bulk_load(const Instruction&, Frame&);
void run_bulk_between(const Instruction&, Frame&);
void run_st_async(const Instruction&, Frame&);
void run_box_load(const Instruction&, Frame&);
// stores.cpp
void run_bulk_store(const Instruction&, Frame&);
void run_box_store(const Instruction&, Frame&);
void run_bulk_commit(const Instruction&, Frame&);
void run_bulk_wait(const Instruction&, Frame&);
// warp.cpp
void run_shfl(const Instruction&, Frame&);
void run_vote(const Instruction&, Frame&);
void run_activemask(const Instruction&, Frame&);
void run_redux(const Instruction&, Frame&);
void run_elect(const Instruction&, Frame&);
void run_ldmatrix(const Instruction&, Frame&);
void run_movmatrix(const Instruction&, Frame&);
// tensor.cpp
void run_mma(const Instruction&, Frame&);
// wgmma.cpp
void run_wgmma(const Instruction&, Frame&);
void run_wgmma_commit(const Instruction&, Frame&);
void run_wgmma_fence(const Instruction&, Frame&);
void run_wgmma_wait(const Instruction&, Frame&);

// What begins and ends with a block
void start_barriers();
void end_barriers();
void start_copies();
void end_copies();
void start_products();
void end_products();
bool deliver();  // the next copy that is under way

}  // namespace emulator::ptx
