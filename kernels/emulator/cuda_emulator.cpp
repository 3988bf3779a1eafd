// Runs a grid on one CPU core: block after block, each thread of a block a fiber.
//
// A fiber does not belong to one thread: it runs thread after thread of the block until one comes to a barrier, and only
// then is another fiber needed. So a kernel without barriers runs on a single fiber, with no switch at all.
#include "runtime.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <iterator>
#include <memory>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <utility>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
namespace emulator {
dim3 clusterDim;
}

namespace emulator {

char* shared_window;
unsigned cluster_blocks, cluster_size;
unsigned wgmma_of_warp, copies_of_barrier, stores, workers;

namespace {

#ifndef EMULATOR_OBSERVED
// What happens in a run, for tracer.cpp to watch. Here nobody does.
struct Observer {
    static void block_starts() {}
    static void thread_runs(unsigned) {}
    static void thread_ends(unsigned) {}
    template <typename Fibers>
    static void barrier_releases(const Fibers&) {}
    static void warp_goes_on() {}
    static void block_ends() {}
};
#endif

unsigned threads_of_block, slots_of_block;  // the second rounded up to whole warps
std::vector<uint3> cluster_index;           // blockIdx of each block of the cluster that runs

// ---- Fibers: a stack of their own each, and a switch from one to another -------------------------------------------

#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)
// By hand: ucontext asks the kernel to save the signal mask at every switch, which is most of its time.
asm(R"(
.text
.local emulator_switch
.type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulator_switch, . - emulator_switch
)");
extern "C" void emulator_switch(void** save, void* load);

struct Context {
    void* stack_pointer = nullptr;

    void prepare(char* top, void (*entry)())
    {
        void** stack = reinterpret_cast<void**>(top);
        *--stack = nullptr;                             // where a return address of `entry` would be
        *--stack = reinterpret_cast<void*>(entry);      // emulator_switch returns to it
        stack_pointer = stack - 6;                      // after popping six registers, whatever they hold
    }
    void switch_to(Context& other) { emulator_switch(&stack_pointer, other.stack_pointer); }
};
#else
struct Context {
    ucontext_t context;

    void prepare(char* top, void (*entry)())
    {
        getcontext(&context);
        context.uc_stack.ss_size = 512 << 10;
        context.uc_stack.ss_sp = top - context.uc_stack.ss_size;
        makecontext(&context, entry, 0);
    }
    void switch_to(Context& other) { swapcontext(&context, &other.context); }
};
#endif

// A GPU gives a thread up to 512 KiB of local memory. The compiler touches a large frame page by page, so whatever does
// not fit ends at the guard below a stack.
constexpr std::size_t stack_bytes = 640 << 10, page = 4096, guard_bytes = 16 * page;

struct Fiber {
    Context context;
    char* stack;
    unsigned thread = 0;              // the thread it runs now, counted along x, y, then z
    uint3 index{};                    // its threadIdx
    const char* file = "";            // where it waits
    int line = 0;
    unsigned column = 0;              // of a barrier of the block
    bool predicate = false;           // what it brings to a barrier that adds up
    const void* pc = nullptr;         // of an asm statement
    const void* object = nullptr;     // what it waits for, if that is no barrier of the block
    Why why = nullptr;
    std::uint64_t detail = 0;
    const void* asked = nullptr;      // where it looks again and again, what it finds there, and how often it has
    std::uint64_t found = 0;
    unsigned times = 0;

    Fiber(int number, void (*entry)())
    {
        void* memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) std::abort();
        mprotect(memory, guard_bytes, PROT_NONE);  // an overflow ends in a fault, not in a neighbour's stack
        stack = static_cast<char*>(memory);
        // Staggered: were all stacks at the same offset in a page, they would share a few sets of the cache.
        context.prepare(stack + stack_bytes - (number % 32) * 128, entry);
    }
    Fiber(const Fiber&) = delete;
    ~Fiber() { munmap(stack, stack_bytes); }
};
Fiber* current;  // whose thread runs; null while none does

// ---- Shared memory: a window, as the device has it ------------------------------------------------------------------

// A GPU sees shared memory through a window of addresses whose begin is a multiple of any size of an array. On Hopper
// the system keeps its first 1,024 bytes. Around it is room for indices that are wrong.
constexpr std::size_t window_bytes = 1 << 20, window_alignment = std::size_t(1) << block_window_bits;
constexpr unsigned most_cluster_blocks = 256;  // that run together

struct Placed {
    std::size_t offset, place;  // of an array: in the library's TLS segment, and from the window's begin
};
std::vector<Placed> placed;     // the arrays of the kernel that is launched
char* elsewhere;                // stands for the TLS segment, for all else that g++ keeps there
std::size_t elsewhere_bytes;

char* window()
{
    static char* const begin = [] {
        void* memory = mmap(nullptr, (most_cluster_blocks + 2) * window_alignment, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) std::abort();
        const auto least = reinterpret_cast<std::uintptr_t>(memory) + window_bytes;
        return reinterpret_cast<char*>((least + window_alignment - 1) / window_alignment * window_alignment);
    }();
    return begin;
}

// ---- A kernel that cannot go on: no end, a division by zero, a stack that is full, an address that nobody has ---------

#define EMULATOR_ENDS(end) \
    end(reached) end(time) end(division) end(stack) end(address) end(instruction) end(waits) end(never)
enum class End : std::int32_t { EMULATOR_ENDS(EMULATOR_LISTED) };

// What Python reads of how a run ended. `pc` is from the library's begin; 0 if it is not in there.
struct Stopped {
    End how;
    std::uint32_t thread, block[3];
    std::uint64_t pc, last, address;  // `last`: of the last access, `address`: what was to be read or written
    const char* file;           // where the thread waited, if pc is 0
    std::int32_t line;
} stopped;

std::uintptr_t last_access;  // its instruction, if somebody watches
double seconds_left;  // of computing, for all launches until it is set again; 0: no limit
volatile bool out_of_time;
pthread_t runner;
constexpr int signals[] = {SIGPROF, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction earlier[std::size(signals)];
stack_t earlier_stack;

std::uint64_t library_offset(std::uintptr_t pc)
{
    Dl_info here, there;
    if (!dladdr(reinterpret_cast<void*>(&library_offset), &here) || !dladdr(reinterpret_cast<void*>(pc), &there)) return 0;
    return here.dli_fbase == there.dli_fbase ? pc - reinterpret_cast<std::uintptr_t>(here.dli_fbase) : 0;
}

void stop(End how, std::uintptr_t pc, std::uintptr_t address = 0);

// A thread that computes without an access or a barrier is not asked whether its time is up: the second tick ends it.
void on_signal(int number, siginfo_t* info, [[maybe_unused]] void* context)
{
    if (!pthread_equal(pthread_self(), runner)) {
        pthread_kill(runner, number);
        return;
    }
    std::uintptr_t pc = 0;
#if defined(__x86_64__)
    pc = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    pc = static_cast<ucontext_t*>(context)->uc_mcontext.pc;
#endif
    if (number == SIGPROF) {
        if (out_of_time && current) stop(End::time, pc);
        out_of_time = true;
        return;
    }
    if (!current) {  // not the kernel's doing
        sigaction(number, &earlier[std::find(signals, std::end(signals), number) - signals], nullptr);
        return;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    if (number == SIGFPE) stop(End::division, pc);
    if (number == SIGILL) stop(End::instruction, pc);
    const bool is_full = address - reinterpret_cast<std::uintptr_t>(current->stack) < guard_bytes;
    stop(is_full ? End::stack : End::address, pc, address);
}

void catch_signals()
{
    static char own_stack[64 << 10];
    stack_t alternative{};
    alternative.ss_sp = own_stack;
    alternative.ss_size = sizeof own_stack;
    sigaltstack(&alternative, &earlier_stack);
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (std::size_t i = 0; i < std::size(signals); ++i) sigaction(signals[i], &action, &earlier[i]);
    runner = pthread_self();
    stopped = {};
    last_access = 0;
    out_of_time = false;
    if (seconds_left <= 0) return;
    const auto seconds = static_cast<time_t>(seconds_left);
    const auto rest = static_cast<suseconds_t>(1e6 * (seconds_left - static_cast<double>(seconds)));
    const itimerval timer{{0, 100000}, {seconds, std::max<suseconds_t>(1, rest)}};
    setitimer(ITIMER_PROF, &timer, nullptr);
}

void release_signals()
{
    if (seconds_left > 0) {
        const itimerval none{};
        itimerval left{};
        setitimer(ITIMER_PROF, &none, &left);
        const double rest = static_cast<double>(left.it_value.tv_sec) + 1e-6 * static_cast<double>(left.it_value.tv_usec);
        seconds_left = out_of_time ? 1e-6 : std::max(1e-6, rest);
    }
    for (std::size_t i = 0; i < std::size(signals); ++i) sigaction(signals[i], &earlier[i], nullptr);
    sigaltstack(&earlier_stack, nullptr);
}

// ---- One cluster, which mostly is one block -------------------------------------------------------------------------

Context main_context;
std::vector<std::unique_ptr<Fiber>> fibers;  // kept from block to block and from launch to launch
unsigned fresh;                              // fibers[fresh] and later ones run no thread of this block yet
std::vector<unsigned> order;                 // in which the threads of a cluster start
unsigned started;                            // threads of this cluster that have started
std::vector<Fiber*> ready, waiting;          // waiting: at their block's barrier
std::size_t cursor;                          // ready[cursor] runs next
std::vector<Fiber*> warp_ready;              // lanes that go on together, before all others
std::size_t warp_cursor;
std::vector<Fiber*> sleeping;                // for something that another thread or a unit does
std::vector<Fiber*> asking;                  // again and again
bool something_happened;                     // since they asked last
unsigned in_vain;                            // how often they have asked since something happened
bool abandoned, descending, cooperative;
std::string message;                         // why a run was given up that nobody watches
std::uint64_t seed;                          // of the order between barriers; 0: as they started
std::vector<std::uint32_t> alive;            // the lanes of each warp that have not ended
unsigned predicates;                         // that held at the last barrier of the block

/// Lanes that came to the same call, and wait for the rest of its mask.
struct Group {
    unsigned warp, mask, here;
    const void* kind;
    void (*act)(void* const*, unsigned);
    const char* file;
    int line;
    void* records[32];
    Fiber* lanes[32];
    unsigned elsewhere = 0, their_mask = 0;  // lanes of `mask` that have met with another one since
};
std::vector<Group> groups;
Thread kernel_thread;

// What the kernel is called with. Copied, because a kernel that is watched may read only what lies in its own library.
constexpr std::size_t most_parameters = 1024, slot_bytes = 64;  // a tensor map's alignment
alignas(slot_bytes) char values[32 << 10];  // CUDA takes 32,764 bytes
void* addresses[most_parameters];

void run_threads();
std::uint64_t grid_blocks();

template <typename Items>
void shuffle(Items& items)
{
    for (std::size_t i = items.size(); i > 1; --i) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        std::swap(items[i - 1], items[(seed >> 33) % i]);
    }
}

// The lanes of a warp that are threads: the last warp of a block may have fewer than 32.
unsigned threads_of_warp(unsigned warp)
{
    const unsigned first = warp * 32 % slots_of_block, rest = threads_of_block - first;
    return rest < 32 ? (1u << rest) - 1 : ~0u;
}
unsigned live_lanes(const Group& group) { return group.mask & alive[group.warp]; }

// All lanes of a group are here, or are given up: they go on, one after the other, so that what they do next is still
// one request of the warp.
void go_on(std::size_t number)
{
    Group group = groups[number];
    groups.erase(groups.begin() + number);
    // Lanes that are here may still come to another call that names them, and then with that mask.
    for (Group& other : groups)
        if (other.warp == group.warp && other.kind == group.kind && other.mask && group.mask && other.mask & group.here) {
            other.elsewhere |= group.here;
            other.their_mask = group.mask;
        }
    if (const unsigned never = group.mask & ~group.here & group.elsewhere) {
        char text[160];
        std::snprintf(text, sizeof text, "lanes 0x%x of warp %u come with the mask 0x%x, and lanes 0x%x with the mask 0x%x",
                      group.here, group.warp, group.mask, never, group.their_mask);
        watch::divergence(text, group.file, group.line);
    }
    if (const unsigned ended = group.mask & ~alive[group.warp] & threads_of_warp(group.warp)) {
        char text[160];
        std::snprintf(text, sizeof text, "the mask 0x%x names lanes 0x%x of warp %u, which have ended; nobody waits for them",
                      group.mask, ended, group.warp % (slots_of_block / 32));
        watch::remark(text, group.file, group.line);
    }
    group.act(group.records, group.here);
    Observer::warp_goes_on();
    std::vector<Fiber*> lanes;
    for (unsigned i = 0; i < 32; ++i) {
        const unsigned lane = descending ? 31 - i : i;
        if (group.here >> lane & 1) lanes.push_back(group.lanes[lane]);
    }
    if (seed) shuffle(lanes);
    auto& to = seed ? ready : warp_ready;
    to.insert(to.end(), lanes.begin(), lanes.end());
    something_happened = true;
}

std::string thread_name(unsigned thread)
{
    const unsigned t = thread % slots_of_block;
    const unsigned x = t % blockDim.x, y = t / blockDim.x % blockDim.y, z = t / blockDim.x / blockDim.y;
    std::string name = "thread (" + std::to_string(x) + ", " + std::to_string(y);
    name += (blockDim.z > 1 ? ", " + std::to_string(z) : "") + ")";
    if (cluster_blocks == 1) return name;
    const uint3 block = cluster_index[thread / slots_of_block];
    return name + " of block (" + std::to_string(block.x) + ", " + std::to_string(block.y) +
           (gridDim.z > 1 ? ", " + std::to_string(block.z) : "") + ")";
}

std::string where(const Fiber* fiber)
{
    return fiber->pc ? watch::place(fiber->pc, fiber->file, fiber->line) : "line " + std::to_string(fiber->line);
}

std::string what(const Fiber* fiber)
{
    return fiber->why ? fiber->why(fiber->object, fiber->detail) : "the other threads of the block";
}

// Nothing can go on any more: who waits, for what, and where those are who should have come.
void report_deadlock()
{
    std::vector<Fiber*> all = sleeping;
    all.insert(all.end(), waiting.begin(), waiting.end());
    all.insert(all.end(), asking.begin(), asking.end());
    std::sort(all.begin(), all.end(), [](Fiber* a, Fiber* b) { return a->thread < b->thread; });
    std::vector<std::pair<Fiber*, unsigned>> places;  // the first thread that waits at each, and how many others do
    for (Fiber* fiber : all) {
        const auto same = std::find_if(places.begin(), places.end(), [&](const auto& place) {
            Fiber* f = place.first;
            return f->line == fiber->line && f->pc == fiber->pc && what(f) == what(fiber) && !std::strcmp(f->file, fiber->file);
        });
        if (same == places.end()) places.push_back({fiber, 0});
        else ++same->second;
    }
    const auto who = [](const auto& place) {
        std::string text = thread_name(place.first->thread);
        if (place.second) text += " and " + std::to_string(place.second) + (place.second > 1 ? " others" : " other");
        return text + (place.second ? " wait" : " waits");
    };
    const Fiber* first = places[0].first;
    std::string others;
    for (std::size_t i = 1; i < std::min<std::size_t>(places.size(), 3); ++i)
        others += (i > 1 ? "; " : "") + who(places[i]) + " at " + where(places[i].first) + " for " + what(places[i].first);
    if (places.size() > 3) others += "; others wait at " + std::to_string(places.size() - 3) + " more places";
    if (const std::size_t ended = order.size() - all.size())
        others += (others.empty() ? "" : "; ") + std::to_string(ended) + (ended > 1 ? " threads have ended" : " thread has ended");
    if (others.empty()) others = "all threads wait here, and nobody is left to come";
    watch::deadlock(who(places[0]) + " at " + where(first) + "\n  for " + what(first) + "\n  but " + others, first->file, first->line, first->pc);
}

constexpr unsigned most_looks = 1000;

// If all threads of a block that have not ended wait at its barrier, they go on.
bool release_block()
{
    for (unsigned rank = 0; rank < cluster_blocks && !waiting.empty(); ++rank) {
        unsigned live = 0;
        for (unsigned w = 0; w < slots_of_block / 32; ++w) live += __builtin_popcount(alive[rank * slots_of_block / 32 + w]);
        if (waiting.size() < live || !live) continue;
        const auto others = std::stable_partition(waiting.begin(), waiting.end(),
                                                  [&](Fiber* f) { return f->thread / slots_of_block == rank; });
        if (others - waiting.begin() != live) continue;
        ready.assign(waiting.begin(), others);
        waiting.erase(waiting.begin(), others);
        predicates = std::count_if(ready.begin(), ready.end(), [](Fiber* f) { return f->predicate; });
        Observer::barrier_releases(ready);
        if (seed) shuffle(ready);
        return true;
    }
    return false;
}

// No thread can run: finds those whose wait is over, or ends it. False if none is left.
bool release()
{
    ready.clear();
    cursor = 0;
    if (release_block()) return true;
    for (std::size_t i = 0; i < groups.size(); ++i) {
        const Group& group = groups[i];
        // Lanes that have ended are not waited for, as on the hardware; mask 0 takes whoever came.
        if (group.mask ? group.here == live_lanes(group) : true) return go_on(i), true;
    }
    if (!asking.empty() && something_happened) {
        ready.swap(asking);
        something_happened = false;
        in_vain = 0;
        return true;
    }
    // Units work as late as they may: what nobody waits for, nobody gets.
    if ((!sleeping.empty() || !asking.empty()) && beside.deliver && beside.deliver()) return something_happened = true;
    // A loop may do the same many times and still come to its end.
    const auto looks = std::find_if(asking.begin(), asking.end(), [](Fiber* f) { return f->asked && f->times == most_looks; });
    if (looks != asking.end()) {
        if (++in_vain < most_looks) return ready.swap(asking), true;
        current = *looks;
        stop(cluster_blocks == grid_blocks() ? End::never : End::waits, reinterpret_cast<std::uintptr_t>(current->pc) - 1, reinterpret_cast<std::uintptr_t>(current->asked));
    }
    if (!groups.empty()) {
        const Group& group = groups[0];
        const unsigned missing = __builtin_ctz(live_lanes(group) & ~group.here);
        const unsigned thread = 32 * group.warp + missing, here = 32 * group.warp + __builtin_ctz(group.here);
        std::string text = thread_name(here) + " waits here for lane " + std::to_string(missing) + " of its warp, but ";
        const auto is_it = [&](const Fiber* f) { return f->thread == thread; };
        std::string elsewhere = " is not here";
        for (const auto* list : {&waiting, &sleeping, &asking})
            for (const Fiber* f : *list)
                if (is_it(f)) elsewhere = " waits at " + where(f) + " for " + what(f);
        for (const Group& other : groups)
            if (&other != &group && other.warp == group.warp && other.here >> missing & 1)
                elsewhere = " waits at line " + std::to_string(other.line) +
                            (other.mask == group.mask ? " in another call" : " with another mask");
        watch::divergence(text + thread_name(thread) + elsewhere, group.file, group.line);
        return go_on(0), true;
    }
    if (!sleeping.empty() || !asking.empty()) report_deadlock();
    return false;
}

// Who runs next; null if no thread of the block is left, or none can go on.
Fiber* next()
{
    while (!abandoned) {
        if (warp_cursor < warp_ready.size()) return warp_ready[warp_cursor++];
        warp_ready.clear();
        warp_cursor = 0;
        if (started < order.size()) {
            if (fresh == fibers.size()) fibers.push_back(std::make_unique<Fiber>(fresh, run_threads));
            return fibers[fresh++].get();
        }
        if (cursor < ready.size()) return ready[cursor++];
        if (!release()) break;
    }
    return nullptr;
}

// Lets whoever is next run; returns when the caller is.
void yield(Context& self, Fiber* fiber)
{
    current = next();
    if (current != fiber) self.switch_to(current ? current->context : main_context);
}

void goes_on(const Fiber* fiber)
{
    threadIdx = fiber->index;
    if (cluster_blocks > 1) blockIdx = cluster_index[fiber->thread / slots_of_block];
    Observer::thread_runs(fiber->thread);
}

// A barrier of the blocks from `first` on, which run together: of a cluster, or of the grid.
struct BlocksBarrier {
    const char* name;
    unsigned first_thread, end_thread;
    unsigned arrived, phase;
    std::vector<unsigned> phases;  // of each thread's last arrival, counted from 1
    std::vector<bool> open;        // whether it has not waited since
    Known coming, known;           // what those who arrived show
    Known here, there;             // that they arrived at all

    BlocksBarrier(const char* name, unsigned first, unsigned blocks)
        : name(name), first_thread(first * slots_of_block), end_thread((first + blocks) * slots_of_block), arrived(0), phase(0),
          phases(blocks * slots_of_block), open(blocks * slots_of_block)
    {
    }
    unsigned place(unsigned thread) const { return thread - first_thread; }
};
std::vector<BlocksBarrier> blocks_barriers;  // of each cluster, and then of the grid

void look_at_barrier(BlocksBarrier& b)
{
    for (unsigned t = b.first_thread; t < b.end_thread; ++t)
        if ((alive[t / 32] >> t % 32 & 1) && b.phases[b.place(t)] <= b.phase) return;  // who has ended is not waited for
    ++b.phase;
    b.arrived = 0;
    b.known = b.coming;
    b.there = b.here;
    wake(&b);
}

std::uint64_t grid_blocks() { return std::uint64_t(gridDim.x) * gridDim.y * gridDim.z; }

// Marks the stack below its caller, where a thread's arrays will lie, as g++ 12 and newer mark what nobody has set: a
// sum that begins with what another thread left there, or with 0, would be right by chance.
[[gnu::noinline]] void mark_stack()
{
    char below[4096];
    std::memset(below, 0xFE, sizeof below);
    asm volatile("" : : "r"(below) : "memory");
}

// The body of a fiber, for ever: threads of a block as long as there are any.
void run_threads()
{
    for (;;) {
        Fiber* self = current;
        while (started < order.size() && warp_cursor == warp_ready.size()) {
            self->thread = order[started++];
            const unsigned number = self->thread % slots_of_block, row = number / blockDim.x;
            self->index = {number % blockDim.x, row % blockDim.y, row / blockDim.y};
            goes_on(self);
            mark_stack();
            kernel_thread(addresses);
            alive[self->thread / 32] &= ~(1u << self->thread % 32);
            something_happened = true;
            Observer::thread_ends(self->thread);
            for (BlocksBarrier& b : blocks_barriers)
                if (b.arrived && b.first_thread <= self->thread && self->thread < b.end_thread) look_at_barrier(b);
        }
        yield(self->context, self);
    }
}

// Gives up the launch in the middle of it: emulator_run returns.
[[maybe_unused]] void abandon()
{
    abandoned = true;
    if (current) current->context.switch_to(main_context);
}

void stop(End how, std::uintptr_t pc, std::uintptr_t address)
{
    stopped = {how, current->thread % slots_of_block, {blockIdx.x, blockIdx.y, blockIdx.z}, library_offset(pc),
               library_offset(last_access), address, current->file, current->line};
    abandon();
}

void stay(Fiber* self, const char* file, int line)
{
    self->file = file;
    self->line = line;
    if (out_of_time) stop(End::time, 0);
    yield(self->context, self);
    goes_on(self);
}

}  // namespace

Units beside;

unsigned thread_number() { return current->thread; }
unsigned thread_in_block() { return current->thread % slots_of_block; }
unsigned thread_count() { return threads_of_block; }
unsigned block_threads() { return slots_of_block; }
unsigned block_rank() { return current->thread / slots_of_block; }
unsigned first_rank() { return block_rank() / cluster_size * cluster_size; }
bool is_cooperative() { return cooperative; }
bool is_random() { return seed != 0; }
std::uint64_t random_number() { return (seed = seed * 6364136223846793005u + 1442695040888963407u) >> 33; }

unsigned synchronise(bool predicate, const char* file, int line, unsigned column)
{
    Fiber* self = current;
    self->column = column;
    self->asked = nullptr;
    self->predicate = predicate;
    self->pc = nullptr;
    self->why = nullptr;
    waiting.push_back(self);
    stay(self, file, line);
    return predicates;
}

void sleep_for(const void* object, Why why, std::uint64_t detail, const char* file, int line, const void* pc,
               bool now)
{
    Fiber* self = current;
    self->pc = pc;
    self->object = object;
    self->why = why;
    self->detail = detail;
    sleeping.push_back(self);
    if (now) wake(object);
    stay(self, file, line);
}

void wake(const void* object)
{
    std::vector<Fiber*> awake;
    for (std::size_t i = 0; i < sleeping.size();)
        if (sleeping[i]->object == object) {
            awake.push_back(sleeping[i]);
            sleeping.erase(sleeping.begin() + i);
        } else {
            ++i;
        }
    if (seed) shuffle(awake);
    else std::sort(awake.begin(), awake.end(), [](Fiber* a, Fiber* b) { return (a->thread < b->thread) != descending; });
    ready.insert(ready.end(), awake.begin(), awake.end());
    something_happened = true;
}

namespace {
BlocksBarrier& own_barrier() { return blocks_barriers[block_rank() / cluster_size]; }

void arrive_at(BlocksBarrier& b, bool relaxed, const char* file, int line)
{
    const unsigned self = b.place(current->thread);
    if (b.open[self])
        watch::divergence(thread_name(current->thread) + " arrives twice at " + b.name + ", with no barrier.cluster.wait between", file, line);
    if (!relaxed) watch::release(b.coming);
    watch::finished(b.here, current->thread);
    b.phases[self] = b.phase + 1;
    b.open[self] = true;
    ++b.arrived;
    look_at_barrier(b);
}

void wait_at(BlocksBarrier& b, const char* file, int line, const void* pc)
{
    const unsigned self = b.place(current->thread), mine = b.phases[self];
    if (!b.open[self])
        watch::divergence(thread_name(current->thread) + " waits at " + b.name + ", at which it has not arrived", file, line);
    b.open[self] = false;
    const Why why = [](const void* object, std::uint64_t) {
        const auto& b = *static_cast<const BlocksBarrier*>(object);
        unsigned live = 0;
        for (unsigned w = b.first_thread / 32; w < b.end_thread / 32; ++w) live += __builtin_popcount(alive[w]);
        return b.name + (", at which " + std::to_string(b.arrived)) + " of " + std::to_string(live) + " threads have arrived";
    };
    // Who comes last goes on with the others, so that what its warp does next is one request.
    if (mine <= b.phase) sleep_for(&b, why, 0, file, line, pc, true);
    while (mine > b.phase) sleep_for(&b, why, 0, file, line, pc);
    watch::acquire(b.known);
    watch::meet(b.there);
}
}  // namespace

void cluster_arrive(bool relaxed, const char* file, int line) { arrive_at(own_barrier(), relaxed, file, line); }
void cluster_wait(const char* file, int line, const void* pc) { wait_at(own_barrier(), file, line, pc); }

void grid_synchronise(const char* file, int line)
{
    if (!cooperative)
        watch::trap(thread_name(current->thread) + " synchronises the grid in a launch that is not cooperative; a GPU ends it there "
                        "(`cooperative` of the registry, --cooperative)", file, line);
    if (cluster_blocks != grid_blocks()) {
        current->file = file;
        current->line = line;
        stop(End::waits, 0);
    }
    arrive_at(blocks_barriers.back(), false, file, line);
    wait_at(blocks_barriers.back(), file, line, nullptr);
}

void let_others_run(const char* file, int line, const void* pc)
{
    Fiber* self = current;
    self->pc = pc;
    self->why = [](const void*, std::uint64_t) { return std::string("what it asks for again and again"); };
    asking.push_back(self);
    stay(self, file, line);
}

void asks(const void* address, unsigned size, const void* pc)
{
    Fiber* self = current;
    std::uint64_t value = 0;
    if (self->asked == address) std::memcpy(&value, address, std::min<unsigned>(size, sizeof value));
    if (self->asked != address || self->found != value) {
        self->asked = address;
        self->found = value;
        self->times = 0;
    }
    if (++self->times < most_looks) return;
    self->times = most_looks;
    let_others_run("", 0, pc);
    self->times = 0;
}

void together(unsigned mask, const void* kind, void* record, void (*act)(void* const*, unsigned), const char* file,
              int line)
{
    Fiber* self = current;
    const unsigned warp = self->thread / 32, lane = self->thread % 32;
    if (mask && !(mask >> lane & 1)) {
        char text[96];
        std::snprintf(text, sizeof text, " calls with the mask 0x%x, which does not name its own lane %u", mask, lane);
        watch::divergence(thread_name(self->thread) + text, file, line);
        mask |= 1u << lane;
    }
    std::size_t i = 0;
    while (i < groups.size() && !(groups[i].warp == warp && groups[i].kind == kind && groups[i].mask == mask &&
                                  (mask || groups[i].line == line)))
        ++i;
    if (i == groups.size()) groups.push_back({warp, mask, 0, kind, act, file, line, {}, {}, 0, 0});
    Group& group = groups[i];
    group.records[lane] = record;
    group.lanes[lane] = self;
    group.here |= 1u << lane;
    self->pc = nullptr;
    self->why = nullptr;
    if (mask && group.here == live_lanes(group)) go_on(i);
    stay(self, file, line);
}

#ifndef EMULATOR_OBSERVED
namespace watch {
namespace {
void give_up(const std::string& text, const char* file, int line)
{
    message = std::string(file) + ":" + std::to_string(line) + ": " + text;
    abandon();
}
}  // namespace
bool accesses(const void*, unsigned, bool, const void*) { return true; }
void atomic(const void*, unsigned, bool, const void*) {}
void reads_only(const void*, unsigned, const void*) {}
void guard(const void*, unsigned, const void*) {}
void sum_begins(const void*, unsigned, unsigned, const void*) {}
void sums_end(unsigned) {}
void remark(const std::string&, const char*, int) {}
void release(Known&) {}
void acquire(const Known&) {}
void join(const unsigned*, unsigned) {}
void finished(Known&, unsigned) {}
void meet(const Known&) {}
std::uint32_t now() { return 0; }
void learn(unsigned, std::uint32_t) {}
bool uses(const void*, unsigned, bool, const void*) { return true; }
void copy_begins(const void*, unsigned, const void*, bool) {}
void copy_ends(const void*, unsigned, unsigned) {}
void unit_reads(const void*, unsigned, const void*, unsigned) {}
void proxy_fence() {}
void global_request(const void*, unsigned, bool, unsigned) {}
void block_request(const void*, unsigned) {}
void goes_by(Way) {}
void asynchrony(const std::string& text, const char* file, int line, const void*, bool last)
{
    if (last) give_up(text, file, line);
}
void divergence(const std::string&, const char*, int) {}
void misaligned(const std::string&, const char*, int) {}
void deadlock(const std::string& text, const char* file, int line, const void*) { give_up("deadlock: " + text, file, line); }
std::string place(const void*, const char* file, int line) { return std::string(file) + ":" + std::to_string(line); }
void trap(const std::string& text, const char* file, int line) { give_up(text, file, line); }
}  // namespace watch
#endif

}  // namespace emulator

/// How many seconds all the launches from now on may compute together; 0: as long as they like.
extern "C" __attribute__((visibility("default"))) void emulator_limit(double seconds) { emulator::seconds_left = seconds; }

/// How the last run ended, and the names by which its `how` is known.
extern "C" __attribute__((visibility("default"))) const char emulator_ends[] = EMULATOR_ENDS(EMULATOR_NAMED);
extern "C" __attribute__((visibility("default"))) const void* emulator_stopped() { return &emulator::stopped; }

/// Where the shared arrays of the next launches lie: `offsets` are theirs in the library's TLS segment of `bytes` bytes,
/// `places` those from the window's begin.
extern "C" __attribute__((visibility("default"))) void emulator_place(
    const std::uint64_t* offsets, const std::uint64_t* places, int count, std::uint64_t bytes)
{
    using namespace emulator;
    placed.clear();
    for (int i = 0; i < count; ++i) placed.push_back({offsets[i], places[i]});
    if (elsewhere_bytes < bytes) {
        std::free(elsewhere);
        elsewhere = static_cast<char*>(std::calloc(bytes, 1));
        elsewhere_bytes = bytes;
    }
}

/// The address of a thread_local variable, in place of the C library's own: the compiler calls it by this name.
struct EmulatorTlsIndex {
    unsigned long module, offset;
};
extern "C" __attribute__((visibility("hidden"))) void* __tls_get_addr(EmulatorTlsIndex* index)
{
    using namespace emulator;
    for (const Placed& array : placed)
        if (array.offset == index->offset)
            return shared_window + array.place + (cluster_blocks > 1 && current ? block_rank() * window_alignment : 0);
    return elsewhere + index->offset;
}
#include "warp.cpp"

/// Runs the grid. Blocks, and the threads of a block between barriers, run in ascending order, or in descending order
/// (`blocks_reversed`, `reverse`), or, if `seed` is not 0, threads in a random order that depends on it alone. `arguments` are the addresses
/// of the kernel's arguments. `blocks`, if not null, holds the numbers (counted along x, y, then z) of the `block_count`
/// blocks to run, with all of their clusters; otherwise all of the grid's run. `cluster`, which divides `grid`, says how
/// many blocks run together, unless all_together says that all do; only if the launch `is_cooperative` may the grid meet at
/// a barrier. Returns 1, or 0 if the run was given up.
extern "C" __attribute__((visibility("default"))) int emulator_run(
    const emulator::Instance* instance, const unsigned* block, const unsigned* grid, const unsigned* cluster, void* const* arguments,
    int reverse, int blocks_reversed, std::uint64_t seed, const std::uint64_t* blocks, std::uint64_t block_count, int all_together,
    int is_cooperative)
{
    using namespace emulator;
    blockDim = {block[0], block[1], block[2]};
    gridDim = {grid[0], grid[1], grid[2]};
    kernel_thread = instance->thread;
    char* slot = values;
    for (unsigned i = 0; i < instance->parameter_count; ++i) {
        const std::size_t size = instance->parameters[i].size, slots = (size + slot_bytes - 1) / slot_bytes;
        if (i == most_parameters || slot + slots * slot_bytes > values + sizeof values) std::abort();
        addresses[i] = std::memcpy(slot, arguments[i], size);
        slot += slots * slot_bytes;
    }
    emulator::seed = seed;
    clusterDim = {cluster[0], cluster[1], cluster[2]};
    cluster_size = cluster[0] * cluster[1] * cluster[2];
    cooperative = is_cooperative;
    cluster_blocks = all_together ? grid_blocks() : cluster_size;
    if (cluster_blocks > most_cluster_blocks) std::abort();
    threads_of_block = block[0] * block[1] * block[2];
    slots_of_block = (threads_of_block + 31) / 32 * 32;
    wgmma_of_warp = cluster_blocks * slots_of_block;
    copies_of_barrier = wgmma_of_warp + wgmma_of_warp / 32;
    stores = copies_of_barrier + 64;
    workers = stores + 1;
    order.clear();
    for (unsigned rank = 0; rank < cluster_blocks; ++rank)
        for (unsigned t = 0; t < threads_of_block; ++t) order.push_back(rank * slots_of_block + t);
    if (reverse) std::reverse(order.begin(), order.end());
    cluster_index.resize(cluster_blocks);
    abandoned = something_happened = false;
    in_vain = 0;
    descending = reverse;
    message.clear();
    shared_window = window();
    const dim3 clusters(grid[0] / cluster[0], grid[1] / cluster[1], grid[2] / cluster[2]);
    std::uint64_t count = std::uint64_t(clusters.x) * clusters.y * clusters.z;
    std::vector<std::uint64_t> some;  // numbers of the clusters that have one of `blocks`
    for (std::uint64_t i = 0; blocks && i < block_count; ++i) {
        const std::uint64_t row = blocks[i] / grid[0], x = blocks[i] % grid[0] / cluster[0], y = row % grid[1] / cluster[1];
        const std::uint64_t number = x + clusters.x * (y + clusters.y * (row / grid[1] / cluster[2]));
        if (std::find(some.begin(), some.end(), number) == some.end()) some.push_back(number);
    }
    if (blocks) count = some.size();
    if (all_together) count = 1;
    catch_signals();
    for (std::uint64_t i = 0; i < count && !abandoned; ++i) {
        const std::uint64_t start = blocks ? some[i] : blocks_reversed ? count - 1 - i : i;
        for (unsigned place = 0; place < cluster_blocks; ++place) {
            const std::uint64_t number = start + place / cluster_size, row = number / clusters.x;
            const unsigned rank = place % cluster_size;
            cluster_index[place] = {unsigned(number % clusters.x) * cluster[0] + rank % cluster[0],
                                    unsigned(row % clusters.y) * cluster[1] + rank / cluster[0] % cluster[1],
                                    unsigned(row / clusters.y) * cluster[2] + rank / cluster[0] / cluster[1]};
        }
        blockIdx = cluster_index[0];
        if (seed) shuffle(order);
        started = fresh = 0;
        alive.assign(wgmma_of_warp / 32, 0);
        for (unsigned thread : order) alive[thread / 32] |= 1u << thread % 32;
        blocks_barriers.clear();
        for (unsigned rank = 0; rank < cluster_blocks; rank += cluster_size)
            blocks_barriers.emplace_back("the cluster's barrier", rank, cluster_size);
        if (cluster_blocks == grid_blocks()) blocks_barriers.emplace_back("the grid's barrier", 0, cluster_blocks);
        Observer::block_starts();
        if (beside.block_starts) beside.block_starts();
        yield(main_context, nullptr);
        if (beside.block_ends && !abandoned) beside.block_ends();
        Observer::block_ends();
    }
    current = nullptr;
    release_signals();
    if (abandoned) {  // its fibers hang in the middle of their threads
        for (auto* list : {&ready, &waiting, &warp_ready, &sleeping, &asking}) list->clear();
        groups.clear();
        warp_cursor = 0;
        cursor = 0;
        fibers.clear();
    }
    return !abandoned;
}

/// Why the last run was given up, if nobody watched it; else "".
extern "C" __attribute__((visibility("default"))) const char* emulator_message() { return emulator::message.c_str(); }

/// What the threads have printed since the last call; `size`: its bytes.
extern "C" __attribute__((visibility("default"))) const char* emulator_printed(std::uint64_t* size)
{
    static std::string text;
    text = std::exchange(emulator::printed, {});
    *size = text.size();
    return text.data();
}
