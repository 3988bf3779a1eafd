// What the parts of the emulator share: the scheduler with the functions of warps and threads (runtime/), the
// interpreter of PTX (ptx/), and whoever watches (tracer/).
#pragma once

#include "../include/cuda_emulator.h"
#undef __CUDACC__
#undef __noinline__  // the standard library's own word

#include <string>
#include <vector>

// A list that Python reads too is written once, as a macro LIST(item): LIST(EMULATOR_LISTED) are the names of an enum,
// and LIST(EMULATOR_NAMED) is a text with the same names, separated by blanks.
#define EMULATOR_LISTED(name) name,
#define EMULATOR_NAMED(name) #name " "

#define EMULATOR_EXPORT extern "C" __attribute__((visibility("default")))  // what Python reads and calls

#pragma GCC visibility push(hidden)
namespace emulator {

// ---- What the scheduler offers --------------------------------------------------------------------------------------

// The blocks of a cluster run together; if the blocks of the grid wait for each other, all of them do. Threads are
// numbered through those that run together: those of the next block begin at the next multiple of 32.
unsigned thread_number();        // of the running thread among them, counted along x, y, then z
unsigned thread_in_block();      // the same in its block
unsigned thread_count();         // of a block
unsigned block_threads();        // the same, rounded up to whole warps
unsigned block_rank();           // of the running thread's block among those that run together
unsigned first_rank();           // of the first block of its cluster
extern unsigned cluster_blocks;  // that run together
extern unsigned cluster_size;    // blocks of a cluster
extern dim3 clusterDim;
bool is_random();  // whether threads run in a random order: then units that work by themselves may, too
std::uint64_t random_number();
bool& carry();  // the running thread's, which instructions of PTX with .cc leave for those that add it

/// Why a thread sleeps, in words, called only if it sleeps for ever: "barrier at 0x400: 3 of 4 threads have arrived".
using Why = std::string (*)(const void* object, std::uint64_t detail);

/// Suspends the running thread until wake(object) is called.
/// With `now` it wakes all that sleep for the object, itself too: then they go on together.
void sleep_for(const void* object, Why why, std::uint64_t detail, const char* file, int line, const void* pc,
               bool now = false);
void wake(const void* object);

/// Lets the other threads run first; for a thread that asks again and again whether something has happened.
void let_others_run(const char* file, int line, const void* pc);

/// The running thread looks at a place that others may change. Who finds the same there many times waits for it, and
/// lets the other threads run; if none of them changes it, the launch is given up. Asked before the look itself.
void asks(const void* address, unsigned size, const void* pc);

/// Does what the running thread's lane does together with the other lanes of its warp: when all lanes of `mask` that
/// have not ended are here with a call of the same `kind`, `act` is called once with each lane's `record` (null for the
/// others), and all go on. Mask 0 stands for all lanes that come here.
void together(unsigned mask, const void* kind, void* record, void (*act)(void* const* records, unsigned lanes),
              const char* file, int line);

/// __syncthreads() that also adds up the threads whose `predicate` holds; returns how many there are.
unsigned synchronise(bool predicate, const char* file, int line, unsigned column);
bool waits_at_block_barrier(unsigned rank);  // whether a thread of this block is at __syncthreads()
void rounds(unsigned number);  // the next barrier of the running thread is in this round of the loops around it

/// The barriers of a block (besides __syncthreads()), a cluster and the grid: threads arrive, and wait until all that
/// have not ended have arrived; at the grid's, all. Who arrives `relaxed` shows nothing of what it did before. At the
/// grid's, the run is given up if the blocks do not run together.
void block_arrive(const char* file, int line);
void block_wait(const char* file, int line);
void cluster_arrive(bool relaxed, const char* file, int line);
void cluster_wait(const char* file, int line, const void* pc);
void grid_arrive(const char* file, int line);
void grid_wait(const char* file, int line);

/// What the scheduler asks of the asynchronous units (ptx/).
struct Units {
    void (*block_starts)();
    bool (*deliver)();  // finishes the next piece of work that is under way; false if there is none
    void (*block_ends)();
};
extern Units beside;

// ---- Shared memory as 32-bit numbers --------------------------------------------------------------------------------

/// Numbers of addresses of shared memory, as PTX takes them, count from the begin of the cluster's window, in which
/// each block has 2^24 bytes.
extern char* shared_window;
constexpr unsigned block_window_bits = 24;

inline unsigned rank_of_shared(std::uint32_t number) { return number >> block_window_bits; }
inline std::uint32_t in_block_of(std::uint32_t number, unsigned rank)
{
    return (number & ((1u << block_window_bits) - 1)) | rank << block_window_bits;
}

inline std::uint32_t shared_number(const void* address)
{
    return static_cast<std::uint32_t>(static_cast<const char*>(address) - shared_window);
}
inline char* shared_pointer(std::uint64_t number) { return shared_window + static_cast<std::uint32_t>(number); }

}  // namespace emulator
#pragma GCC visibility pop
