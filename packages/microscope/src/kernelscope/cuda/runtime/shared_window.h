// Shared memory: a window, as the device has it.
#pragma once

#include "runtime.h"

#pragma GCC visibility push(hidden)
namespace emulator {

// A GPU sees shared memory through a window of addresses whose begin is a multiple of any size of an array. On Hopper
// the system keeps its first 1,024 bytes. Around it is room for indices that are wrong.
constexpr std::size_t window_bytes = 1 << 20, window_alignment = std::size_t(1) << block_window_bits;
constexpr unsigned most_cluster_blocks = 256;  // that run together

/// Where the window of the first block that runs begins; those of the others follow, window_alignment bytes apart.
char* window();

extern char* elsewhere;  // stands for the library's TLS segment, for all that g++ keeps there beside shared arrays
extern std::size_t elsewhere_bytes;

}  // namespace emulator
#pragma GCC visibility pop
