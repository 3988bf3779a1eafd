// Runs a grid on one CPU core: block after block, each thread of a block a fiber.
//
// A fiber does not belong to one thread: it runs thread after thread of the block until one comes to a barrier, and only
// then is another fiber needed. So a kernel without barriers runs on a single fiber, with no switch at all.
#include "cuda_emulator.h"

#include <cstdlib>
#include <memory>
#include <sys/mman.h>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulator {
namespace {

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
    uint3 index{};                    // threadIdx of the thread it runs now
    Barrier waits_at = Barrier::block;

    Fiber(int number, void (*entry)())
    {
        void* stack = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED) std::abort();
        mprotect(stack, page, PROT_NONE);  // an overflow ends in a fault, not in a neighbour's stack
        // Staggered: were all stacks at the same offset in a page, they would share a few sets of the cache.
        context.prepare(static_cast<char*>(stack) + stack_bytes - (number % 32) * 128, entry);
    }
};

// ---- One block ------------------------------------------------------------------------------------------------------

Context main_context;
std::vector<std::unique_ptr<Fiber>> fibers;  // kept from block to block and from launch to launch
unsigned fresh;                              // fibers[fresh] and later ones run no thread of this block yet
Fiber* current;
std::vector<unsigned> order;                 // in which the threads of a block start
unsigned started;                            // threads of this block that have started
std::vector<Fiber*> ready, waiting;
std::size_t cursor;                          // ready[cursor] runs next
std::uint64_t seed;                          // of the order between barriers; 0: as they started
Thread kernel_thread;
const Arguments* arguments;

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
    if (fiber) threadIdx = fiber->index;
}

// The body of a fiber, for ever: threads of a block as long as there are any.
void run_threads()
{
    for (;;) {
        Fiber* self = current;
        while (started < order.size()) {
            const unsigned thread = order[started++];
            self->index = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / (blockDim.x * blockDim.y)};
            threadIdx = self->index;
            kernel_thread(*arguments);
        }
        yield(self->context, self);
    }
}

}  // namespace

void wait(Barrier barrier, const char*, int)
{
    Fiber* self = current;
    self->waits_at = barrier;
    waiting.push_back(self);
    yield(self->context, self);
}

}  // namespace emulator

/// Runs the whole grid. Threads of a block run in ascending order between barriers, or in descending order (`reverse`),
/// or, where `seed` is not 0, in a random order that depends on it alone.
extern "C" __attribute__((visibility("default"))) void emulator_run(
    emulator::Thread thread, const unsigned* block, const unsigned* grid, const emulator::Arguments* arguments,
    int reverse, std::uint64_t seed)
{
    using namespace emulator;
    blockDim = {block[0], block[1]};
    gridDim = {grid[0], grid[1]};
    kernel_thread = thread;
    emulator::arguments = arguments;
    emulator::seed = seed;
    order.resize(block[0] * block[1]);
    for (unsigned i = 0; i < order.size(); ++i) order[i] = reverse ? order.size() - 1 - i : i;
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
            if (seed) shuffle(order);
            started = fresh = 0;
            yield(main_context, nullptr);
        }
}
