// Fibers: a stack of their own each, and a switch from one to another.
#pragma once

#include "runtime.h"

#if !defined(__x86_64__) || defined(EMULATOR_UCONTEXT)
#include <ucontext.h>
#endif

#pragma GCC visibility push(hidden)
namespace emulator {

struct Context {
#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)
    void* stack_pointer = nullptr;
#else
    ucontext_t context;
#endif
    /// The next switch to it calls `entry`, on a stack that ends at `top`.
    void prepare(char* top, void (*entry)());
    void switch_to(Context& other);
};

// A GPU gives a thread up to 512 KiB of local memory. The compiler touches a large frame page by page, so whatever does
// not fit ends at the guard below a stack.
constexpr std::size_t stack_bytes = 640 << 10, page = 4096, guard_bytes = 16 * page;

// What a thread has found at a place at which it may look again and again.
struct Look {
    const void* address = nullptr;
    std::uint64_t found = 0;
};

struct Fiber {
    Context context;
    char* stack;
    unsigned thread = 0;    // the thread it runs now, counted along x, y, then z
    uint3 index{};          // its threadIdx
    const char* file = "";  // where it waits
    int line = 0;
    unsigned column = 0;           // of a barrier of the block
    unsigned round = 0;            // of the loops around it
    bool predicate = false;        // what it brings to a barrier that adds up
    const void* pc = nullptr;      // of an asm statement
    const void* object = nullptr;  // what it waits for, if that is no barrier of the block
    Why why = nullptr;
    std::uint64_t detail = 0;
    const void* asked = nullptr;  // where it looked last
    unsigned times = 0;           // how many of its last looks found nothing new
    std::vector<Look> looks;      // the last ones, by their address
    bool carry = false;           // of PTX

    Fiber(std::size_t number, void (*entry)());
    Fiber(const Fiber&) = delete;
    ~Fiber();
};
extern Fiber* current;  // whose thread runs; null while none does

/// Whether an address lies on the stack of the running thread, so in one of its local variables.
inline bool on_stack(std::uintptr_t at) { return at - reinterpret_cast<std::uintptr_t>(current->stack) < stack_bytes; }

}  // namespace emulator
#pragma GCC visibility pop
