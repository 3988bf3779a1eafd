// Sums of the lanes before each lane of a group.
#pragma once

#include "reduce.h"

namespace cooperative_groups {

/// Of the lanes of one warp.
template <typename Group, typename T, typename F>
inline T scan_of_lanes(const Group& group, T value, F f, EMULATOR_PLACE)
{
    const unsigned rank = group.thread_rank();
    for (unsigned by = 1; by < group.size(); by *= 2) {
        const T before = group.shfl_up(value, by, file, line);
        if (rank >= by) value = f(before, value);
    }
    return value;
}
/// The sum of the warps before the caller's, of which the first has none: T().
template <typename Tile, typename T, typename F>
inline T sum_of_warps_before(const Tile& tile, T of_warp, F f, EMULATOR_PLACE)
{
    const unsigned warp = tile.thread_rank() / 32;
    const auto sum = [&](const T* of_warps) {
        T before = warp ? of_warps[0] : T();
        for (unsigned other = 1; other < warp; ++other) before = f(before, of_warps[other]);
        return before;
    };
    return tile.collective(emulator::Collective::scan, 0, of_warp, sum, file, line);
}

template <typename Group, typename T, typename F>
inline T inclusive_scan(const Group& group, T value, F f, EMULATOR_PLACE)
{
    if constexpr (most_threads<Group> > 32 && most_threads<Group> <= 512) {
        const tile_of_lanes<32> lanes;
        value = scan_of_lanes(lanes, value, f, file, line);
        const T before = sum_of_warps_before(group, lanes.shfl(value, 31, file, line), f, file, line);
        return group.thread_rank() < 32 ? value : f(before, value);
    } else {
        return scan_of_lanes(group, value, f, file, line);
    }
}
template <typename Group, typename T>
inline T inclusive_scan(const Group& group, T value, EMULATOR_PLACE)
{
    return inclusive_scan(group, value, plus<T>(), file, line);
}
/// The first lane gets T().
template <typename Group, typename T, typename F>
inline T exclusive_scan(const Group& group, T value, F f, EMULATOR_PLACE)
{
    if constexpr (most_threads<Group> > 32 && most_threads<Group> <= 512) {
        const tile_of_lanes<32> lanes;
        value = scan_of_lanes(lanes, value, f, file, line);
        const T before = sum_of_warps_before(group, lanes.shfl(value, 31, file, line), f, file, line);
        value = lanes.shfl_up(value, 1, file, line);
        return lanes.thread_rank() == 0 ? before : group.thread_rank() < 32 ? value : f(before, value);
    } else {
        const T before = group.shfl_up(scan_of_lanes(group, value, f, file, line), 1, file, line);
        return group.thread_rank() ? before : T();
    }
}
template <typename Group, typename T>
inline T exclusive_scan(const Group& group, T value, EMULATOR_PLACE)
{
    return exclusive_scan(group, value, plus<T>(), file, line);
}

}  // namespace cooperative_groups
