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
template <unsigned SIZE, typename Parent, typename T, typename F>
inline T reduce(const thread_block_tile<SIZE, Parent>& tile, T value, F f, EMULATOR_PLACE)
{
    for (unsigned by = SIZE / 2; by; by /= 2) value = f(value, tile.shfl_xor(value, by, file, line));
    return value;
}

}  // namespace cooperative_groups
