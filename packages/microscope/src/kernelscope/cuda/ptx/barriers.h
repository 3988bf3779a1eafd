// Barriers in shared memory, as copies count at them.
#pragma once

#include "program.h"

#include <unordered_map>

namespace emulator::ptx {

struct MBarrier {
    std::uint32_t at;
    int expected = 0, pending = 0;
    std::int64_t bytes = 0;  // that are announced and have not come
    unsigned phase = 0;      // how many are over
    bool shown = false;      // to the units
    unsigned worker;         // what brings its bytes
    std::string made;        // where
    Known coming, known;     // of those who have arrived; of the phases that are over
};
extern std::unordered_map<std::uint32_t, MBarrier> barriers;  // by their numbers

MBarrier* barrier_at(std::uint32_t number, Frame& f, bool quietly = false);
/// Begins the next phase if nothing is missing.
void look(MBarrier& b);

}  // namespace emulator::ptx
