// Values of a group's lanes, combined.
#pragma once

#include "../cooperative_groups.h"

namespace cooperative_groups {

template <typename T>
struct plus {
    T operator()(T a, T b) const { return a + b; }
};
template <typename T>
struct greater {
    T operator()(T a, T b) const { return a < b ? b : a; }
};
template <typename T>
struct less {
    T operator()(T a, T b) const { return b < a ? b : a; }
};
template <typename T>
struct bit_and {
    T operator()(T a, T b) const { return a & b; }
};
template <typename T>
struct bit_or {
    T operator()(T a, T b) const { return a | b; }
};
template <typename T>
struct bit_xor {
    T operator()(T a, T b) const { return a ^ b; }
};
/// Of any number of lanes.
template <typename T, typename F>
inline T reduce(const coalesced_group& group, T value, F f, EMULATOR_PLACE)
{
    T all = group.shfl(value, 0, file, line);
    for (unsigned rank = 1; rank < group.size(); ++rank) all = f(all, group.shfl(value, rank, file, line));
    return all;
}
template <unsigned SIZE, typename T, typename F>
inline T reduce(const tile_of_lanes<SIZE, false>& tile, T value, F f, EMULATOR_PLACE)
{
    for (unsigned by = SIZE / 2; by; by /= 2) value = f(value, tile.shfl_xor(value, by, file, line));
    return value;
}
template <unsigned SIZE, typename Parent, typename T, typename F>
inline T reduce(const thread_block_tile<SIZE, Parent>& tile, T value, F f, EMULATOR_PLACE)
{
    if constexpr (SIZE > 32) {
        constexpr unsigned warps = SIZE / 32;
        const auto all = [&](const T* of_warps) {
            T values[warps], others[warps];
            for (unsigned warp = 0; warp < warps; ++warp) values[warp] = of_warps[warp];
            for (unsigned by = warps / 2; by; by /= 2) {  // as lanes would, so that sums of floats are NVIDIA's
                for (unsigned warp = 0; warp < warps; ++warp) others[warp] = values[warp ^ by];
                for (unsigned warp = 0; warp < warps; ++warp) values[warp] = f(values[warp], others[warp]);
            }
            return values[tile.thread_rank() / 32];
        };
        value = reduce(tile_of_lanes<32>(), value, f, file, line);
        return tile.collective(emulator::Collective::reduce, 0, value, all, file, line);
    } else {
        return reduce(static_cast<const tile_of_lanes<SIZE>&>(tile), value, f, file, line);
    }
}

}  // namespace cooperative_groups
