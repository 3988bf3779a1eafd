// Sums of the lanes before each lane of a group.
#pragma once

#include "reduce.h"

namespace cooperative_groups {

template <typename Group, typename T, typename F>
inline T inclusive_scan(const Group& group, T value, F f, EMULATOR_PLACE)
{
    const unsigned rank = group.thread_rank();
    for (unsigned by = 1; by < group.size(); by *= 2) {
        const T before = group.shfl_up(value, by, file, line);
        if (rank >= by) value = f(before, value);
    }
    return value;
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
    const T before = group.shfl_up(inclusive_scan(group, value, f, file, line), 1, file, line);
    return group.thread_rank() ? before : T();
}
template <typename Group, typename T>
inline T exclusive_scan(const Group& group, T value, EMULATOR_PLACE)
{
    return exclusive_scan(group, value, plus<T>(), file, line);
}

}  // namespace cooperative_groups
