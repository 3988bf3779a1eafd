#include "memory.h"

#include "counting.h"

#include <algorithm>
#include <cstring>
#include <link.h>
#include <sys/mman.h>

namespace emulator::tracer {

std::vector<Array> arrays;
std::size_t operand_count;
std::uintptr_t arena;
std::size_t arena_bytes;
unsigned unit, unit_bits, finest;
std::uintptr_t shared_begin;
std::size_t shared_bytes, block_cells;
std::vector<Cell> shared_cells;
std::vector<std::int16_t> shared_owner;
std::vector<std::uint64_t> shared_array_begin, shared_array_bytes;
std::uintptr_t library_begin, library_end;
std::uint32_t poison;

namespace {

constexpr std::size_t element_alignment = 4096;  // cudaMalloc promises 256
std::vector<std::vector<char>> initial;          // what the variables hold before a run

void* reserve(std::size_t bytes)
{
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    madvise(memory, bytes, MADV_NOHUGEPAGE);  // little of it is ever touched
    return memory;
}

int find_library(dl_phdr_info* info, std::size_t, void*)
{
    std::uintptr_t begin = UINTPTR_MAX, end = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& segment = info->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD) continue;
        begin = std::min<std::uintptr_t>(begin, info->dlpi_addr + segment.p_vaddr);
        end = std::max<std::uintptr_t>(end, info->dlpi_addr + segment.p_vaddr + segment.p_memsz);
    }
    const auto here = reinterpret_cast<std::uintptr_t>(&find_library);
    if (here < begin || here >= end) return 0;
    library_begin = begin;
    library_end = end;
    return 1;
}

}  // namespace

void restore_variables()
{
    for (std::size_t k = operand_count; k < arrays.size(); ++k)
        std::copy(initial[k - operand_count].begin(), initial[k - operand_count].end(),
                  reinterpret_cast<char*>(arrays[k].begin));
}

}  // namespace emulator::tracer

using namespace emulator;
using namespace emulator::tracer;

/// Where `count` arrays of these sizes (bytes) are, zeroed, aligned, and with room around each: an index that is wrong
/// by up to 2^32 elements of 8 bytes is still in memory that is ours, and nearest to its own array. `written` says
/// which of them the host has filled; `unit_bytes`, 4 or 2, is the size of the smallest elements. Returns 0, or -1 if
/// there is not enough memory.
EMULATOR_EXPORT int tracer_allocate(int count, const std::uint64_t* bytes, const int* written, int unit_bytes,
                                    void** addresses)
{
    shared_begin = reinterpret_cast<std::uintptr_t>(window());
    dl_iterate_phdr(find_library, nullptr);
    forget_sites();
    unit = finest = unit_bytes;
    unit_bits = __builtin_ctz(unit);
    operand_count = count;
    char* memory = nullptr;
    std::size_t room;
    for (room = std::size_t(66) << 30; !memory && room > element_alignment; room /= 64) {
        arena_bytes = room;
        for (int k = 0; k < count; ++k) arena_bytes += room + element_alignment + bytes[k];
        memory = static_cast<char*>(reserve(arena_bytes));
        if (memory) break;
    }
    if (!memory) return -1;
    arena = reinterpret_cast<std::uintptr_t>(memory);
    std::uintptr_t begin = arena;
    for (int k = 0; k < count; ++k) {
        begin = (begin + room + element_alignment - 1) / element_alignment * element_alignment;
        auto* cells = static_cast<Cell*>(reserve(units(bytes[k]) * sizeof(Cell)));
        arrays.push_back({begin, bytes[k], cells, written[k] != 0});
        if (!cells) return -1;
        addresses[k] = reinterpret_cast<void*>(begin);
        begin += bytes[k];
    }
    return 0;
}

/// After tracer_allocate: the kernel's __device__ variables, at these offsets in the library. A launch finds in them
/// what the one before left there; each run begins with what they hold now.
EMULATOR_EXPORT int tracer_variables(int count, const std::uint64_t* offsets, const std::uint64_t* bytes)
{
    initial.clear();
    for (int k = 0; k < count; ++k) {
        auto* cells = static_cast<Cell*>(reserve(units(bytes[k]) * sizeof(Cell)));
        arrays.push_back({library_begin + offsets[k], bytes[k], cells, true});
        if (!cells) return -1;
        const char* begin = reinterpret_cast<const char*>(arrays.back().begin);
        initial.emplace_back(begin, begin + bytes[k]);
    }
    return 0;
}

/// Whether the last run left variable `k` other than it found it.
EMULATOR_EXPORT int tracer_changed(int k)
{
    return std::memcmp(initial[k].data(), reinterpret_cast<const void*>(arrays[operand_count + k].begin),
                       initial[k].size()) != 0;
}

/// The bytes of the smallest access that was smaller than a cell of the last run, or of a cell if there was none.
EMULATOR_EXPORT unsigned tracer_finest() { return finest; }

/// Gives the memory of tracer_allocate back.
EMULATOR_EXPORT void tracer_free()
{
    restore_variables();
    for (Array& array : arrays)
        if (array.cells) munmap(array.cells, units(array.bytes) * sizeof(Cell));
    arrays.clear();
    if (arena) munmap(reinterpret_cast<void*>(arena), arena_bytes);
    arena = 0;
}
