// Two accesses that nothing orders: what is said of them.
#pragma once

#include "atomics.h"
#include "counting.h"

#pragma GCC visibility push(hidden)
namespace emulator::tracer {

extern bool is_undecided;  // whether a race waits for the value of its second write

/// Whether both accesses are strong, each of a scope that has the other's thread in it: then they do not race.
inline bool hold_for_each_other(const watch::Strength& one, const watch::Strength& other, std::uint32_t stamp,
                                unsigned thread)
{
    if (!one.strong || !other.strong) return false;
    if (!one.of_block && !other.of_block) return true;
    return stamp >= block_start && (cluster_blocks == 1 || rank_of(thread) == rank_of(running));
}

/// An access races with what `thread`, or a unit, did at that time at a site: a write, or a read.
void report_race(const Access& access, std::uint32_t stamp, unsigned thread, const Site& site, bool write);
/// The same of accesses that are strong: they do not race, but an atomic operation should order them and does not. A
/// fault if that is sure, else a remark.
void remark_unordered(const Access& access, std::uint32_t stamp, unsigned thread, const Site& site);
/// Before anything else is written: whether the last race of two writes has left what was there.
void decide();

}  // namespace emulator::tracer
#pragma GCC visibility pop
