// A group's copies into shared memory, as groups of cp.async.
#pragma once

#include "../cooperative_groups.h"
#include "../cuda_pipeline.h"

namespace cooperative_groups {

template <typename Group>
__forceinline__ void memcpy_async(const Group& group, void* to, const void* from, size_t bytes)
{
    cuda::copy_async(to, from, bytes, group.thread_rank(), group.size());
    __pipeline_commit();
}
template <unsigned STAGES, typename Group>
__forceinline__ void wait_prior(const Group& group, EMULATOR_PLACE)
{
    __pipeline_wait_prior(STAGES);
    group.sync(file, line);
}
template <typename Group>
__forceinline__ void wait(const Group& group, EMULATOR_PLACE)
{
    __pipeline_wait_prior(0);
    group.sync(file, line);
}

}  // namespace cooperative_groups
