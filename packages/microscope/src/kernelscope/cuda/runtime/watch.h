// What the runtime and the interpreter of PTX report to whoever watches a run: the tracer (tracer/), or nobody
// (unwatched/). A library links the one or the other.
#pragma once

#include "runtime.h"

#pragma GCC visibility push(hidden)
namespace emulator {

struct Fiber;

/// Up to which time a thread knows what each other thread, and each asynchronous unit, has done.
using Known = std::vector<std::uint32_t>;

/// Workers that are no threads are numbered after those of the cluster: the products of each warp, the copies that each
/// barrier counts, stores of boxes.
extern unsigned wgmma_of_warp, copies_of_barrier, stores, workers;

/// The way of an access: cp.async, ldmatrix, TMA, to the shared memory of another block of the cluster, what TMA brings
/// to further blocks; or that of plain loads and stores. By the first three it is counted in its space, too.
#define EMULATOR_WAYS(way) way(by_copy) way(by_matrix) way(by_tma) way(to_block) way(multicast)
enum Way { EMULATOR_WAYS(EMULATOR_LISTED) plain };

namespace watch {
// ---- From the scheduler: who runs, and who has met ------------------------------------------------------------------

void block_starts();  // and the others of its cluster
void thread_runs(unsigned thread);
void thread_ends(unsigned thread);
/// All threads of a block that have not ended are at its barrier, and go on.
void barrier_releases(const std::vector<Fiber*>& fibers);
/// Lanes of a warp have met: what they do from here on are new requests.
void warp_goes_on();
void block_ends();

// ---- From the threads and from the units beside them ----------------------------------------------------------------

bool accesses(const void* address, unsigned size, bool write, const void* pc);  // false: it is no place to touch
/// How an access differs from a plain one. Strong accesses do not race with each other; those of a block's scope not
/// with those of the same block. An exchange also reads what it writes over. One that takes something (a
/// compare-and-swap) knows what others did before only after a fence.
struct Strength {
    bool strong = false, exchange = false, of_block = false, takes = false;
    bool stores = false;  // a thread's own store, which is done before anything else happens
    bool swaps = false;   // an exchange whose new value does not depend on the one before
};
constexpr Strength weak{}, strong{true}, exchange{true, true}, store{false, false, false, false, true};
/// Accesses that are not counted, of units.
bool uses(const void* address, unsigned bytes, bool write, const void* pc, Strength strength = weak);
void atomic(const void* address, unsigned size, bool write, const void* pc, Strength strength = exchange);
/// A load by the path of what nobody writes while the kernel runs.
void reads_only(const void* address, unsigned bytes, const void* pc);
/// From now on these bytes of shared memory are an mbarrier, which threads do not write; with a pc of null they are
/// none.
void guard(const void* address, unsigned bytes, const void* pc);
/// A product (wgmma) of the running thread's group number `group` is going to write a register, or to read it; those of
/// groups before `end` have done so. Between two products, a fence is to order what the thread does with it.
void product_begins(const void* address, unsigned bytes, unsigned group, const void* pc, bool is_read);
void products_end(unsigned end);
void registers_fenced();
void remark(const std::string& text, const char* file, int line);
void release(Known& to);  // what the running thread has done and knows is now known to `to`
void acquire(const Known& from);
void join(const unsigned* threads, unsigned count);  // they all know now what any of them knows
void finished(Known& to, unsigned worker);           // `worker` has done what was asked of it; `to` knows it
std::uint32_t now();
void meet(const Known& arrived);                   // the running thread's block is there with all that arrived
void learn(unsigned worker, std::uint32_t until);  // the running thread knows what `worker` has done up to that time
/// A copy to shared memory begins: until it ends nobody may touch what it writes. It ends on behalf of `worker`, or of
/// the thread that waits for it. `by_unit`: it goes through the proxy of TMA, not through that of the threads'
/// accesses, and what is counted of it is counted elsewhere.
void copy_begins(const void* to, unsigned bytes, const void* pc, bool by_unit);
void copy_ends(const void* to, unsigned bytes, unsigned worker);
/// A unit reads shared memory that threads may have written. It has read it when learn(worker) says so.
void unit_reads(const void* from, unsigned bytes, const void* pc, unsigned worker);
/// The same of global memory, where it must read at once; false if it is no place to read.
bool unit_loads(const void* from, unsigned bytes, const void* pc, unsigned worker);
/// A unit is going to write global memory, or to add to it: until the store ends nobody may touch that. It writes in
/// between; false if it is no place to write.
void store_begins(const void* to, unsigned bytes, const void* pc, bool adds);
bool unit_writes(const void* to, unsigned bytes, const void* pc, bool adds);
void store_ends(const void* to, unsigned bytes, const void* pc, unsigned thread);
/// __threadfence, 0: of the block, 1: of the device, 2: of the system. It shows what the thread did before, and lets it
/// know what it has taken.
void fence(int scope, bool shows = true, bool learns = true);
void proxy_fence(bool of_global, bool of_shared);
/// A request of a unit to global memory, counted alone; what it loads goes into the memory of so many blocks.
void global_request(const void* address, unsigned bytes, bool write, unsigned blocks = 1);
/// The same to shared memory, counted if it is another block's.
void block_request(const void* address, unsigned bytes);
void goes_by(Way way);  // the accesses that are reported from now on
void asynchrony(const std::string& text, const char* file, int line, const void* pc);
void invalid(const std::string& text, const char* file, int line, const void* pc, bool last);  // last: gives up
std::string place(const void* pc, const char* file, int line);                                 // in words
void deadlock(const std::string& text, const char* file, int line, const void* pc);
void divergence(const std::string& text, const char* file, int line);
void misaligned(const std::string& text, const char* file, int line);
void trap(const std::string& text, const char* file, int line);  // does not return if the run is given up
}  // namespace watch

}  // namespace emulator
#pragma GCC visibility pop
