// The memory that is watched: arrays and variables in global memory, and the window of shared memory, with a cell for
// each unit of either.
#pragma once

#include "../runtime/scheduler.h"
#include "../runtime/shared_window.h"

#include <algorithm>

#pragma GCC visibility push(hidden)
namespace emulator::tracer {

enum Space { global, shared };

// What one unit of memory has seen. Stamps are times of the clock; 0 is never.
struct Cell {
    std::uint32_t write_stamp, read_stamp, second_read_stamp, first_read_stamp;
    std::uint16_t writer, reader, second_reader, write_site, read_site, second_read_site;
    union {
        std::uint16_t first_reader = 0;  // in global memory
        std::uint16_t coming;            // in shared memory: 1 + the instruction of a copy that is under way
    };
    // 1 + the instruction that made an mbarrier here; in global memory, that reads what nobody writes
    std::uint16_t mark;
};

struct Array {
    std::uintptr_t begin;
    std::uint64_t bytes;
    Cell* cells;
    bool written_by_host;
};

extern std::vector<Array> arrays;  // A, B, C, workspaces, and then the kernel's __device__ variables
extern std::size_t operand_count;  // those of them that lie in the arena
extern std::uintptr_t arena;       // holds them all, with room around each
extern std::size_t arena_bytes;
extern unsigned unit, unit_bits;                // bytes that share a cell: 4, 2 or 1; as a power of 2
extern unsigned finest;                         // the smallest access so far, if it is smaller than that
extern std::uintptr_t shared_begin;             // the window's
extern std::size_t shared_bytes;                // to the end of the last array
extern std::vector<Cell> shared_cells;          // of all blocks of the cluster
extern std::size_t block_cells;                 // of each of them
extern std::vector<std::int16_t> shared_owner;  // of each unit: the number of an array, or -1
extern std::vector<std::uint64_t> shared_array_begin, shared_array_bytes;
extern std::uintptr_t library_begin, library_end;
extern std::uint32_t poison;  // what shared memory holds before it is written, again and again

inline std::size_t units(std::size_t bytes) { return (bytes + unit - 1) >> unit_bits; }
inline std::size_t cell_at(std::size_t offset) { return offset >> unit_bits; }
inline std::uintptr_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

// Shared memory of all blocks of the cluster, each in a separate window.
inline std::uint64_t offset_at(std::uintptr_t address) { return (address - shared_begin) & (window_alignment - 1); }
inline unsigned rank_at(std::uintptr_t address) { return (address - shared_begin) >> block_window_bits; }
inline bool is_shared(std::uintptr_t address)
{
    return address - shared_begin < (cluster_blocks - 1) * window_alignment + window_bytes;
}
inline bool in_arrays(std::uintptr_t address) { return is_shared(address) && offset_at(address) < shared_bytes; }
inline Cell* shared_cell(std::uintptr_t address)
{
    return shared_cells.data() + rank_at(address) * block_cells + cell_at(offset_at(address));
}

/// The array in which an address lies, or null.
inline const Array* array_at(std::uintptr_t address)
{
    const auto holds = [&](const Array& array) { return address - array.begin < array.bytes; };
    const auto found = std::find_if(arrays.begin(), arrays.end(), holds);
    return found == arrays.end() ? nullptr : &*found;
}

/// The kernel's variables are again what they were before the first run.
void restore_variables();

}  // namespace emulator::tracer
#pragma GCC visibility pop
