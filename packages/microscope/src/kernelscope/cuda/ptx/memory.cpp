// Loads, stores and atomic operations of inline PTX, and addresses.
#include "program.h"

namespace emulator::ptx {

// As of watch::fence.
static int scope_of(const Instruction& i) { return i.has("cta") ? 0 : 1; }

void run_ld(const Instruction& i, Frame& f)
{
    const unsigned bytes = i.type.bytes();
    const char* from = pointer(i, address(i.operands[1], f));
    if (i.has("nc")) watch::reads_only(from, bytes * i.width, f.pc);
    if (is_strong(i)) {
        asks(from, bytes * i.width, f.pc);
        watch::atomic(from, bytes * i.width, false, f.pc, {true, false, i.has("cta")});
        if (i.has("acquire")) watch::fence(scope_of(i), false, true);
    } else if (!watch::accesses(from, bytes * i.width, false, f.pc) && i.starts("shared"))
        return;
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
    if (i.has("release")) watch::fence(scope_of(i), true, false);
    if (is_strong(i))
        watch::atomic(to, bytes * i.width, true, f.pc, {true, false, i.has("cta")});
    else if (!watch::accesses(to, bytes * i.width, true, f.pc) && i.starts("shared"))
        return;
    for (unsigned k = 0; k < i.width; ++k) {
        const std::uint64_t value =
            get(i.operands[1].kind == Operand::list ? i.operands[1].parts[k] : i.operands[1], f);
        std::memcpy(to + k * bytes, &value, bytes);
    }
}
void run_atom(const Instruction& i, Frame& f)
{
    const bool returns = i.words[0] == "atom";
    const std::size_t first = returns ? 1 : 0;
    char* at = pointer(i, address(i.operands[first], f));
    const unsigned bytes = i.type.bytes();
    if (i.has("release") || i.has("acq_rel")) watch::fence(scope_of(i), true, false);
    asks(at, bytes * i.width, f.pc);
    watch::atomic(at, bytes * i.width, true, f.pc, {true, true, i.has("cta"), i.code == cas});
    if (i.has("acquire") || i.has("acq_rel")) watch::fence(scope_of(i), false, true);
    for (unsigned k = 0; k < i.width; ++k, at += bytes) {
        std::uint64_t before = 0, after;
        std::memcpy(&before, at, bytes);
        const std::uint64_t b = cut(get(part(i.operands[first + 1], k), f), i.type.bits);
        if (i.code == cas)
            after = before == b ? get(i.operands[first + 2], f) : before;
        else
            after = calculate(i.code, i.type, before, b);
        std::memcpy(at, &after, bytes);
        if (returns) set(part(i.operands[0], k), f, before);
    }
}
void run_cvta(const Instruction& i, Frame& f)
{
    const std::uint64_t a = get(i.operands[1], f);
    const bool to = i.has("to"), shared = i.starts("shared");
    const std::uint64_t r = !shared ? a
                            : to    ? shared_number(reinterpret_cast<void*>(a))
                                    : reinterpret_cast<std::uintptr_t>(shared_pointer(a));
    set(i.operands[0], f, cut(r, i.type.bits));
}
void run_isspacep(const Instruction& i, Frame& f)
{
    const std::uint64_t offset = get(i.operands[1], f) - reinterpret_cast<std::uintptr_t>(shared_window);
    const bool shared = offset >> block_window_bits < cluster_blocks &&
                        rank_of_shared(offset) / cluster_size == block_rank() / cluster_size;
    const bool own = shared && rank_of_shared(offset) == block_rank();
    set(i.operands[0], f, i.has("shared::cluster") ? shared : i.starts("shared") ? own : !shared);
}
// The same place in the shared memory of another block of the cluster.
void run_mapa(const Instruction& i, Frame& f)
{
    const unsigned rank = get(i.operands[2], f);
    const std::uint64_t a = get(i.operands[1], f);
    if (rank >= cluster_size)
        return refuse(
            f, "mapa asks for block " + std::to_string(rank) + " of a cluster of " + std::to_string(cluster_size),
            true);
    const bool is_number = i.starts("shared");
    const std::uint32_t number =
        in_block_of(is_number ? a : shared_number(reinterpret_cast<void*>(a)), first_rank() + rank);
    set(i.operands[0], f, is_number ? number : reinterpret_cast<std::uintptr_t>(shared_pointer(number)));
}
void run_getctarank(const Instruction& i, Frame& f)
{
    const std::uint64_t a = get(i.operands[1], f);
    set(i.operands[0], f,
        rank_of_shared(i.starts("shared") ? a : shared_number(reinterpret_cast<void*>(a))) % cluster_size);
}

}  // namespace emulator::ptx
