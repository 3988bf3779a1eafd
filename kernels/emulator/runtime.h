// What the parts of the emulator's runtime share: the scheduler (cuda_emulator.cpp), the warp's own functions (warp.cpp),
// the interpreter of PTX (ptx/), and whoever watches (tracer.cpp).
#pragma once

#include "cuda_emulator.h"
#undef __CUDACC__
#undef __noinline__  // the standard library's own word

#include <string>
#include <vector>

// A list that Python reads too is written once, as a macro LIST(item): LIST(EMULATOR_LISTED) are the names of an enum, and
// LIST(EMULATOR_NAMED) is a text with the same names, separated by blanks.
#define EMULATOR_LISTED(name) name,
#define EMULATOR_NAMED(name) #name " "

namespace emulator {

// ---- What the scheduler offers ---------------------------------------------------------------------------------------

// The blocks of a cluster run together; if the blocks of the grid wait for each other, all of them do. Threads are numbered
// through those that run together: those of the next block begin at the next multiple of 32.
unsigned thread_number();    // of the running thread among them, counted along x, y, then z
unsigned thread_in_block();  // the same in its block
unsigned thread_count();     // of a block
unsigned block_threads();    // the same, rounded up to whole warps
unsigned block_rank();       // of the running thread's block among those that run together
unsigned first_rank();       // of the first block of its cluster
extern unsigned cluster_blocks;  // that run together
extern unsigned cluster_size;    // blocks of a cluster
extern dim3 clusterDim;
bool is_random();          // whether threads run in a random order: then units that work by themselves may, too
std::uint64_t random_number();

/// Why a thread sleeps, in words, asked only if it sleeps for ever: "barrier at 0x400: 3 of 4 threads have arrived".
using Why = std::string (*)(const void* object, std::uint64_t detail);

/// Suspends the running thread until wake(object) is called.
/// With `now` it wakes all that sleep for the object, itself too: then they go on together.
void sleep_for(const void* object, Why why, std::uint64_t detail, const char* file, int line, const void* pc,
               bool now = false);
void wake(const void* object);

/// Lets the other threads run first; for a thread that asks again and again whether something has happened.
void let_others_run(const char* file, int line, const void* pc);

/// The running thread looks at a place that others may change. Who finds the same there many times waits for it, and lets
/// the other threads run; if none of them changes it, the launch is given up. Asked before the look itself.
void asks(const void* address, unsigned size, const void* pc);

/// Does what the running thread's lane does together with the other lanes of its warp: when all lanes of `mask` that have
/// not ended are here with a call of the same `kind`, `act` is called once with each lane's `record` (null for the
/// others), and all go on. Mask 0 stands for all lanes that come here.
void together(unsigned mask, const void* kind, void* record, void (*act)(void* const* records, unsigned lanes),
              const char* file, int line);

/// __syncthreads() that also adds up the threads whose `predicate` holds; returns how many there are.
unsigned synchronise(bool predicate, const char* file, int line, unsigned column);

/// The barrier of a cluster: threads arrive, and wait until all that have not ended have arrived. Who arrives `relaxed`
/// shows nothing of what it did before.
void cluster_arrive(bool relaxed, const char* file, int line);
void cluster_wait(const char* file, int line, const void* pc);

/// The barrier of the whole grid. Gives the run up if the blocks do not run together.
void grid_synchronise(const char* file, int line);

/// What units that work beside the threads (ptx/copies.cpp) are asked by the scheduler.
struct Units {
    void (*block_starts)();
    bool (*deliver)();  // finishes the next piece of work that is under way; false if there is none
    void (*block_ends)();
};
extern Units beside;

// ---- What is told to the tracer, if there is one ---------------------------------------------------------------------

/// Up to which time a thread knows what each other thread, and each unit that works beside them, has done.
using Known = std::vector<std::uint32_t>;

/// Workers that are no threads are numbered after those of the cluster: the products of each warp, the copies that each
/// barrier counts, stores of boxes.
extern unsigned wgmma_of_warp, copies_of_barrier, stores, workers;

/// The way of an access: cp.async, ldmatrix, TMA, to the shared memory of another block of the cluster, what TMA brings to
/// further blocks; or that of plain loads and stores. By the first three it is counted in its space, too.
#define EMULATOR_WAYS(way) way(by_copy) way(by_matrix) way(by_tma) way(to_block) way(multicast)
enum Way { EMULATOR_WAYS(EMULATOR_LISTED) plain };

int lanes_turned();  // as mma.h has it

namespace watch {
bool accesses(const void* address, unsigned size, bool write, const void* pc);  // false: it is no place to touch
bool uses(const void* address, unsigned bytes, bool write, const void* pc);  // accesses that are not counted, of units
void atomic(const void* address, unsigned size, bool write, const void* pc);  // a strong access: no race with others
/// A load by the path of what nobody writes while the kernel runs.
void reads_only(const void* address, unsigned bytes, const void* pc);
/// From now on these bytes of shared memory are an mbarrier, which threads do not write; with a pc of null they are none.
void guard(const void* address, unsigned bytes, const void* pc);
/// A product (wgmma) of the running thread's group number `group` is going to write a register; those of groups before
/// `end` are written.
void sum_begins(const void* address, unsigned bytes, unsigned group, const void* pc);
void sums_end(unsigned end);
void remark(const std::string& text, const char* file, int line);
void release(Known& to);           // what the running thread has done and knows is now known to `to`
void acquire(const Known& from);
void join(const unsigned* threads, unsigned count);  // they all know now what any of them knows
void finished(Known& to, unsigned worker);           // `worker` has done what was asked of it; `to` knows it
std::uint32_t now();
void meet(const Known& arrived);                     // the running thread's block is there with all that arrived
void learn(unsigned worker, std::uint32_t until);    // the running thread knows what `worker` has done up to that time
/// A copy to shared memory begins: until it ends nobody may touch what it writes. It ends on behalf of `worker`, or of
/// the thread that waits for it. `by_unit`: it goes through the proxy of TMA, not through that of the threads' accesses,
/// and what is counted of it is counted elsewhere.
void copy_begins(const void* to, unsigned bytes, const void* pc, bool by_unit);
void copy_ends(const void* to, unsigned bytes, unsigned worker);
/// A unit reads shared memory that threads may have written. It has read it when learn(worker) says so.
void unit_reads(const void* from, unsigned bytes, const void* pc, unsigned worker);
void proxy_fence();
/// A request of a unit to global memory, counted by itself; what it loads goes into the memory of so many blocks.
void global_request(const void* address, unsigned bytes, bool write, unsigned blocks = 1);
/// The same to shared memory, counted if it is another block's.
void block_request(const void* address, unsigned bytes);
void goes_by(Way way);                               // the accesses that are told from now on
void asynchrony(const std::string& text, const char* file, int line, const void* pc,
                bool last = false);  // last: gives up
std::string place(const void* pc, const char* file, int line);  // in words
void deadlock(const std::string& text, const char* file, int line, const void* pc);
void divergence(const std::string& text, const char* file, int line);
void misaligned(const std::string& text, const char* file, int line);
void trap(const std::string& text, const char* file, int line);  // does not return if the run is given up
}  // namespace watch

// ---- Shared memory as 32-bit numbers -----------------------------------------------------------------------------------

/// Numbers of addresses of shared memory, as PTX takes them, count from the begin of the cluster's window, in which each
/// block has 2^24 bytes.
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
