#include "fibers.h"

#include <cstdlib>
#include <sys/mman.h>

namespace emulator {

Fiber* current;

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

void Context::prepare(char* top, void (*entry)())
{
    void** stack = reinterpret_cast<void**>(top);
    *--stack = nullptr;                             // where a return address of `entry` would be
    *--stack = reinterpret_cast<void*>(entry);      // emulator_switch returns to it
    stack_pointer = static_cast<void*>(stack - 6);  // after popping six registers, whatever they hold
}

void Context::switch_to(Context& other) { emulator_switch(&stack_pointer, other.stack_pointer); }
#else
void Context::prepare(char* top, void (*entry)())
{
    getcontext(&context);
    context.uc_stack.ss_size = 512 << 10;
    context.uc_stack.ss_sp = top - context.uc_stack.ss_size;
    makecontext(&context, entry, 0);
}

void Context::switch_to(Context& other) { swapcontext(&context, &other.context); }
#endif

Fiber::Fiber(std::size_t number, void (*entry)())
{
    void* memory =
        mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    mprotect(memory, guard_bytes, PROT_NONE);  // an overflow ends in a fault, not in a neighbour's stack
    stack = static_cast<char*>(memory);
    // Staggered: were all stacks at the same offset in a page, they would share a few sets of the cache.
    context.prepare(stack + stack_bytes - (number % 32) * 128, entry);
}

Fiber::~Fiber() { munmap(stack, stack_bytes); }

}  // namespace emulator
