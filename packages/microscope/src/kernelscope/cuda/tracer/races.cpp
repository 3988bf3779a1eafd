#include "races.h"

#include <cstring>

namespace emulator::tracer {

bool is_undecided;

namespace {

// A race of two writes is known before the second is done.
Fault undecided;
unsigned char before[16];

Fault race_with(Kind kind, const Access& access, unsigned thread, const Site& site, bool write, std::uint32_t stamp,
                const Unordered& unordered)
{
    Fault fault = fault_of(kind, access);
    if (stamp < block_start || thread < wgmma_of_warp) set_block(fault.other_block, block_at(stamp, thread));
    fault.other_thread = in_words(thread);
    fault.other_write = write;
    fault.other_pc = site.pc - library_begin;
    const bool loads = !access.write && !access.strength.strong && site.strength.exchange;
    const bool is_loaded = !write && !site.strength.strong && access.strength.exchange;
    if (loads || is_loaded) fault.load_pc = (loads ? access.pc : site.pc) - library_begin;
    fault.which = unordered.which;
    if (unordered.pc) fault.meeting_pc = unordered.pc - library_begin;
    if (fault.which == Case::plain && stamp >= block_start && thread / 32 == running / 32 && site.pc != access.pc)
        fault.which = Case::lanes;
    if (fault.which == Case::plain && stamp < block_start && site.unit && knows_of_block(stamp))
        fault.which = Case::told_early;
    return fault;
}

Unordered order_of(const Access& access, std::uint32_t stamp, unsigned thread)
{
    return thread < wgmma_of_warp ? unordered_by_meeting(access.address, stamp, thread) : Unordered{};
}

}  // namespace

[[gnu::noinline, gnu::cold]] void report_race(const Access& access, std::uint32_t stamp, unsigned thread,
                                              const Site& site, bool write)
{
    const bool is_narrow = access.strength.strong && site.strength.strong;
    const Unordered why = is_narrow ? Unordered{Case::narrow} : order_of(access, stamp, thread);
    const Fault fault = race_with(Kind::race, access, thread, site, write, stamp, why);
    const bool alike = access.size == site.size && access.strength.stores && site.strength.stores;
    if (!write || !alike) return report(fault);
    undecided = fault;
    is_undecided = true;
    std::memcpy(before, reinterpret_cast<const void*>(access.address), access.size);
}

[[gnu::noinline, gnu::cold]] void remark_unordered(const Access& access, std::uint32_t stamp, unsigned thread,
                                                   const Site& site)
{
    const Unordered why = order_of(access, stamp, thread);
    if (why.which == Case::plain) return;
    // Volatile accesses do not race. But who takes a lock to write, or fences for the block alone, means an order.
    const bool is_meant = why.which != Case::unfenced && why.which != Case::taken_unfenced;
    const Kind kind = is_meant || (access.write && why.takes) ? Kind::race : Kind::unordered;
    report(race_with(kind, access, thread, site, true, stamp, why));
}

[[gnu::noinline, gnu::cold]] void decide()
{
    is_undecided = false;
    undecided.same_value = std::memcmp(before, reinterpret_cast<const void*>(undecided.address), undecided.size) == 0;
    report(undecided);
}

}  // namespace emulator::tracer
