// Each unit of memory has a cell that remembers who wrote and who read it last. Time is a clock that ticks at every
// barrier and every block: what happened since the last barrier of the block happened at the same time, and what
// another block of the launch did always did. What an earlier launch did happened before.
#include "accesses.h"
#include "races.h"

namespace emulator {
namespace tracer {

bool watching, unknown_is_fine;

namespace {

// A write to global memory that an atomic operation has followed, so that the cell no longer shows it: a thread's plain
// write before its own atomic operation, or another block's atomic operation.
struct Covered {
    std::uint32_t stamp;
    std::uint16_t writer, site;
};
std::unordered_map<const Cell*, Covered> covered;

void cover(const Access& access, const Cell& cell)
{
    if (!access.strength.exchange) {
        covered.erase(&cell);
        return;
    }
    const bool is_atomic = sites[cell.write_site].strength.strong;
    const bool is_of_block = cell.write_stamp >= block_start;
    if (is_atomic ? !is_of_block && at_the_same_time(cell.write_stamp, cell.writer, global)
                  : is_of_block && cell.writer == running)
        covered[&cell] = {cell.write_stamp, cell.writer, cell.write_site};
}

bool report_covered(const Access& access, const Cell& cell)
{
    const auto found = covered.find(&cell);
    if (found == covered.end()) return false;
    const auto [stamp, writer, site] = found->second;
    if (!at_the_same_time(stamp, writer, global)) return false;
    if (hold_for_each_other(access.strength, sites[site].strength, stamp, writer)) return false;
    // Whoever adds after others has seen their sums there, as with a ticket, unless a flag elsewhere came too early.
    const bool is_told_early = sites[site].unit && knows_of_block(stamp);
    if (sites[site].strength.strong && !is_told_early &&
        unordered_by_meeting(access.address, stamp, writer).which == Case::plain)
        return false;
    report_race(access, stamp, writer, sites[site], true);
    return true;
}

}  // namespace

void start_covered() { covered.clear(); }

// A write to what an mbarrier is made of, or to what the launch has read as if nobody wrote it. False if neither is so.
[[gnu::noinline, gnu::cold]] bool report_marked(const Access& access, Cell& cell, bool is_written)
{
    const bool is_live = access.space == shared ? is_written : cell.first_read_stamp >= launch_start;
    const unsigned site = std::exchange(cell.mark, 0) - 1;
    if (!is_live) return false;
    report_beside(Kind::race, access, Case::marked, sites[site].pc);
    return true;
}

bool examine(const Access& access, Cell* cell, unsigned site, bool initialised)
{
    Cell* const end = cell + units(access.size);
    bool faulty = false;
    if (is_undecided) decide();
    // Of accesses to less than a unit it is not known whether they touch the same bytes.
    const bool whole = access.size >= unit;
    if (!whole) finest = std::min(finest, access.size);
    for (; cell != end; ++cell) {
        const bool is_written = access.space == global ? cell->write_stamp != 0 : cell->write_stamp >= block_start;
        if (access.space == shared && cell->coming) {
            if (!faulty) report_beside(Kind::asynchrony, access, Case::plain, sites[cell->coming - 1].pc);
            faulty = true;
        }
        if ((!access.write || access.strength.exchange) && !is_written && !initialised && !unknown_is_fine) {
            if (!faulty) report_access(Kind::uninitialised, access);
            faulty = true;
        }
        if (is_written && whole && at_the_same_time(cell->write_stamp, cell->writer, access.space)) {
            const Site& other = sites[cell->write_site];
            if (!hold_for_each_other(access.strength, other.strength, cell->write_stamp, cell->writer)) {
                if (!faulty) report_race(access, cell->write_stamp, cell->writer, other, true);
                faulty = true;
            } else if (!access.strength.exchange && !other.strength.exchange) {
                remark_unordered(access, cell->write_stamp, cell->writer, other);
            }
        }
        if (!covered.empty() && whole && !faulty && access.space == global) faulty = report_covered(access, *cell);
        if (access.write) {
            if (access.space == global && is_written) cover(access, *cell);
            if (cell->mark && !faulty) faulty = report_marked(access, *cell, is_written);
            if (access.strength.takes && cell->reader == running && cell->read_stamp + 1 >= clock_now)
                sites[cell->read_site].guesses = true;
            std::uint32_t stamp = 0;
            unsigned reader = 0, read_site = cell->read_site;
            if (access.space == global && cell->first_read_stamp >= launch_start &&
                cell->first_read_stamp < block_start &&
                at_the_same_time(cell->first_read_stamp, cell->first_reader, global)) {
                stamp = cell->first_read_stamp;
                reader = cell->first_reader;
            } else if (cell->read_stamp && at_the_same_time(cell->read_stamp, cell->reader, access.space)) {
                stamp = cell->read_stamp;
                reader = cell->reader;
            } else if (cell->second_read_stamp &&
                       at_the_same_time(cell->second_read_stamp, cell->second_reader, access.space)) {
                stamp = cell->second_read_stamp;
                reader = cell->second_reader;
                read_site = cell->second_read_site;
            }
            if (stamp && whole && !faulty) {
                report_race(access, stamp, reader, sites[read_site], false);
                faulty = true;
            }
            cell->write_stamp = clock_now;
            cell->writer = running;
            cell->write_site = site;
        } else if (whole && !access.strength.strong && !sites[site].guesses) {  // two strong ones are no race
            mark_read(*cell, running, site, access.space);
        }
    }
    return faulty;
}

// Whether an access lies in one of the arrays from `first` on; then it is counted and examined.
[[gnu::always_inline]] inline bool access_array(Access& access, std::size_t first)
{
    for (std::size_t k = first; k < arrays.size(); ++k) {
        const Array& array = arrays[k];
        const std::uint64_t offset = access.address - array.begin;
        if (offset < array.bytes && offset + access.size <= array.bytes) {
            const unsigned site = site_at(access.pc, global, access.write, access.size);
            sites[site].strength = access.strength;
            if (counting) count(site, access.address);
            access.array = k;
            access.begin = array.begin;
            if (watching) examine(access, array.cells + cell_at(offset), site, array.written_by_host);
            if (__builtin_expect(stores_leave, false)) examine_stores(access);
            return true;
        }
    }
    return false;
}

[[gnu::always_inline]] inline void access_global(Access& access, bool& inside)
{
    inside = access_array(access, 0);
    if (inside) return;
    // Outside: named by the array in which it starts, or whose begin or end is nearest.
    std::uint64_t nearest = UINT64_MAX;
    for (std::size_t k = 0; k < operand_count; ++k) {
        const std::uint64_t begin = arrays[k].begin, end = begin + arrays[k].bytes;
        const std::uint64_t distance = access.address < begin  ? begin - access.address
                                       : access.address >= end ? access.address - end + 1
                                                               : 0;
        if (distance < nearest) {
            nearest = distance;
            access.array = k;
            access.begin = arrays[k].begin;
        }
    }
    report_access(Kind::out_of_bounds, access);
}

bool find_shared(Access& access)
{
    const std::uint64_t offset = offset_at(access.address);
    const std::uintptr_t window = access.address - offset;
    int owner = offset < shared_bytes ? shared_owner[cell_at(offset)] : -1;
    const std::uint64_t last = cell_at(offset + access.size - 1);
    const bool inside = owner >= 0 && last < shared_owner.size() && shared_owner[last] == owner;
    // Outside: named by the array that it starts in, or that ends or begins nearest to it.
    std::uint64_t nearest = UINT64_MAX;
    for (std::size_t k = 0; !inside && offset < window_alignment / 2 && k < shared_array_begin.size(); ++k) {
        const std::uint64_t begin = shared_array_begin[k], end = begin + shared_array_bytes[k];
        const std::uint64_t distance = offset < begin ? begin - offset : offset < end ? 0 : offset - end + 1;
        if (distance > nearest || (distance == nearest && begin < shared_array_begin[owner])) continue;
        nearest = distance;
        owner = k;
    }
    access.array = owner;
    access.begin = owner < 0 ? window : window + shared_array_begin[owner];
    if (!inside) report_access(Kind::out_of_bounds, access);
    return inside;
}

[[gnu::always_inline]] inline void access_shared(Access& access)
{
    if (!find_shared(access)) return;
    const bool own = cluster_blocks == 1 || rank_at(access.address) == rank_of(running);
    const unsigned site =
        own ? site_at(access.pc, shared, access.write, access.size) : remote_site(access.pc, access.write, access.size);
    sites[site].strength = access.strength;
    if (counting) count(site, access.address);
    if (watching) examine(access, shared_cell(access.address), site, false);
    if (watching && !own) examine_remote(access);
}

[[gnu::noinline, gnu::cold]] void access_elsewhere(Access access)
{
    const auto stack = reinterpret_cast<std::uintptr_t>(current->stack);
    if (access.address - stack < stack_bytes) return;
    if (access.address >= library_begin && access.address < library_end) {
        if (access_array(access, operand_count) || !access.write) return;
        Fault fault = fault_of(Kind::out_of_bounds, access);
        (thread_name(running) + " writes constant memory, or what is no variable of the kernel")
            .copy(fault.text, sizeof fault.text - 1);
        stopping = true;
        report(fault);
        return;
    }
    if (access.address - reinterpret_cast<std::uintptr_t>(elsewhere) < elsewhere_bytes) return;
    if (on_any_stack(access.address)) {
        Fault fault = fault_of(Kind::out_of_bounds, access);
        (thread_name(running) + (access.write ? " writes" : " reads") +
         " a local variable of another thread; on a GPU, the address refers to its own local memory; pass the value in "
         "shared memory instead")
            .copy(fault.text, sizeof fault.text - 1);
        stopping = true;
        report(fault);
        return;
    }
    if (shared_begin - access.address <= window_bytes ||
        access.address - shared_begin < cluster_blocks * window_alignment)
        access.space = shared;  // a negative index
    stopping = true;            // nothing of the kernel's is there: the access itself could crash
    report_access(Kind::out_of_bounds, access);
}

bool access_any(std::uintptr_t at, unsigned size, bool write, watch::Strength strength);

// A GPU takes a value of 2, 4, 8 or 16 bytes only from an address that its size divides.
[[gnu::noinline, gnu::cold]] void access_misaligned(Access access)
{
    name_array(access);
    if (is_shared(access.address)) {
        access.space = shared;
        const std::uint64_t offset = offset_at(access.address);
        if (offset < shared_bytes) access.array = shared_owner[cell_at(offset)];
        access.begin = access.array < 0 ? 0 : access.address - offset + shared_array_begin[access.array];
    }
    access.strength.stores = false;  // piece by piece
    stopping |= access.size > 8;     // the CPU's own wide loads might crash, too
    report_access(Kind::misaligned, access);
    const unsigned piece = (access.address | access.size) & -(access.address | access.size);
    for (unsigned offset = 0; offset < access.size; offset += piece)
        access_any(access.address + offset, piece, access.write, access.strength);
}

// Most of a kernel's accesses are to shared memory, and most of them reads of what threads of the block wrote before
// the last barrier. These two do in few instructions what access_any does. False if an access is another one: then
// nothing has been done.
[[gnu::always_inline]] inline bool count_quietly(std::uintptr_t at, unsigned size, bool write, std::uintptr_t pc)
{
    const std::uint64_t offset = at - shared_begin;
    if (offset >= shared_bytes || shared_bytes - offset < size || at % size || cluster_blocks > 1) return false;
    const std::int16_t* owner = shared_owner.data();
    const std::int16_t array = owner[cell_at(offset)];
    if (array < 0 || owner[cell_at(offset + size - 1)] != array) return false;
    count(site_at(pc, shared, write, size), at);
    return true;
}

[[gnu::always_inline]] inline bool read_quietly(std::uintptr_t at, unsigned size, std::uintptr_t pc)
{
    const std::uint64_t offset = at - shared_begin;
    if (offset >= shared_bytes || shared_bytes - offset < size || at % size || cluster_blocks > 1 || size < unit)
        return false;
    Cell* const first = shared_cells.data() + cell_at(offset);
    Cell* const end = first + (size >> unit_bits);
    const std::int16_t* owner = shared_owner.data() + cell_at(offset);
    const std::int16_t array = *owner;
    if (array < 0) return false;
    for (Cell* cell = first; cell != end; ++cell, ++owner)
        if (*owner != array || cell->coming || cell->write_stamp < block_start || cell->write_stamp >= last_barrier ||
            cell->writer >= wgmma_of_warp)
            return false;
    const unsigned site = site_at(pc, shared, false, size);
    if (counting) count(site, at);
    const bool knows_nobody = known[running].empty();
    for (Cell* cell = first; cell != end; ++cell) {
        if (cell->reader != running && cell->read_stamp >= last_barrier &&
            (knows_nobody || at_the_same_time(cell->read_stamp, cell->reader, shared))) {
            cell->second_read_stamp = cell->read_stamp;
            cell->second_reader = cell->reader;
            cell->second_read_site = cell->read_site;
        }
        cell->read_stamp = clock_now;
        cell->reader = running;
        cell->read_site = site;
    }
    return true;
}

[[gnu::noinline]] bool access_any(std::uintptr_t at, unsigned size, bool write, watch::Strength strength)
{
    Access access{at, size, write, last_access, global, -1, 0, strength};
    bool inside = true;
    if (at % size) {
        access_misaligned(access);
        inside = false;
    } else if (at - arena < arena_bytes) {
        access_global(access, inside);
    } else if (is_shared(at)) {
        access.space = shared;
        access_shared(access);
    } else {
        access_elsewhere(access);
    }
    return inside;
}

[[gnu::always_inline]] inline bool access_memory(std::uintptr_t at, unsigned size, bool write, watch::Strength strength)
{
    if (watching ? !write && !strength.strong && read_quietly(at, size, last_access)
                 : counting && count_quietly(at, size, write, last_access))
        return true;
    return access_any(at, size, write, strength);
}

// An access whose size the compiler knows.
template <unsigned size, bool write>
[[gnu::noinline]] bool access_sized(std::uintptr_t at)
{
    return access_memory(at, size, write, write ? watch::store : watch::weak);
}

// Below the frame of the function that is running there is no variable.
[[gnu::noinline, gnu::cold]] void report_below_frame(std::uintptr_t at, unsigned size, bool write)
{
    stopping |= write;
    report(fault_of(Kind::out_of_bounds, {at, size, write, last_access, shared, -1, at}, Case::below_frame));
}

bool accessed(const void* address, unsigned size, bool write, const void* pc, watch::Strength strength)
{
    const auto at = number_of(address);
    return is_own(at, size, write, pc) || access_memory(at, size, write, strength);
}

#define EMULATOR_SIZED(size)                                    \
    template bool access_sized<size, false>(std::uintptr_t at); \
    template bool access_sized<size, true>(std::uintptr_t at);
EMULATOR_SIZED(1)
EMULATOR_SIZED(2)
EMULATOR_SIZED(4)
EMULATOR_SIZED(8)
EMULATOR_SIZED(16)

}  // namespace tracer

namespace watch {

using namespace tracer;

bool accesses(const void* address, unsigned size, bool write, const void* pc)
{
    return accessed(address, size, write, pc);
}

bool uses(const void* address, unsigned bytes, bool write, const void* pc, Strength strength)
{
    const bool counts = counting;
    counting = false;
    unknown_is_fine = true;
    bool inside = true;
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (unsigned offset = 0; inside && offset < bytes;) {
        const auto rest = (at + offset) | (bytes - offset) | 16;
        const unsigned piece = rest & -rest;
        inside = accessed(static_cast<const char*>(address) + offset, piece, write, pc, strength);
        offset += piece;
    }
    unknown_is_fine = false;
    counting = counts;
    return inside;
}

void atomic(const void* address, unsigned size, bool write, const void* pc, Strength strength)
{
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (watching && !on_stack(at)) {
        examine_update(at, size, write, strength, pc);
        meet_at_atomic(at, write, strength, pc);
    }
    accessed(address, size, write, pc, strength);
}

void reads_only(const void* address, unsigned bytes, const void* pc)
{
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (const Array& array : arrays) {
        if (!watching || at - array.begin >= array.bytes || at - array.begin + bytes > array.bytes) continue;
        const Access access{
            at,         bytes, false, reinterpret_cast<std::uintptr_t>(pc) - 1, global, int(&array - arrays.data()),
            array.begin};
        const unsigned site = site_at(access.pc, global, false, bytes);
        Cell* const first = array.cells + cell_at(at - array.begin);
        for (Cell* cell = first; cell != first + units(bytes); ++cell) {
            if (cell->write_stamp >= launch_start) {
                report_beside(Kind::race, access, Case::read_only, sites[cell->write_site].pc);
                return;
            }
            if (cell->first_read_stamp < launch_start) {
                cell->first_read_stamp = clock_now;
                cell->first_reader = running;
            }
            cell->mark = site + 1;
        }
    }
}

}  // namespace watch
}  // namespace emulator
