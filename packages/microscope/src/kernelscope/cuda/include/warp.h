// What the threads of a block, and the lanes of a warp, do together: barriers, votes, shuffles. The lanes of a mask run
// in step there: none goes on before all have come (runtime/scheduler.cpp: together).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#define EMULATOR_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()
// With the column, for a line may hold two barriers. g++ knows it by this struct of the standard library alone.
namespace std {
struct source_location {
    struct __impl {
        const char *_M_file_name, *_M_function_name;
        unsigned _M_line, _M_column;
    };
};
}  // namespace std
namespace emulator {
using Point = std::source_location::__impl;
}
#define EMULATOR_POINT \
    EMULATOR_PLACE, unsigned column = static_cast<const emulator::Point*>(__builtin_source_location())->_M_column

namespace emulator {

unsigned synchronise(bool predicate, const char* file, int line, unsigned column);
/// The next barrier of the calling thread is in this round of the loops around it.
void rounds(unsigned number);
void synchronise_warp(unsigned mask, const char* file, int line);
unsigned active_mask(const char* file, int line);
/// 0: of the block, 1: of the device, 2: of the system. It shows what the thread did, and lets it know what it has
/// taken.
void fence(int scope, bool shows = true, bool learns = true);

enum class Vote { ballot, any, all, uniform };
unsigned vote(Vote, unsigned mask, bool predicate, const char* file, int line);

enum class Shuffle { index, up, down, exclusive_or };
std::uint64_t shuffle(Shuffle, unsigned mask, std::uint64_t value, int operand, int width, const char* file, int line);

/// The lanes whose value is the caller's; or, if `all`, the mask if all have the same, otherwise 0.
unsigned match(bool all, unsigned mask, std::uint64_t value, const char* file, int line);

enum class Reduction { add, minimum, maximum, conjunction, disjunction, exclusive_or };
std::uint32_t reduce(Reduction, bool is_signed, unsigned mask, std::uint32_t value, const char* file, int line);

/// One lane of those in the mask: the lowest.
bool elect(unsigned mask, unsigned* lane, const char* file, int line);

/// What the warps of a tile of 64 to 512 threads meet for.
enum class Collective { sync, any, all, shfl, reduce, scan };
/// The calling thread waits for the others of its tile, which come with the same `kind` and `detail`; to `of_warps` go
/// the values of the lanes 0.
void meet_in_tile(unsigned size, Collective kind, unsigned detail, std::uint64_t value, std::uint64_t* of_warps,
                  const char* file, int line);

template <typename T>
inline std::uint64_t word_of(T value)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "a lane passes on at most 8 bytes");
    std::uint64_t word = 0;
    __builtin_memcpy(&word, &value, sizeof value);
    return word;
}
template <typename T>
inline T from_word(std::uint64_t word)
{
    T value;
    __builtin_memcpy(&value, &word, sizeof value);
    return value;
}

}  // namespace emulator

// ---- The blocks of a cluster ----------------------------------------------------------------------------------------

namespace emulator {
void arrive_in_block(const char* file, int line);
void wait_in_block(const char* file, int line);
void arrive_in_cluster(bool relaxed, const char* file, int line);
void wait_in_cluster(const char* file, int line);
void arrive_in_grid(const char* file, int line);
void wait_in_grid(const char* file, int line);
bool is_cooperative();
void* map_shared(const void* address, unsigned rank, const char* file, int line);
unsigned rank_of_address(const void* address);
unsigned rank_in_cluster();
dim3 cluster_dimensions();
}  // namespace emulator

inline void __cluster_barrier_arrive(EMULATOR_PLACE) { emulator::arrive_in_cluster(false, file, line); }
inline void __cluster_barrier_arrive_relaxed(EMULATOR_PLACE) { emulator::arrive_in_cluster(true, file, line); }
inline void __cluster_barrier_wait(EMULATOR_PLACE) { emulator::wait_in_cluster(file, line); }
inline void* __cluster_map_shared_rank(const void* address, unsigned rank, EMULATOR_PLACE)
{
    return emulator::map_shared(address, rank, file, line);
}
inline unsigned __cluster_query_shared_rank(const void* address) { return emulator::rank_of_address(address); }
inline unsigned __clusterRelativeBlockRank() { return emulator::rank_in_cluster(); }
inline dim3 __clusterDim() { return emulator::cluster_dimensions(); }
inline unsigned __clusterSizeInBlocks() { return __clusterDim().x * __clusterDim().y * __clusterDim().z; }
inline bool __clusterDimIsSpecified() { return __clusterSizeInBlocks() > 1; }
inline dim3 __clusterRelativeBlockIdx()
{
    const dim3 d = __clusterDim();
    return {blockIdx.x % d.x, blockIdx.y % d.y, blockIdx.z % d.z};
}
inline dim3 __clusterIdx()
{
    const dim3 d = __clusterDim();
    return {blockIdx.x / d.x, blockIdx.y / d.y, blockIdx.z / d.z};
}
inline dim3 __clusterGridDimInClusters()
{
    const dim3 d = __clusterDim();
    return {gridDim.x / d.x, gridDim.y / d.y, gridDim.z / d.z};
}

inline void __syncthreads(EMULATOR_POINT) { emulator::synchronise(false, file, line, column); }
inline int __syncthreads_count(int predicate, EMULATOR_POINT)
{
    return emulator::synchronise(predicate != 0, file, line, column);
}
inline int __syncthreads_or(int predicate, EMULATOR_POINT)
{
    return emulator::synchronise(predicate != 0, file, line, column) != 0;
}
inline int __syncthreads_and(int predicate, EMULATOR_POINT)
{
    return emulator::synchronise(predicate == 0, file, line, column) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffff, EMULATOR_PLACE) { emulator::synchronise_warp(mask, file, line); }
inline unsigned __activemask(EMULATOR_PLACE) { return emulator::active_mask(file, line); }
inline void __threadfence_block() { emulator::fence(0); }
inline void __threadfence() { emulator::fence(1); }
inline void __threadfence_system() { emulator::fence(2); }

inline int __any_sync(unsigned mask, int predicate, EMULATOR_PLACE)
{
    return emulator::vote(emulator::Vote::any, mask, predicate != 0, file, line);
}
inline int __all_sync(unsigned mask, int predicate, EMULATOR_PLACE)
{
    return emulator::vote(emulator::Vote::all, mask, predicate != 0, file, line);
}
inline int __uni_sync(unsigned mask, int predicate, EMULATOR_PLACE)
{
    return emulator::vote(emulator::Vote::uniform, mask, predicate != 0, file, line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATOR_PLACE)
{
    return emulator::vote(emulator::Vote::ballot, mask, predicate != 0, file, line);
}

#define EMULATOR_SHUFFLE(name, kind, Operand)                                                                        \
    template <typename T>                                                                                            \
    inline T name(unsigned mask, T value, Operand operand, int width = 32, EMULATOR_PLACE)                           \
    {                                                                                                                \
        return emulator::from_word<T>(                                                                               \
            emulator::shuffle(emulator::Shuffle::kind, mask, emulator::word_of(value), operand, width, file, line)); \
    }
EMULATOR_SHUFFLE(__shfl_sync, index, int)
EMULATOR_SHUFFLE(__shfl_up_sync, up, unsigned)
EMULATOR_SHUFFLE(__shfl_down_sync, down, unsigned)
EMULATOR_SHUFFLE(__shfl_xor_sync, exclusive_or, int)
#undef EMULATOR_SHUFFLE

template <typename T>
inline unsigned __match_any_sync(unsigned mask, T value, EMULATOR_PLACE)
{
    return emulator::match(false, mask, emulator::word_of(value), file, line);
}
template <typename T>
inline unsigned __match_all_sync(unsigned mask, T value, int* all, EMULATOR_PLACE)
{
    const unsigned found = emulator::match(true, mask, emulator::word_of(value), file, line);
    *all = found != 0;
    return found;
}

#define EMULATOR_REDUCE(name, kind)                                                         \
    inline unsigned name(unsigned mask, unsigned value, EMULATOR_PLACE)                     \
    {                                                                                       \
        return emulator::reduce(emulator::Reduction::kind, false, mask, value, file, line); \
    }                                                                                       \
    inline int name(unsigned mask, int value, EMULATOR_PLACE)                               \
    {                                                                                       \
        return emulator::reduce(emulator::Reduction::kind, true, mask, value, file, line);  \
    }
EMULATOR_REDUCE(__reduce_add_sync, add)
EMULATOR_REDUCE(__reduce_min_sync, minimum)
EMULATOR_REDUCE(__reduce_max_sync, maximum)
EMULATOR_REDUCE(__reduce_and_sync, conjunction)
EMULATOR_REDUCE(__reduce_or_sync, disjunction)
EMULATOR_REDUCE(__reduce_xor_sync, exclusive_or)
#undef EMULATOR_REDUCE
