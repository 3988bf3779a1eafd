// Asynchronous units: copies to shared and to global memory, TMA, and products of wgmma.
#include "accesses.h"
#include "races.h"

#include <map>
#include <utility>

namespace emulator {
namespace tracer {

unsigned in_products;
bool stores_leave;

namespace {

// Registers of products under way, which are going to write them, or read them: A's. Neighbours of one instruction are
// one entry.
struct Registers {
    std::uintptr_t begin, end;
    unsigned group;
    const void* pc;
    bool is_read;
};
std::vector<std::vector<Registers>> registers_of;  // of each thread

// What each thread does to its registers after its first wgmma.fence, by their distance from the top of its stack.
struct Touch {
    std::uintptr_t pc;
    unsigned fences;  // of the thread until then
    bool write;
};
constexpr std::uintptr_t register_bytes = 4;
struct Touched {
    unsigned fences = 0;
    std::vector<Touch> registers;
};
std::vector<Touched> touched;

std::size_t number_of_register(std::uintptr_t at)
{
    return (reinterpret_cast<std::uintptr_t>(current->stack) + stack_bytes - 1 - at) / register_bytes;
}

// Global memory that copies are going to write, by its begin.
struct Destination {
    std::uintptr_t end;
    const void* pc;
    bool adds;
};
std::multimap<std::uintptr_t, Destination> destinations;

// The first of them that has bytes of [begin, end), or null; two that add to one place are not in each other's way.
const Destination* leaving_for(std::uintptr_t begin, std::uintptr_t end, bool adds = false)
{
    for (auto each = destinations.lower_bound(end); each != destinations.begin();) {
        --each;
        if (begin >= each->first + shared_bytes) return nullptr;  // no copy is longer than its source
        if (begin < each->second.end && !(adds && each->second.adds)) return &each->second;
    }
    return nullptr;
}

unsigned asynchronous_site(const void* pc, bool write)
{
    const unsigned site = site_at(reinterpret_cast<std::uintptr_t>(pc) - 1, shared, write, 16);
    sites[site].unit = true;
    return site;
}

Access of_unit(const void* address, bool write, const void* pc)
{
    return {reinterpret_cast<std::uintptr_t>(address),
            unit,
            write,
            reinterpret_cast<std::uintptr_t>(pc) - 1,
            shared,
            -1,
            0};
}

// Whether a thread touched memory and no fence.proxy.async came since, its own or the running thread's: then no
// barrier orders that before what a unit of the other proxy does there now.
bool needs_proxy_fence(Space space, std::uint32_t stamp, unsigned thread, unsigned site)
{
    const auto& fenced = proxy_fenced[space];
    return stamp >= block_start && thread < wgmma_of_warp && (!sites[site].unit || sites[site].generic) &&
           fenced[thread] < stamp && fenced[running] <= stamp;
}

void report_unfenced(Kind kind, const Access& access, bool other_write, unsigned thread, unsigned site)
{
    Fault fault = fault_of(kind, access, Case::no_proxy_fence);
    fault.other_pc = sites[site].pc - library_begin;
    fault.other_thread = in_words(thread);
    fault.other_write = other_write;
    report(fault);
}

// Remarks on what a unit overwrites if a thread has read or written it, and no fence has shown that.
bool reuses_unfenced(const Access& access, const Cell& cell)
{
    const bool is_read = needs_proxy_fence(shared, cell.read_stamp, cell.reader, cell.read_site);
    if (!is_read && !needs_proxy_fence(shared, cell.write_stamp, cell.writer, cell.write_site)) return false;
    report_unfenced(Kind::unfenced_reuse, access, !is_read, is_read ? cell.reader : cell.writer,
                    is_read ? cell.read_site : cell.write_site);
    return true;
}

// Calls f(cell, address) for each unit of bytes in one of the arrays of global memory.
template <typename F>
void for_cells(const void* begin, unsigned bytes, F&& f)
{
    const std::uintptr_t at = number_of(begin);
    const Array* const array = array_at(at);
    for (std::size_t offset = 0; watching && array && offset < bytes; offset += unit)
        f(array->cells[cell_at(at - array->begin + offset)], at + offset);
}

Access of_unit_in_global(const void* address, bool write, const void* pc)
{
    Access access = of_unit(address, write, pc);
    access.space = global;
    name_array(access);
    return access;
}

// What a unit reads of global memory, or adds to: threads of the block may have written it.
void examine_unfenced(const void* from, unsigned bytes, const void* pc)
{
    bool faulty = false;
    for_cells(from, bytes, [&](const Cell& cell, std::uintptr_t at) {
        if (faulty || !needs_proxy_fence(global, cell.write_stamp, cell.writer, cell.write_site)) return;
        const Access access = of_unit_in_global(reinterpret_cast<void*>(at), false, pc);
        report_unfenced(Kind::asynchrony, access, true, cell.writer, cell.write_site);
        faulty = true;
    });
}

}  // namespace

void start_units()
{
    registers_of.assign(wgmma_of_warp, {});
    touched.assign(wgmma_of_warp, {});
    in_products = 0;
    destinations.clear();
    stores_leave = false;
}

[[gnu::noinline]] void examine_registers(std::uintptr_t at, unsigned size, bool write)
{
    for (const Registers& used : registers_of[running]) {
        if (at + size <= used.begin || at >= used.end || (used.is_read && !write)) continue;
        const Access access{at, size, write, last_access, shared, -1, at};
        return report_beside(Kind::asynchrony, access, used.is_read ? Case::fragment : Case::sum,
                             number_of(used.pc) - 1);
    }
    auto& [fences, registers] = touched[running];
    const std::size_t first = number_of_register(at + size - 1), last = number_of_register(at);
    if (!fences) return;
    if (last >= registers.size()) registers.resize(last + 64);
    for (std::size_t k = first; k <= last; ++k)
        if (Touch& touch = registers[k]; write || !touch.write || touch.fences != fences)
            touch = {last_access, fences, write};
}

[[gnu::noinline]] void examine_stores(const Access& access)
{
    if (const Destination* const to = leaving_for(access.address, access.address + access.size))
        report_beside(Kind::asynchrony, access, Case::destination, number_of(to->pc) - 1);
}

}  // namespace tracer

namespace watch {

using namespace tracer;

void registers_fenced()
{
    if (!watching) return;
    in_products += !touched[running].fences++;
}

void product_begins(const void* address, unsigned bytes, unsigned group, const void* pc, bool is_read)
{
    if (!watching || !address) return;
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    auto& own = registers_of[running];
    const auto same = std::find_if(own.begin(), own.end(), [&](const Registers& r) {
        return r.pc == pc && r.group == group && r.is_read == is_read && at >= r.begin && at <= r.end;
    });
    if (same == own.end()) {
        own.push_back({at, at + bytes, group, pc, is_read});
        ++in_products;
    } else {
        same->end = std::max(same->end, at + bytes);
    }
    const auto& [fences, registers] = touched[running];
    const std::size_t number = number_of_register(at);
    if (!on_stack(at) || number >= registers.size()) return;
    if (const Touch& touch = registers[number]; touch.fences == fences && (touch.write || !is_read)) {
        const Access access{at, bytes, touch.write, touch.pc, shared, -1, at};
        report_beside(Kind::asynchrony, access, Case::unfenced_register, number_of(pc) - 1);
    }
}

void products_end(unsigned end)
{
    if (!watching) return;
    auto& own = registers_of[running];
    const auto rest = std::remove_if(own.begin(), own.end(), [&](const Registers& r) { return r.group < end; });
    in_products -= own.end() - rest;
    own.erase(rest, own.end());
}

void guard(const void* address, unsigned bytes, const void* pc)
{
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (!watching || !in_arrays(at)) return;
    const unsigned mark = pc ? asynchronous_site(pc, true) + 1 : 0;
    for (Cell* cell = shared_cell(at); cell != shared_cell(at) + units(bytes); ++cell) cell->mark = mark;
}

void copy_begins(const void* to, unsigned bytes, const void* pc, bool by_unit)
{
    const unsigned site = asynchronous_site(pc, true);
    if (!by_unit) {
        sites[site].generic = true;
        sites[site].size = bytes;
        if (counting) count(site, reinterpret_cast<std::uintptr_t>(to));
    }
    if (!watching) return;
    const char* at = static_cast<const char*>(to);
    bool faulty = false, remarked = !by_unit;
    for (unsigned offset = 0; offset < bytes; offset += unit) {
        Access access = of_unit(at + offset, true, pc);
        if (!in_arrays(access.address)) {
            access.size = bytes;
            stopping = true;
            report_access(Kind::out_of_bounds, access);
            return;
        }
        if (!find_shared(access)) return;
        Cell* cell = shared_cell(access.address);
        const Cell before = *cell;
        if (!faulty) faulty = examine(access, cell, site, false);
        if (!faulty && !remarked) remarked = reuses_unfenced(access, before);
        cell->write_stamp = before.write_stamp;
        cell->writer = before.writer;
        cell->write_site = before.write_site;
        cell->coming = site + 1;
    }
}

void copy_ends(const void* to, unsigned bytes, unsigned worker)
{
    if (!watching) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(to);
    for (std::uintptr_t at = begin; at < begin + bytes && in_arrays(at); at += unit) {
        Cell& cell = *shared_cell(at);
        if (!cell.coming) continue;
        cell.write_stamp = clock_now;
        cell.writer = worker;
        cell.write_site = cell.coming - 1;
        cell.coming = 0;
    }
}

void unit_reads(const void* from, unsigned bytes, const void* pc, unsigned worker)
{
    if (!watching) return;
    const unsigned site = asynchronous_site(pc, false);
    const char* at = static_cast<const char*>(from);
    bool faulty = false;
    for (unsigned offset = 0; offset < bytes && !faulty; offset += unit) {
        Access access = of_unit(at + offset, false, pc);
        if (!in_arrays(access.address) || !find_shared(access)) return;
        Cell& cell = *shared_cell(access.address);
        faulty = true;
        if (cell.coming) {
            report_beside(Kind::asynchrony, access, Case::plain, sites[cell.coming - 1].pc);
        } else if (cell.write_stamp < block_start) {
            report_access(Kind::uninitialised, access);
        } else if (at_the_same_time(cell.write_stamp, cell.writer, shared)) {
            report_race(access, cell.write_stamp, cell.writer, sites[cell.write_site], true);
        } else if (needs_proxy_fence(shared, cell.write_stamp, cell.writer, cell.write_site)) {
            report_unfenced(Kind::asynchrony, access, true, cell.writer, cell.write_site);
        } else {
            faulty = false;
        }
        mark_read(cell, worker, site, shared);
    }
}

bool unit_loads(const void* from, unsigned bytes, const void* pc, unsigned worker)
{
    if (!uses(from, bytes, false, pc)) return false;
    examine_unfenced(from, bytes, pc);
    for_cells(from, bytes, [&](Cell& cell, std::uintptr_t) { mark_read(cell, worker, cell.read_site, global); });
    return true;
}

void store_begins(const void* to, unsigned bytes, const void* pc, bool adds)
{
    if (!watching || !bytes) return;
    const std::uintptr_t begin = number_of(to), end = begin + bytes;
    if (const Destination* const other = leaving_for(begin, end, adds))
        report_beside(Kind::asynchrony, of_unit_in_global(to, true, pc), Case::destination, number_of(other->pc) - 1);
    if (adds) examine_unfenced(to, bytes, pc);
    destinations.insert({begin, {end, pc, adds}});
    stores_leave = true;
}

bool unit_writes(const void* to, unsigned bytes, const void* pc, bool adds)
{
    stores_leave = false;  // this is one of them
    const bool inside = uses(to, bytes, true, pc, adds ? exchange : weak);
    stores_leave = !destinations.empty();
    if (inside) for_cells(to, bytes, [](const Cell& cell, std::uintptr_t) { sites[cell.write_site].unit = true; });
    return inside;
}

void store_ends(const void* to, unsigned bytes, const void* pc, unsigned thread)
{
    const auto [first, last] = destinations.equal_range(number_of(to));
    const auto own = std::find_if(first, last, [&](const auto& entry) {
        return entry.second.pc == pc && entry.second.end == entry.first + bytes;
    });
    if (own != last) destinations.erase(own);
    stores_leave = !destinations.empty();
    // It is there only now: who was told of it before does not know.
    ++clock_now;
    for_cells(to, bytes, [thread](Cell& cell, std::uintptr_t) {
        if (cell.write_stamp >= block_start && cell.writer == thread && sites[cell.write_site].unit)
            cell.write_stamp = clock_now;
    });
}

}  // namespace watch
}  // namespace emulator
