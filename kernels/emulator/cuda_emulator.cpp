// Runs a grid on one CPU core: block after block, each thread of a block a fiber.
//
// A fiber does not belong to one thread: it runs thread after thread of the block until one comes to a barrier, and only
// then is another fiber needed. So a kernel without barriers runs on a single fiber, with no switch at all.
#include "cuda_emulator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sys/mman.h>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulator {
namespace {

#ifndef EMULATOR_OBSERVED
// What happens in a run, for tracer.cpp to watch. Here nobody does.
struct Observer {
    static void block_starts() {}
    static void thread_runs(unsigned) {}
    static void thread_ends(unsigned) {}
    template <typename Fibers>
    static void barrier_releases(const Fibers&) {}
    static void block_ends() {}
};
#endif

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
}  // namespace
}  // namespace emulator
#include <ucontext.h>
namespace emulator {
namespace {
struct Context {
    ucontext_t context;

    void prepare(char* top, void (*entry)())
    {
        getcontext(&context);
        context.uc_stack.ss_size = 128 << 10;
        context.uc_stack.ss_sp = top - context.uc_stack.ss_size;
        makecontext(&context, entry, 0);
    }
    void switch_to(Context& other) { swapcontext(&context, &other.context); }
};
#endif

constexpr std::size_t stack_bytes = 256 << 10, page = 4096;

struct Fiber {
    Context context;
    char* stack;
    unsigned thread = 0;              // the thread it runs now, counted along x, y, then z
    uint3 index{};                    // its threadIdx
    Barrier waits_at = Barrier::block;
    const char* file = "";            // where it waits
    int line = 0;

    Fiber(int number, void (*entry)())
    {
        void* memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) std::abort();
        mprotect(memory, page, PROT_NONE);  // an overflow ends in a fault, not in a neighbour's stack
        stack = static_cast<char*>(memory);
        // Staggered: were all stacks at the same offset in a page, they would share a few sets of the cache.
        context.prepare(stack + stack_bytes - (number % 32) * 128, entry);
    }
    Fiber(const Fiber&) = delete;
    ~Fiber() { munmap(stack, stack_bytes); }
};

// ---- Shared memory: a window, as the device has it ------------------------------------------------------------------

// A GPU sees shared memory through a window of addresses whose begin is a multiple of any size of an array. On Hopper
// the system keeps its first 1,024 bytes. Around it is room for indices that are wrong.
constexpr std::size_t window_bytes = 1 << 20, window_alignment = 16 << 20;

struct Placed {
    std::size_t offset, place;  // of an array: in the library's TLS segment, and from the window's begin
};
std::vector<Placed> placed;     // the arrays of the kernel that is launched
char* elsewhere;                // stands for the TLS segment, for all else that g++ keeps there
std::size_t elsewhere_bytes;

char* shared_window()
{
    static char* const window = [] {
        void* memory = mmap(nullptr, 2 * window_alignment, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) std::abort();
        const auto begin = reinterpret_cast<std::uintptr_t>(memory) + window_bytes;
        return reinterpret_cast<char*>((begin + window_alignment - 1) / window_alignment * window_alignment);
    }();
    return window;
}

// ---- One block ------------------------------------------------------------------------------------------------------

Context main_context;
std::vector<std::unique_ptr<Fiber>> fibers;  // kept from block to block and from launch to launch
unsigned fresh;                              // fibers[fresh] and later ones run no thread of this block yet
Fiber* current;
std::vector<unsigned> order;                 // in which the threads of a block start
unsigned started;                            // threads of this block that have started
std::vector<Fiber*> ready, waiting;
std::size_t cursor;                          // ready[cursor] runs next
bool abandoned;
std::uint64_t seed;                          // of the order between barriers; 0: as they started
Thread kernel_thread;

// What the kernel is called with. Copied, because a kernel that is watched may read only what lies in its own library.
constexpr std::size_t most_parameters = 1024, slot_bytes = 16;
alignas(slot_bytes) char values[32 << 10];  // CUDA takes 32,764 bytes
void* addresses[most_parameters];

void run_threads();

template <typename Items>
void shuffle(Items& items)
{
    for (std::size_t i = items.size(); i > 1; --i) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        std::swap(items[i - 1], items[(seed >> 33) % i]);
    }
}

// All threads wait or have ended: makes those ready whose barrier is complete. Threads that have ended count as
// arrived, as on the hardware. Lanes at a __syncwarp() go first: the rest of their warp, if it waits, waits elsewhere.
void release()
{
    const bool warps = std::any_of(waiting.begin(), waiting.end(), [](Fiber* f) { return f->waits_at == Barrier::warp; });
    ready.clear();
    std::vector<Fiber*> others;
    for (Fiber* fiber : waiting) (warps && fiber->waits_at == Barrier::block ? others : ready).push_back(fiber);
    waiting.swap(others);
    if (!ready.empty()) Observer::barrier_releases(ready);
    if (seed) shuffle(ready);
    cursor = 0;
}

// Lets whoever is next run; returns when the caller is.
void yield(Context& self, Fiber* fiber)
{
    if (started < order.size()) {
        if (fresh == fibers.size()) fibers.push_back(std::make_unique<Fiber>(fresh, run_threads));
        current = fibers[fresh++].get();
    } else {
        if (cursor == ready.size()) release();
        current = cursor < ready.size() ? ready[cursor++] : nullptr;
    }
    if (current != fiber) self.switch_to(current ? current->context : main_context);
}

// The body of a fiber, for ever: threads of a block as long as there are any.
void run_threads()
{
    for (;;) {
        Fiber* self = current;
        while (started < order.size()) {
            self->thread = order[started++];
            const unsigned row = self->thread / blockDim.x;
            self->index = {self->thread % blockDim.x, row % blockDim.y, row / blockDim.y};
            threadIdx = self->index;
            Observer::thread_runs(self->thread);
            kernel_thread(addresses);
            Observer::thread_ends(self->thread);
        }
        yield(self->context, self);
    }
}

// Gives up the launch in the middle of it: emulator_run returns.
[[maybe_unused]] void abandon()
{
    abandoned = true;
    current->context.switch_to(main_context);
}

}  // namespace

void wait(Barrier barrier, const char* file, int line)
{
    Fiber* self = current;
    self->waits_at = barrier;
    self->file = file;
    self->line = line;
    waiting.push_back(self);
    yield(self->context, self);
    threadIdx = self->index;
    Observer::thread_runs(self->thread);
}

}  // namespace emulator

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
        if (array.offset == index->offset) return shared_window() + array.place;
    return elsewhere + index->offset;
}

/// Runs the grid. Blocks, and the threads of a block between barriers, run in ascending order, or in descending order
/// (`reverse`), or, if `seed` is not 0, threads in a random order that depends on it alone. `arguments` are the addresses
/// of the kernel's arguments. `blocks`, if not null, holds the numbers (counted along x, y, then z) of the `block_count`
/// blocks to run; otherwise all of the grid's run. Returns 1, or 0 if the run was given up.
extern "C" __attribute__((visibility("default"))) int emulator_run(
    const emulator::Instance* instance, const unsigned* block, const unsigned* grid, void* const* arguments,
    int reverse, std::uint64_t seed, const std::uint64_t* blocks, std::uint64_t block_count)
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
    order.resize(block[0] * block[1] * block[2]);
    for (unsigned i = 0; i < order.size(); ++i) order[i] = reverse ? order.size() - 1 - i : i;
    abandoned = false;
    if (!blocks) block_count = std::uint64_t(grid[0]) * grid[1] * grid[2];
    for (std::uint64_t i = 0; i < block_count && !abandoned; ++i) {
        const std::uint64_t number = blocks ? blocks[i] : reverse ? block_count - 1 - i : i;
        const std::uint64_t row = number / gridDim.x;
        blockIdx = {unsigned(number % gridDim.x), unsigned(row % gridDim.y), unsigned(row / gridDim.y)};
        if (seed) shuffle(order);
        started = fresh = 0;
        Observer::block_starts();
        yield(main_context, nullptr);
        Observer::block_ends();
    }
    if (abandoned) {  // its fibers hang in the middle of their threads
        ready.clear();
        waiting.clear();
        cursor = 0;
        fibers.clear();
    }
    return !abandoned;
}
