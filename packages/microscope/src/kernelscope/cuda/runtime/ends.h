// A kernel that cannot go on: no end, a division by zero, a stack that is full, an address that nobody has.
#pragma once

#include "runtime.h"

#pragma GCC visibility push(hidden)
namespace emulator {

// How a run ends. Python reads these names; it has the words for each.
#define EMULATOR_ENDS(end) \
    end(reached) end(time) end(division) end(stack) end(address) end(instruction) end(waits) end(never)
enum class End : std::int32_t { EMULATOR_ENDS(EMULATOR_LISTED) };

extern std::uintptr_t last_access;  // its instruction, if somebody watches
extern volatile bool out_of_time;

/// Gives up the launch in the middle of it, because of what the running thread does at `pc`, or, if that is 0, where it
/// waits; `address`: what was to be read or written.
void stop(End how, std::uintptr_t pc, std::uintptr_t address = 0);

/// From here to release_signals, what the CPU refuses and the end of the time come to `stop`.
void catch_signals();
void release_signals();

}  // namespace emulator
#pragma GCC visibility pop
