// An access: looked up in the arrays, counted, and compared with what the cells remember.
#pragma once

#include "../runtime/ends.h"
#include "counting.h"
#include "faults.h"

#pragma GCC visibility push(hidden)
namespace emulator::tracer {

extern bool watching;
extern bool unknown_is_fine;  // whether what no thread wrote may be read: a copy may bring what nobody uses
extern unsigned in_products;  // of the registers that products use, and of the threads that prepare them
extern bool stores_leave;     // whether copies are going to write global memory

// Remembers who read a unit: the last reader, and another one that nothing orders before the last.
inline void mark_read(Cell& cell, unsigned reader, unsigned site, Space space)
{
    if (space == global && cell.first_read_stamp < launch_start) {
        cell.first_read_stamp = clock_now;
        cell.first_reader = reader;
        cell.mark = 0;  // of an earlier launch
    }
    if (cell.reader != reader && (cell.read_stamp >= last_barrier || cluster_blocks > 1) &&
        at_the_same_time(cell.read_stamp, cell.reader, space)) {
        cell.second_read_stamp = cell.read_stamp;
        cell.second_reader = cell.reader;
        cell.second_read_site = cell.read_site;
    }
    cell.read_stamp = clock_now;
    cell.reader = reader;
    cell.read_site = site;
}

/// Looks the units of an access up in their cells and marks them. One fault per access is enough; true if there
/// is one.
bool examine(const Access& access, Cell* cell, unsigned site, bool initialised);
void start_covered();  // of a launch
/// Finds the array of an access to shared memory; reports it if it is in none. False also for what does not count.
bool find_shared(Access& access);
/// An access of 1, 2, 4, 8 or 16 bytes to what is not the thread's own; false if it is no place to touch.
template <unsigned size, bool write>
bool access_sized(std::uintptr_t at);

/// Says in which array of global memory an access lies, if in one.
inline void name_array(Access& access)
{
    const Array* const array = array_at(access.address);
    if (!array) return;
    access.array = array - arrays.data();
    access.begin = array->begin;
}

void report_below_frame(std::uintptr_t at, unsigned size, bool write);
void start_units();  // of a block
/// units.cpp: an access to a register that a product may use, now or next.
void examine_registers(std::uintptr_t at, unsigned size, bool write);
/// units.cpp: an access to global memory while copies are going to write there.
void examine_stores(const Access& access);
/// clusters.cpp: an access to the memory of another block.
void examine_remote(const Access& access);
void start_remote();  // of a cluster
void examine_ends();
/// updates.cpp: a strong access, before it is done. Whether a thread stores what it has made of an earlier load, though
/// another thread has stored there since: then that update is lost.
void examine_update(std::uintptr_t at, unsigned size, bool write, const watch::Strength& strength, const void* pc);
/// The last strong access is done.
void settle_update();
void start_updates();  // of a block

// Whether the address is in the thread's own arrays, most of which are registers on a GPU. What units do is no
// thread's.
[[gnu::always_inline]] inline bool is_own(std::uintptr_t at, unsigned size, bool write, const void* pc)
{
    last_access = reinterpret_cast<std::uintptr_t>(pc) - 1;
    if (__builtin_expect(out_of_time, false)) stop(End::time, last_access);
    if (!current || !on_stack(at) || at % size) return false;
    const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (__builtin_expect(at < frame, false)) report_below_frame(at, size, write);
    if (__builtin_expect(in_products != 0, false)) examine_registers(at, size, write);
    return true;
}

/// False if it is no place to touch: there is no such memory, or the GPU would refuse the address.
bool accessed(const void* address, unsigned size, bool write, const void* pc, watch::Strength strength = watch::weak);

/// The same of a size that the compiler knows.
template <unsigned size, bool write>
[[gnu::always_inline]] inline void accessed(const void* address, const void* pc)
{
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (!is_own(at, size, write, pc)) access_sized<size, write>(at);
}

}  // namespace emulator::tracer
#pragma GCC visibility pop
