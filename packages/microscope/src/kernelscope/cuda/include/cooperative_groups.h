// The groups of CUDA's header of this name that kernels of one launch use: cluster, block, tile, coalesced threads.
#pragma once

#include "cuda_emulator.h"

namespace cooperative_groups {

class thread_block {
public:
    struct arrival_token {};
    static void sync(EMULATOR_POINT) { __syncthreads(file, line, column); }
    static arrival_token barrier_arrive(EMULATOR_PLACE)
    {
        emulator::arrive_in_block(file, line);
        return {};
    }
    static void barrier_wait(arrival_token&&, EMULATOR_PLACE) { emulator::wait_in_block(file, line); }
    static unsigned thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
    static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned size() { return num_threads(); }
    static dim3 thread_index() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
    static dim3 group_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

class cluster_group {
public:
    struct arrival_token {};
    static void sync(EMULATOR_PLACE)
    {
        __cluster_barrier_arrive(file, line);
        __cluster_barrier_wait(file, line);
    }
    static arrival_token barrier_arrive(EMULATOR_PLACE)
    {
        __cluster_barrier_arrive(file, line);
        return {};
    }
    static void barrier_wait(EMULATOR_PLACE) { __cluster_barrier_wait(file, line); }
    static void barrier_wait(arrival_token&&, EMULATOR_PLACE) { __cluster_barrier_wait(file, line); }
    template <typename T>
    static T* map_shared_rank(T* address, int rank, EMULATOR_PLACE)
    {
        return static_cast<T*>(__cluster_map_shared_rank(address, rank, file, line));
    }
    static unsigned query_shared_rank(const void* address) { return __cluster_query_shared_rank(address); }
    static dim3 block_index() { return __clusterRelativeBlockIdx(); }
    static unsigned block_rank() { return __clusterRelativeBlockRank(); }
    static dim3 dim_blocks() { return __clusterDim(); }
    static unsigned num_blocks() { return __clusterSizeInBlocks(); }
    static unsigned thread_rank() { return block_rank() * thread_block::num_threads() + thread_block::thread_rank(); }
    static unsigned num_threads() { return num_blocks() * thread_block::num_threads(); }
    static unsigned size() { return num_threads(); }
};
inline cluster_group this_cluster() { return {}; }

class grid_group {
public:
    using arrival_token = unsigned;
    static bool is_valid() { return emulator::is_cooperative(); }
    static void sync(EMULATOR_PLACE) { barrier_wait(barrier_arrive(file, line), file, line); }
    static arrival_token barrier_arrive(EMULATOR_PLACE)
    {
        emulator::arrive_in_grid(file, line);
        return 0;
    }
    static void barrier_wait(arrival_token&&, EMULATOR_PLACE) { emulator::wait_in_grid(file, line); }
    static unsigned long long num_blocks() { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
    static unsigned long long block_rank()
    {
        return blockIdx.x + 1ull * gridDim.x * (blockIdx.y + 1ull * gridDim.y * blockIdx.z);
    }
    static unsigned long long thread_rank()
    {
        return block_rank() * thread_block::num_threads() + thread_block::thread_rank();
    }
    static unsigned long long num_threads() { return num_blocks() * thread_block::num_threads(); }
    static unsigned long long size() { return num_threads(); }
    static dim3 group_dim() { return gridDim; }
    static dim3 dim_blocks() { return gridDim; }
    static dim3 block_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
};
inline grid_group this_grid() { return {}; }

/// Lanes of a warp; `mask` names them.
class coalesced_group {
public:
    explicit coalesced_group(unsigned mask) : mask(mask) {}
    void sync(EMULATOR_PLACE) const { __syncwarp(mask, file, line); }
    unsigned num_threads() const { return __popc(mask); }
    unsigned size() const { return num_threads(); }
    unsigned thread_rank() const { return __popc(mask & ((1u << lane()) - 1)); }
    unsigned meta_group_size() const { return 1; }
    unsigned meta_group_rank() const { return 0; }
    int any(int predicate, EMULATOR_PLACE) const { return __any_sync(mask, predicate, file, line); }
    int all(int predicate, EMULATOR_PLACE) const { return __all_sync(mask, predicate, file, line); }
    template <typename T>
    T shfl(T value, unsigned rank, EMULATOR_PLACE) const
    {
        return __shfl_sync(mask, value, lane_of(rank), 32, file, line);
    }
    template <typename T>
    T shfl_up(T value, unsigned by, EMULATOR_PLACE) const
    {
        const unsigned rank = thread_rank();
        return __shfl_sync(mask, value, lane_of(rank < by ? rank : rank - by), 32, file, line);
    }
    template <typename T>
    T shfl_down(T value, unsigned by, EMULATOR_PLACE) const
    {
        const unsigned rank = thread_rank();
        return __shfl_sync(mask, value, lane_of(rank + by < size() ? rank + by : rank), 32, file, line);
    }
    unsigned ballot(int predicate, EMULATOR_PLACE) const { return packed(__ballot_sync(mask, predicate, file, line)); }
    template <typename T>
    unsigned match_any(T value, EMULATOR_PLACE) const
    {
        return packed(__match_any_sync(mask, value, file, line));
    }
    template <typename T>
    unsigned match_all(T value, int& all, EMULATOR_PLACE) const
    {
        return packed(__match_all_sync(mask, value, &all, file, line));
    }
    unsigned lanes() const { return mask; }

protected:
    static unsigned lane() { return thread_block::thread_rank() % 32; }
    unsigned lane_of(unsigned rank) const
    {
        unsigned rest = mask;
        while (rank--) rest &= rest - 1;
        return __ffs(rest) - 1;
    }
    /// Of the lanes of the warp, those of the group, by their ranks.
    unsigned packed(unsigned lanes) const
    {
        unsigned result = 0;
        for (unsigned rank = 0, rest = mask; rest; rest &= rest - 1, ++rank)
            result |= (lanes >> (__ffs(rest) - 1) & 1) << rank;
        return result;
    }
    unsigned mask;
};
inline coalesced_group coalesced_threads(EMULATOR_PLACE) { return coalesced_group(__activemask(file, line)); }

template <unsigned SIZE, bool HAS_WARPS = (SIZE > 32)>
class tile_of_lanes {
    static_assert(SIZE && (SIZE & (SIZE - 1)) == 0, "the size of a tile must be a power of 2");

public:
    static void sync(EMULATOR_PLACE) { __syncwarp(mask(), file, line); }
    static unsigned thread_rank() { return thread_block::thread_rank() % SIZE; }
    static constexpr unsigned num_threads() { return SIZE; }
    static constexpr unsigned size() { return SIZE; }
    template <typename T>
    static T shfl(T value, int rank, EMULATOR_PLACE)
    {
        return __shfl_sync(mask(), value, rank, SIZE, file, line);
    }
    template <typename T>
    static T shfl_down(T value, unsigned by, EMULATOR_PLACE)
    {
        return __shfl_down_sync(mask(), value, by, SIZE, file, line);
    }
    template <typename T>
    static T shfl_up(T value, unsigned by, EMULATOR_PLACE)
    {
        return __shfl_up_sync(mask(), value, by, SIZE, file, line);
    }
    template <typename T>
    static T shfl_xor(T value, unsigned by, EMULATOR_PLACE)
    {
        return __shfl_xor_sync(mask(), value, by, SIZE, file, line);
    }
    static int any(int predicate, EMULATOR_PLACE) { return __any_sync(mask(), predicate, file, line); }
    static int all(int predicate, EMULATOR_PLACE) { return __all_sync(mask(), predicate, file, line); }
    static unsigned ballot(int predicate, EMULATOR_PLACE)
    {
        return __ballot_sync(mask(), predicate, file, line) >> first();
    }
    template <typename T>
    static unsigned match_any(T value, EMULATOR_PLACE)
    {
        return __match_any_sync(mask(), value, file, line) >> first();
    }
    template <typename T>
    static unsigned match_all(T value, int& all, EMULATOR_PLACE)
    {
        return __match_all_sync(mask(), value, &all, file, line) >> first();
    }
    static unsigned lanes() { return mask(); }

private:
    static unsigned first() { return thread_block::thread_rank() % 32 / SIZE * SIZE; }
    static unsigned mask() { return (SIZE == 32 ? ~0u : (1u << SIZE % 32) - 1) << first(); }
};

/// Some warps of a block. They meet as NVIDIA's do: the lanes of each warp, then the warps.
template <unsigned SIZE>
class tile_of_lanes<SIZE, true> {
    static_assert(SIZE <= 512 && (SIZE & (SIZE - 1)) == 0, "the size of a tile must be a power of 2, at most 512");

public:
    static void sync(EMULATOR_PLACE)
    {
        __syncwarp(~0u, file, line);
        collective(emulator::Collective::sync, 0, 0, [](const int*) { return 0; }, file, line);
    }
    static unsigned thread_rank() { return thread_block::thread_rank() % SIZE; }
    static constexpr unsigned num_threads() { return SIZE; }
    static constexpr unsigned size() { return SIZE; }
    template <typename T>
    static T shfl(T value, unsigned rank, EMULATOR_PLACE)
    {
        if (rank >= SIZE)
            emulator::trap(" asks its tile for the value of a thread that the tile does not have", file, line);
        value = __shfl_sync(~0u, value, rank % 32, 32, file, line);
        return collective(
            emulator::Collective::shfl, rank, value, [&](const T* of) { return of[rank / 32]; }, file, line);
    }
    static int any(int predicate, EMULATOR_PLACE)
    {
        const auto some = [](const int* of) {
            int found = 0;
            for (unsigned warp = 0; warp < SIZE / 32; ++warp) found |= of[warp];
            return found;
        };
        return collective(emulator::Collective::any, 0, __any_sync(~0u, predicate, file, line), some, file, line);
    }
    static int all(int predicate, EMULATOR_PLACE)
    {
        const auto each = [](const int* of) {
            int found = 1;
            for (unsigned warp = 0; warp < SIZE / 32; ++warp) found &= of[warp];
            return found;
        };
        return collective(emulator::Collective::all, 0, __all_sync(~0u, predicate, file, line), each, file, line);
    }
    /// What `combined` makes of the values of the lanes 0 of all warps, after the lanes of each warp have met.
    template <typename T, typename F>
    static T collective(emulator::Collective kind, unsigned detail, T value, F combined, const char* file, int line)
    {
        decltype(emulator::word_of(value)) words[SIZE / 32];
        emulator::meet_in_tile(SIZE, kind, detail, emulator::word_of(value), words, file, line);
        T values[SIZE / 32];
        for (unsigned warp = 0; warp < SIZE / 32; ++warp) values[warp] = emulator::from_word<T>(words[warp]);
        return combined(values);
    }
};

template <unsigned SIZE, typename Parent = void>
class thread_block_tile : public tile_of_lanes<SIZE> {
public:
    static unsigned meta_group_rank() { return Parent::thread_rank() / SIZE; }
    static unsigned meta_group_size() { return (Parent::size() + SIZE - 1) / SIZE; }
};
/// A tile whose type does not say of which group it is a part.
template <unsigned SIZE>
class thread_block_tile<SIZE, void> : public tile_of_lanes<SIZE> {
public:
    template <typename Parent>
    thread_block_tile(const thread_block_tile<SIZE, Parent>& tile)
        : rank(tile.meta_group_rank()), tiles(tile.meta_group_size())
    {}
    unsigned meta_group_rank() const { return rank; }
    unsigned meta_group_size() const { return tiles; }

private:
    unsigned rank, tiles;
};

template <typename Group>
constexpr unsigned most_threads = 1024;
template <unsigned SIZE, typename Parent>
constexpr unsigned most_threads<thread_block_tile<SIZE, Parent>> = SIZE;
/// If the tiles are of several warps, all threads of the parent wait for each other, as with NVIDIA's header.
template <unsigned SIZE, typename Parent>
thread_block_tile<SIZE, Parent> tiled_partition(const Parent& parent, EMULATOR_POINT)
{
    static_assert(SIZE <= most_threads<Parent>, "a tile must not be larger than the group that it is a part of");
    if constexpr (SIZE > 32 && emulator::is_same<Parent, thread_block>) parent.sync(file, line, column);
    if constexpr (SIZE > 32 && !emulator::is_same<Parent, thread_block>) parent.sync(file, line);
    return {};
}

/// Of GPUs before sm_80 the memory in which the warps of a tile meet.
template <unsigned MOST_THREADS = 1024>
struct alignas(8) block_tile_memory {};
template <unsigned MOST_THREADS>
inline thread_block this_thread_block(block_tile_memory<MOST_THREADS>&)
{
    return {};
}

/// Any of the groups of a block, such as a function takes that is for all of them: lanes of a warp, or the whole block.
class thread_group {
public:
    thread_group(thread_block) : block(true), lanes(0) {}
    thread_group(const coalesced_group& group) : block(false), lanes(group) {}
    template <unsigned SIZE, typename Parent>
    thread_group(const thread_block_tile<SIZE, Parent>& tile) : block(false), lanes(tile.lanes())
    {}
    void sync(EMULATOR_PLACE) const { block ? thread_block::sync(file, line) : lanes.sync(file, line); }
    unsigned num_threads() const { return block ? thread_block::num_threads() : lanes.num_threads(); }
    unsigned size() const { return num_threads(); }
    unsigned thread_rank() const { return block ? thread_block::thread_rank() : lanes.thread_rank(); }

private:
    bool block;
    coalesced_group lanes;
};
inline coalesced_group tiled_partition(const thread_group&, unsigned size, EMULATOR_PLACE)
{
    if (size == 0 || size > 32 || (size & (size - 1)))
        emulator::trap(
            " asks for tiles of another size than 1, 2, 4, 8, 16 or 32, where a GPU traps; take one of these", file,
            line);
    const unsigned first = thread_block::thread_rank() % 32 / size * size;
    return coalesced_group((size == 32 ? ~0u : (1u << size) - 1) << first);
}

/// The lanes of a group that bring the same label.
template <typename Group, typename T>
inline coalesced_group labeled_partition(const Group& group, T label, EMULATOR_PLACE)
{
    return coalesced_group(__match_any_sync(group.lanes(), label, file, line));
}
template <typename Group>
inline coalesced_group binary_partition(const Group& group, bool predicate, EMULATOR_PLACE)
{
    return labeled_partition(group, int(predicate), file, line);
}

/// One lane of the group calls `f`.
template <typename Group, typename F>
inline void invoke_one(const Group& group, F f)
{
    if (group.thread_rank() == 0) f();
}
template <typename Group, typename F>
inline auto invoke_one_broadcast(const Group& group, F f, EMULATOR_PLACE)
{
    decltype(f()) result{};
    if (group.thread_rank() == 0) result = f();
    return group.shfl(result, 0, file, line);
}

template <typename Group>
inline void sync(const Group& group, EMULATOR_PLACE)
{
    group.sync(file, line);
}

}  // namespace cooperative_groups
