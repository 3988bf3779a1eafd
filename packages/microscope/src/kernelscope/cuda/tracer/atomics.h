// The order that atomic operations and fences make between threads, and what such an order lacks.
#pragma once

#include "faults.h"

#pragma GCC visibility push(hidden)
namespace emulator::tracer {

/// The running thread comes to an atomic operation. What threads showed (__threadfence) before they came to one at this
/// address is known to those who come later: at once, or after a fence if the operation takes something.
void meet_at_atomic(std::uintptr_t at, bool write, watch::Strength strength, const void* pc);
/// All these threads have met: what one has taken and not yet learned, all have.
void share_what_is_taken(const std::vector<unsigned>& threads);
/// Why an atomic operation does not order two accesses, its instruction, and whether it takes something.
struct Unordered {
    Case which = Case::plain;
    std::uintptr_t pc = 0;
    bool takes = false;
};
/// The one at another address that should order what `worker` did here at that time before what the running thread
/// does now; Case::plain if there is none.
Unordered unordered_by_meeting(std::uintptr_t at, std::uint32_t stamp, unsigned worker);
/// The last atomic write to an address by another thread than the running one; null if there is none.
struct Writer {
    std::uint32_t stamp;
    unsigned thread;
    std::uintptr_t pc;
};
const Writer* other_writer(std::uintptr_t at);
void start_meetings_of_launch();
void start_meetings_of_block();

}  // namespace emulator::tracer
#pragma GCC visibility pop
