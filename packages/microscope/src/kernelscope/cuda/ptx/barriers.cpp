// Barriers of inline PTX: in shared memory, of some warps, and the registers that warps hand over.
#include "barriers.h"

namespace emulator::ptx {

// The wait that a thread has tried once in vain, by its barrier and phase.
struct Tried {
    std::uint32_t at = 0;
    unsigned phase = 0;
};
static std::vector<Tried> tried;  // of each thread

std::unordered_map<std::uint32_t, MBarrier> barriers;

MBarrier* barrier_at(std::uint32_t number, Frame& f, bool quietly)
{
    const auto found = barriers.find(number);
    if (found == barriers.end()) {
        char text[96];
        std::snprintf(text, sizeof text, "there is no mbarrier at 0x%x of shared memory (mbarrier.init makes one)",
                      number);
        refuse(f, text, true);
        return nullptr;
    }
    if (!quietly) watch::uses(shared_pointer(number), 8, false, f.pc);
    return &found->second;
}

static std::string describe(const MBarrier& b)
{
    char text[120];
    std::snprintf(text, sizeof text, ") at 0x%x, of which %d of %d arrivals", b.at, b.pending, b.expected);
    std::string said = "the mbarrier (made at " + b.made + text;
    if (b.bytes > 0) said += " and " + std::to_string(b.bytes) + " bytes";
    said += " are missing in phase " + std::to_string(b.phase);
    return b.bytes < 0 ? said + ", where " + std::to_string(-b.bytes) + " bytes more have come than were announced"
                       : said;
}

void look(MBarrier& b)
{
    if (b.pending || b.bytes) return;
    ++b.phase;
    b.pending = b.expected;
    b.known = b.coming;
    wake(&b);
}

static void arrive(MBarrier& b, int count, Frame& f)
{
    watch::release(b.coming);
    if (count > b.pending) {
        refuse(f, "arrives at " + describe(b) + ": more arrivals than it was made for");
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
        if (at % 8) return refuse(f, "makes an mbarrier at an address that 8 does not divide");
        watch::uses(shared_pointer(at), 8, true, f.pc);
        const unsigned worker = copies_of_barrier + barriers.size() % 64;
        MBarrier& b = barriers[at] = MBarrier{};
        b.at = at;
        b.expected = b.pending = argument(1, 1);
        b.worker = worker;
        b.made = watch::place(f.pc, f.source->file, f.source->line);
        watch::guard(shared_pointer(at), 8, f.pc);
        return;
    }
    MBarrier* b = barrier_at(at, f);
    if (!b) return;
    if (what == "inval") {
        watch::guard(shared_pointer(at), 8, nullptr);
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
        // A GPU gives up after a time that nobody knows: who does not try again has not waited.
        Tried& last = tried[thread_number()];
        const bool gives_up = is_random() && !done() && !(last.at == at && last.phase == b->phase);
        if (gives_up) last = {at, b->phase};
        if (what == "try_wait" && !gives_up) {
            while (!done())
                sleep_for(
                    b, [](const void* o, std::uint64_t) { return describe(*static_cast<const MBarrier*>(o)); }, 0,
                    f.source->file, f.source->line, f.pc);
        } else if (what == "test_wait" && !done()) {
            let_others_run(f.source->file, f.source->line, f.pc);
        }
        const bool over = done();
        if (over) watch::acquire(b->known);
        set(i.operands[0], f, over);
    }
}

// ---- Barriers of some warps -----------------------------------------------------------------------------------------

struct Named {
    unsigned number = 0, wanted = 0, arrived = 0;
    Known coming, known;
};
static std::vector<Named> named;  // 16 of each block

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
        const unsigned count = synchronise(all ? !p : p, f.source->file, f.source->line, statement(f));
        return set(i.operands[0], f, i.has("popc") ? count : all ? count == 0 : count != 0);
    }
    if (waits && number == 0 && wanted == thread_count()) {
        synchronise(false, f.source->file, f.source->line, statement(f));
        return;
    }
    if (number >= 16) return refuse(f, "a block has 16 barriers, 0 to 15, not number " + std::to_string(number));
    if (wanted % 32) return refuse(f, "a barrier takes whole warps, not " + std::to_string(wanted) + " threads");
    Named& n = named[16 * block_rank() + number];
    n.number = number;
    if (number == 0 && waits_at_block_barrier(block_rank()))
        refuse(f, "comes to barrier 0 with " + std::to_string(wanted) +
                      " threads, others wait at __syncthreads(), which is barrier 0 of all threads");
    if (n.arrived && n.wanted != wanted)
        refuse(f, "comes to barrier " + std::to_string(number) + " with " + std::to_string(wanted) +
                      " threads, others came with " + std::to_string(n.wanted));
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
        return "barrier " + std::to_string(n.number) + ", to which " + std::to_string(n.arrived) + " of " +
               std::to_string(n.wanted) + " threads have come";
    };
    sleep_for(&n, why, 0, f.source->file, f.source->line, f.pc, complete);
    watch::acquire(n.known);
}
void run_cluster_arrive(const Instruction& i, Frame& f)
{
    cluster_arrive(i.has("relaxed"), f.source->file, f.source->line);
}
void run_cluster_wait(const Instruction&, Frame& f) { cluster_wait(f.source->file, f.source->line, f.pc); }
void run_bar_warp(const Instruction& i, Frame& f)
{
    synchronise_warp(i.operands.empty() ? ~0u : get(i.operands[0], f), f.source->file, f.source->line);
}

void run_fence(const Instruction& i, Frame& f)
{
    if (i.has("proxy") || i.has("mbarrier_init")) {
        for (auto& [at, b] : barriers) b.shown |= rank_of_shared(at) == block_rank();
        if (i.has("proxy")) watch::proxy_fence(!i.has("shared::cta") && !i.has("shared::cluster"), !i.has("global"));
        return;
    }
    fence(i.has("cta") ? 0 : 1);
    (void)f;
}

// ---- Registers of a warp group --------------------------------------------------------------------------------------

// What the warps of a block hold. All that they hold at its start is what they exchange.
struct Registers {
    std::vector<unsigned> of_thread;           // of each warp
    std::vector<std::vector<unsigned>> asked;  // of each warp: its setmaxnreg in their order
    Origin origin;
    unsigned held() const
    {
        unsigned sum = 0;
        for (unsigned number : of_thread) sum += 32 * number;
        return sum;
    }
};
static std::map<unsigned, Registers> registers;  // by block
static unsigned registers_at_start = 256;        // of a thread

static void act_setmaxnreg(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Lane& one = lane_of(records, 0);
    registers[block_rank()].asked[thread_in_block() / 32].push_back(get(one.instruction->operands[0], *one.frame));
}

void run_setmaxnreg(const Instruction& i, Frame& f)
{
    const unsigned wanted = get(i.operands[0], f), warp = thread_in_block() / 32, warps = block_threads() / 32;
    if (wanted < 24 || wanted > 256 || wanted % 8)
        return emulator::trap((" runs setmaxnreg with " + std::to_string(wanted) +
                               " registers, which ptxas refuses: it takes a multiple of 8 from 24 to 256")
                                  .c_str(),
                              f.source->file, f.source->line);
    Registers& r = registers[block_rank()];
    if (r.of_thread.empty()) {
        r.of_thread.assign(warps, registers_at_start);
        r.asked.resize(warps);
    }
    r.origin = {f.source, f.pc};
    all_lanes(i, f, act_setmaxnreg);
    const Why why = [](const void* o, std::uint64_t wanted) {
        return std::to_string(wanted) + " registers per thread, of which the block has no more: its warps hold " +
               std::to_string(static_cast<const Registers*>(o)->held()) + " of the " +
               std::to_string(registers_at_start * block_threads()) + " that it has since its start";
    };
    while (r.held() - 32 * r.of_thread[warp] + 32 * wanted > registers_at_start * block_threads())
        sleep_for(&r, why, wanted, f.source->file, f.source->line, f.pc);
    r.of_thread[warp] = wanted;
    wake(&r);
}

// It is one operation of the four warps of a group.
static void look_at_registers()
{
    for (const auto& [rank, r] : registers)
        for (unsigned warp = 0; warp < r.asked.size(); ++warp)
            if (r.asked[warp] != r.asked[warp / 4 * 4])
                return watch::divergence(
                    "not all warps of a warp group run the same setmaxnreg, which is one operation of its four warps",
                    r.origin.source->file, r.origin.source->line);
}

void start_barriers()
{
    barriers.clear();
    tried.assign(cluster_blocks * block_threads(), {});
    registers.clear();
    named.assign(16 * cluster_blocks, {});
}
void end_barriers() { look_at_registers(); }

}  // namespace emulator::ptx

/// How many registers each thread of the next launches has at its start.
EMULATOR_EXPORT void emulator_registers(unsigned number) { emulator::ptx::registers_at_start = number; }
