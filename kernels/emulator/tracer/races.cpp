#include "races.h"

#include <cstring>

namespace emulator::tracer {

bool is_undecided;

namespace {

// A race of two writes is known before the second is done.
Fault undecided;
unsigned char before[16];

Fault race_with(Kind kind, const Access& access, std::uint32_t stamp, unsigned thread, const Site& site, bool write)
{
    Fault fault = fault_of(kind, access);
    if (stamp < block_start || thread < wgmma_of_warp) set_block(fault.other_block, block_at(stamp, thread));
    fault.other_thread = in_words(thread);
    fault.other_write = write;
    fault.other_pc = site.pc - library_begin;
    std::uintptr_t meeting = library_begin;
    if (access.strength.strong && site.strength.strong && kind == Kind::race)
        fault.which = Case::narrow;
    else if (thread < wgmma_of_warp)
        fault.which = unordered_by_meeting(access.address, stamp, thread, meeting);
    fault.meeting_pc = meeting - library_begin;
    if (fault.which == Case::plain && stamp >= block_start && thread / 32 == running / 32 && site.pc != access.pc)
        fault.which = Case::lanes;
    return fault;
}

}  // namespace

[[gnu::noinline, gnu::cold]] void report_race(const Access& access, std::uint32_t stamp, unsigned thread,
                                              const Site& site, bool write)
{
    const Fault fault = race_with(Kind::race, access, stamp, thread, site, write);
    if (!write || !access.strength.stores || !site.strength.stores) return report(fault);
    undecided = fault;
    is_undecided = true;
    std::memcpy(before, reinterpret_cast<const void*>(access.address), access.size);
}

[[gnu::noinline, gnu::cold]] void remark_unordered(const Access& access, std::uint32_t stamp, unsigned thread,
                                                   const Site& site)
{
    const Fault fault = race_with(Kind::unordered, access, stamp, thread, site, true);
    if (fault.which != Case::plain && fault.which != Case::lanes) report(fault);
}

[[gnu::noinline, gnu::cold]] void decide()
{
    is_undecided = false;
    undecided.same_value = std::memcmp(before, reinterpret_cast<const void*>(undecided.address), undecided.size) == 0;
    report(undecided);
}

}  // namespace emulator::tracer
