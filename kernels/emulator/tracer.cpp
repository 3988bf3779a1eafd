// The memory microscope: watches every access of a kernel to global and shared memory, counts what the hardware would
// move for it, and finds what must not be.
//
// A kernel compiled with -fsanitize=thread calls __tsan_read4(address) and its like before each access. Here they are
// ours instead of libtsan's. The return address of the call names the instruction.
//
// Counting. The lanes of a warp that execute the same instruction for the same time since the last barrier make one
// request. It moves the distinct 32-byte sectors that it touches, or, in shared memory, takes as many wavefronts as the
// busiest bank has distinct words. Requests are kept for one warp between two barriers, then counted and forgotten.
//
// Faults. Each 4-byte word has a cell that remembers who wrote and who read it last; if an array has elements of 2
// bytes, a cell is for 2. Time is a clock that ticks at every barrier and every block: what happened since the last
// barrier of the block happened at the same time, and what another block of the launch did always did. What an earlier
// launch did happened before.
#define EMULATOR_OBSERVED
#include "cuda_emulator.h"

namespace emulator {
namespace {
struct Observer {
    static void block_starts();
    static void thread_runs(unsigned thread);
    static void thread_ends(unsigned thread);
    template <typename Fibers>
    static void barrier_releases(const Fibers& fibers);
    static void warp_goes_on();
    static void block_ends();
};
}  // namespace
}  // namespace emulator

#include "cuda_emulator.cpp"

#include <cstring>
#include <link.h>
#include <unordered_map>

namespace emulator {
namespace {

enum Space { global, shared };

// ---- What Python reads ----------------------------------------------------------------------------------------------

// What a fault can be. Python reads these names; it has the words for each.
#define EMULATOR_KINDS(kind) \
    kind(race) kind(out_of_bounds) kind(uninitialised) kind(divergence) kind(misaligned) kind(asynchrony) \
    kind(deadlock) kind(trap) kind(ended)
enum class Kind : std::int32_t { EMULATOR_KINDS(EMULATOR_LISTED) };

struct Traffic {
    // units: sectors of global, wavefronts of shared memory; more: cache lines of global, bank conflicts of shared memory
    std::uint64_t requests, units, more, bytes;
};

struct Fault {
    Kind kind;
    std::int32_t space, write, other_write;
    std::int32_t size, array, launch;     // bytes of the access; its array, or -1; number of the launch
    std::int64_t offset;                  // bytes from the array's begin, or the index of an array expression
    std::uint64_t address;
    std::uint64_t pc, other_pc;           // from the library's begin; 0 if file and line are known
    const char *file, *type;
    std::int32_t line, other_line;
    std::uint32_t block[3], other_block[3], home[3], thread, other_thread;  // home: the block whose shared memory it is
    std::uint64_t count;
    char text[1200];  // what happened, if it is said here
};

struct Counts {
    Traffic space[2][2];    // [space][write]
    Traffic way[plain][2];  // [way][write]
} traffic;
std::vector<Fault> faults;
bool counting, watching, stopping;
bool unknown_is_fine;  // whether what no thread wrote may be read: a copy may bring what nobody uses
std::uint32_t poison;  // what shared memory holds before it is written, again and again

// ---- Memory ---------------------------------------------------------------------------------------------------------

// What one unit of memory has seen. Stamps are times of the clock; 0 is never.
struct Cell {
    std::uint32_t write_stamp, read_stamp, second_read_stamp, first_read_stamp;
    std::uint16_t writer, first_reader, reader, second_reader, write_site, read_site;
    std::uint16_t coming;  // 1 + the instruction of a copy that is under way
    std::uint16_t mark;    // 1 + the instruction that made an mbarrier here; in global memory, that reads what nobody writes
};

struct Array {
    std::uintptr_t begin;
    std::uint64_t bytes;
    Cell* cells;
    bool written_by_host;
};

constexpr std::size_t element_alignment = 4096;  // cudaMalloc promises 256
std::vector<Array> arrays;                       // A, B, C, workspaces, and then the kernel's __device__ variables
std::size_t operand_count;                       // those of them that lie in the arena
std::vector<std::vector<char>> initial;          // what the variables hold before a run
std::uintptr_t arena;                            // holds them all, with room around each
std::size_t arena_bytes;
unsigned unit, unit_bits;                        // bytes that share a cell: 4, 2 or 1; as a power of 2
unsigned finest;                                 // the smallest access so far, if it is smaller than that
std::uintptr_t shared_begin;                     // the window's
std::size_t shared_bytes;                        // to the end of the last array
std::vector<Cell> shared_cells;                  // of all blocks of the cluster
std::size_t block_cells;                         // of each of them
std::vector<std::int16_t> shared_owner;          // of each unit: the number of an array, or -1
std::vector<std::uint64_t> shared_array_begin, shared_array_bytes;
std::uintptr_t library_begin, library_end;

void* reserve(std::size_t bytes)
{
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    madvise(memory, bytes, MADV_NOHUGEPAGE);  // little of it is ever touched
    return memory;
}

std::size_t units(std::size_t bytes) { return (bytes + unit - 1) >> unit_bits; }
std::size_t cell_at(std::size_t offset) { return offset >> unit_bits; }

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

// ---- Time -----------------------------------------------------------------------------------------------------------

std::uint32_t clock_now, launch_start, block_start;  // of the clock; all blocks of a cluster start together
std::uint32_t last_barrier;                          // of the running thread's block
std::vector<std::uint32_t> last_barriers;            // of each block of the cluster
int launches;                                        // those that have begun
std::vector<Known> known;                            // of each thread: what it learned since the last barrier
// When each thread last showed its writes: to its block, to the device, to the units.
std::vector<std::uint32_t> fenced_in_block, fenced, proxy_fenced;
// What threads know of blocks that ran before: by a block's start, up to when.
using KnownBlocks = std::unordered_map<std::uint32_t, std::uint32_t>;
std::vector<KnownBlocks> known_blocks;               // of each thread
bool knows_blocks;                                   // whether any of them knows one
std::vector<std::pair<std::uint32_t, uint3>> block_starts;
unsigned running;                                    // thread
std::vector<int> last_ended;                         // thread of each block of the cluster, or -1

unsigned rank_of(unsigned thread) { return thread / slots_of_block; }

void take(Known& to, const Known& from)
{
    if (to.size() < from.size()) to.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}

void take(KnownBlocks& to, const KnownBlocks& from)
{
    for (auto [start, until] : from) to[start] = std::max(to[start], until);
}

// Whether nothing orders what `thread` (or a unit) did at that time and what the running thread does now.
bool at_the_same_time(std::uint32_t stamp, unsigned thread, Space space)
{
    if (stamp < block_start) {
        if (space != global || stamp < launch_start) return false;
        if (!knows_blocks) return true;
        auto after = std::upper_bound(block_starts.begin(), block_starts.end(), stamp,
                                      [](std::uint32_t s, const auto& start) { return s < start.first; });
        auto found = known_blocks[running].find((after - 1)->first);
        return found == known_blocks[running].end() || stamp > found->second;
    }
    // A barrier of the block tells what its threads did, but of others and of units no more than one of them knew.
    if (thread == running) return false;
    if (stamp < last_barrier && thread < wgmma_of_warp && (cluster_blocks == 1 || rank_of(thread) == rank_of(running)))
        return false;
    const Known& row = known[running];
    return row.size() <= thread || row[thread] < stamp;
}

uint3 block_at(std::uint32_t stamp, unsigned thread)
{
    const unsigned rank = thread < wgmma_of_warp ? rank_of(thread) : 0;
    if (stamp >= block_start) return cluster_index[rank];
    auto after = std::upper_bound(block_starts.begin(), block_starts.end(), stamp,
                                  [](std::uint32_t s, const auto& start) { return s < start.first; });
    const uint3 first = (after - 1)->second, own = cluster_index[0], it = cluster_index[rank];
    return {first.x + it.x - own.x, first.y + it.y - own.y, first.z + it.z - own.z};
}

// ---- Faults ---------------------------------------------------------------------------------------------------------

void set_block(std::uint32_t (&numbers)[3], const uint3& block)
{
    numbers[0] = block.x;
    numbers[1] = block.y;
    numbers[2] = block.z;
}

// The number by which Python names a worker: of a thread in its block; of units as in a block of 1024 threads.
unsigned in_words(unsigned worker)
{
    if (worker < wgmma_of_warp) return worker % slots_of_block;
    if (worker < copies_of_barrier) return 1024 + (worker - wgmma_of_warp) % (slots_of_block / 32);
    return 1024 + 32 + (worker - copies_of_barrier);
}

Fault new_fault(Kind kind)
{
    Fault fault{};
    fault.kind = kind;
    fault.array = -1;
    fault.launch = launches - 1;
    set_block(fault.block, blockIdx);
    set_block(fault.other_block, blockIdx);
    set_block(fault.home, blockIdx);
    fault.thread = in_words(running);
    fault.count = 1;
    return fault;
}

void report(const Fault& fault)
{
    auto same = std::find_if(faults.begin(), faults.end(), [&](const Fault& f) {
        return f.kind == fault.kind && f.pc == fault.pc && f.line == fault.line && f.space == fault.space;
    });
    if (same != faults.end())
        ++same->count;
    else
        faults.push_back(fault);
    if (stopping && fault.kind != Kind::ended) abandon();
}

// ---- Counting -------------------------------------------------------------------------------------------------------

struct Request {
    std::uint32_t lanes = 0;
    std::uintptr_t address[32];
};

struct Site {  // an instruction, in one of the spaces
    std::uintptr_t pc;
    Space space;
    bool write;
    unsigned size;
    std::vector<Request> requests;  // one for each time since the last barrier
    unsigned used;
    bool atomic, unit;              // unit: what works beside the threads does it
    Way way = plain;
};

std::vector<Site> sites;
std::vector<std::uint16_t> site_numbers[3];  // by pc - library_begin; 0: none yet. The last are of other blocks' memory
Way way = plain;                             // of what the running thread does
std::vector<unsigned> occurrences;           // of each site, for the running thread since the last barrier
unsigned counted_warp;

template <typename T>
unsigned sort_unique(T* items, unsigned count)
{
    if (!std::is_sorted(items, items + count)) std::sort(items, items + count);
    return std::unique(items, items + count) - items;
}

// The 32-byte sectors and the 128-byte lines that a request to global memory touches.
void add_sectors(Traffic& to, const Request& request, unsigned size)
{
    std::uintptr_t sectors[64];
    unsigned count = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
        if (!(request.lanes >> lane & 1)) continue;
        const std::uintptr_t first = request.address[lane] / 32, last = (request.address[lane] + size - 1) / 32;
        sectors[count++] = first;
        if (last != first) sectors[count++] = last;
    }
    count = sort_unique(sectors, count);
    to.units += count;
    for (unsigned i = 0; i < count; ++i) to.more += i == 0 || sectors[i] / 4 != sectors[i - 1] / 4;
}

// Whether each lane has the address of the lane whose number differs by `distance`, if both are active.
bool pairs_agree(const Request& request, unsigned distance)
{
    for (unsigned lane = 0; lane < 32; ++lane) {
        const unsigned other = lane ^ distance;
        const bool both = request.lanes >> lane & request.lanes >> other & 1;
        if (both && request.address[lane] != request.address[other]) return false;
    }
    return true;
}

struct Wavefronts {
    unsigned needed, fewest;  // fewest: had no bank two words to give
};

// The wavefronts of a request to shared memory that is served to this many lanes at a time.
Wavefronts wavefronts_of(const Request& request, unsigned size, unsigned lanes)
{
    Wavefronts all{0, 0};
    for (unsigned first = 0; first < 32; first += lanes) {
        std::uintptr_t words[128], lowest = UINTPTR_MAX, highest = 0;
        const auto each = [&](auto&& see) {
            for (unsigned lane = first; lane < first + lanes; ++lane)
                if (request.lanes >> lane & 1) see(request.address[lane] / 4, (request.address[lane] + size - 1) / 4);
        };
        each([&](std::uintptr_t begin, std::uintptr_t last) {
            lowest = std::min(lowest, begin);
            highest = std::max(highest, last);
        });
        if (lowest > highest) continue;
        ++all.fewest;
        if (highest - lowest < 32) {  // as most are: each word has a bank of its own
            ++all.needed;
            continue;
        }
        unsigned count = 0, in_bank[32] = {}, busiest = 0;
        each([&](std::uintptr_t begin, std::uintptr_t last) {
            while (begin <= last) words[count++] = begin++;
        });
        count = sort_unique(words, count);
        for (unsigned i = 0; i < count; ++i) busiest = std::max(busiest, ++in_bank[words[i] % 32]);
        all.needed += busiest;
    }
    return all;
}

// What returns in a cycle is 128 bytes, so wide accesses are served to a half-warp (8 bytes) or a quarter-warp (16
// bytes) at a time; or to twice as many lanes, where neighbours, or neighbours but one, read the same
// (forums.developer.nvidia.com/t/unexpected-shared-memory-bank-conflict/77228).
void add_wavefronts(Traffic& to, const Request& request, unsigned size)
{
    const unsigned lanes = size <= 4 ? 32 : size <= 8 ? 16 : 8;
    Wavefronts wavefronts = wavefronts_of(request, size, lanes);
    if (lanes < 32 && wavefronts.needed > 1 && (pairs_agree(request, 1) || pairs_agree(request, 2))) {
        const Wavefronts wider = wavefronts_of(request, size, 2 * lanes);
        if (wider.needed < wavefronts.needed) wavefronts = wider;
    }
    to.units += wavefronts.needed;
    to.more += wavefronts.needed - wavefronts.fewest;
}

void count_requests()
{
    for (Site& site : sites) {
        Traffic& of_space = traffic.space[site.space][site.write];
        Traffic& to = site.way == to_block ? traffic.way[to_block][site.write] : of_space;
        const Traffic before = to;
        for (unsigned i = 0; i < site.used; ++i) {
            Request& request = site.requests[i];
            if (site.space == global || site.way == to_block)
                add_sectors(to, request, site.size);
            else
                add_wavefronts(to, request, site.size);
            ++to.requests;
            to.bytes += __builtin_popcount(request.lanes) * site.size;
            request.lanes = 0;
        }
        if (site.way == by_copy || site.way == by_matrix) {
            Traffic& of_way = traffic.way[site.way][site.write];
            of_way.requests += to.requests - before.requests;
            of_way.units += to.units - before.units;
            of_way.bytes += to.bytes - before.bytes;
        }
        site.used = 0;
    }
}

[[gnu::noinline, gnu::cold]] std::uint16_t new_site(std::uintptr_t pc, Space space, bool write, unsigned size)
{
    sites.push_back({pc, space, write, size, {}, 0, false, false, plain});
    occurrences.push_back(0);
    return sites.size();
}

inline unsigned site_at(std::uintptr_t pc, Space space, bool write, unsigned size)
{
    std::uint16_t& number = site_numbers[space][pc - library_begin];
    if (!number) number = new_site(pc, space, write, size);
    return number - 1;
}

// The same instruction when it goes to the memory of another block of the cluster.
[[gnu::noinline]] unsigned remote_site(std::uintptr_t pc, bool write, unsigned size)
{
    std::uint16_t& number = site_numbers[2][pc - library_begin];
    if (!number) {
        number = new_site(pc, shared, write, size);
        sites[number - 1].way = to_block;
    }
    return number - 1;
}

inline void count(unsigned number, std::uintptr_t address)
{
    Site& site = sites[number];
    if (way != plain) site.way = way;
    const unsigned occurrence = occurrences[number]++;
    if (occurrence >= site.used) {
        site.used = occurrence + 1;
        if (site.requests.size() < site.used) site.requests.resize(std::max(16u, 2 * site.used));
    }
    Request& request = site.requests[occurrence];
    request.lanes |= 1u << running % 32;
    request.address[running % 32] = address;
}

// ---- An access ------------------------------------------------------------------------------------------------------

// Shared memory of all blocks of the cluster, each in a window of its own.
std::uint64_t offset_at(std::uintptr_t address) { return (address - shared_begin) & (window_alignment - 1); }
unsigned rank_at(std::uintptr_t address) { return (address - shared_begin) >> block_window_bits; }
bool is_shared(std::uintptr_t address)
{
    return address - shared_begin < (cluster_blocks - 1) * window_alignment + window_bytes;
}
bool in_arrays(std::uintptr_t address) { return is_shared(address) && offset_at(address) < shared_bytes; }
Cell* shared_cell(std::uintptr_t address)
{
    return shared_cells.data() + rank_at(address) * block_cells + cell_at(offset_at(address));
}

struct Access {
    std::uintptr_t address;
    unsigned size;
    bool write;
    std::uintptr_t pc;
    Space space;
    int array;  // or -1
    std::uint64_t begin;
    bool atomic = false, inside = false;
};

Fault fault_of(Kind kind, const Access& access)
{
    Fault fault = new_fault(kind);
    fault.space = access.space;
    fault.write = access.write;
    fault.size = access.size;
    fault.array = access.array;
    fault.address = access.address;
    fault.offset = access.address - access.begin;
    fault.pc = access.pc - library_begin;
    if (access.space == shared) set_block(fault.home, cluster_index[std::min(rank_at(access.address), cluster_blocks - 1)]);
    return fault;
}

[[gnu::noinline, gnu::cold]] void report_access(Kind kind, const Access& access, std::uint32_t stamp = 0,
                                                unsigned thread = 0, unsigned site = 0, bool write = false)
{
    Fault fault = fault_of(kind, access);
    if (kind == Kind::race) {
        if (stamp < block_start || thread < wgmma_of_warp) set_block(fault.other_block, block_at(stamp, thread));
        fault.other_thread = in_words(thread);
        fault.other_write = write;
        fault.other_pc = sites[site].pc - library_begin;
    }
    report(fault);
}

[[gnu::noinline, gnu::cold]] void report_under_way(const Access& access, unsigned coming)
{
    Fault fault = fault_of(Kind::asynchrony, access);
    fault.other_pc = sites[coming - 1].pc - library_begin;
    report(fault);
}

// Remembers who read a unit: the last reader, and another one that nothing orders before the last.
inline void mark_read(Cell& cell, unsigned reader, unsigned site, Space space)
{
    if (cell.first_read_stamp < launch_start) {
        cell.first_read_stamp = clock_now;
        cell.first_reader = reader;
        if (space == global) cell.mark = 0;  // of an earlier launch
    }
    if (cell.reader != reader && (cell.read_stamp >= last_barrier || cluster_blocks > 1) && at_the_same_time(cell.read_stamp, cell.reader, space)) {
        cell.second_read_stamp = cell.read_stamp;
        cell.second_reader = cell.reader;
    }
    cell.read_stamp = clock_now;
    cell.reader = reader;
    cell.read_site = site;
}

// A write to what an mbarrier is made of, or to what the launch has read as if nobody wrote it. False if neither is so.
[[gnu::noinline, gnu::cold]] bool report_marked(const Access& access, Cell& cell, bool is_written)
{
    const bool is_live = access.space == shared ? is_written : cell.first_read_stamp >= launch_start;
    const unsigned site = std::exchange(cell.mark, 0) - 1;
    if (!is_live) return false;
    Fault fault = fault_of(Kind::race, access);
    fault.other_pc = sites[site].pc - library_begin;
    fault.other_write = 4;
    report(fault);
    return true;
}

// Looks the units of an access up in their cells and marks them. One fault per access is enough.
inline void examine(const Access& access, Cell* cell, unsigned site, bool initialised)
{
    Cell* const end = cell + units(access.size);
    bool faulty = false;
    // Of accesses to less than a unit it is not known whether they touch the same bytes.
    const bool whole = access.size >= unit;
    if (!whole) finest = std::min(finest, access.size);
    for (; cell != end; ++cell) {
        const bool is_written = access.space == global ? cell->write_stamp != 0 : cell->write_stamp >= block_start;
        if (access.space == shared && cell->coming) {
            if (!faulty) report_under_way(access, cell->coming);
            faulty = true;
        }
        if ((!access.write || access.atomic) && !is_written && !initialised && !unknown_is_fine) {
            if (!faulty) report_access(Kind::uninitialised, access);
            faulty = true;
        }
        if (is_written && whole && !(access.atomic && sites[cell->write_site].atomic) &&
            at_the_same_time(cell->write_stamp, cell->writer, access.space)) {
            if (!faulty) report_access(Kind::race, access, cell->write_stamp, cell->writer, cell->write_site, true);
            faulty = true;
        }
        if (access.write) {
            if (cell->mark && !faulty) faulty = report_marked(access, *cell, is_written);
            std::uint32_t stamp = 0;
            unsigned reader = 0;
            if (access.space == global && cell->first_read_stamp >= launch_start && cell->first_read_stamp < block_start &&
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
            }
            if (stamp && whole && !faulty) {
                report_access(Kind::race, access, stamp, reader, cell->read_site, false);
                faulty = true;
            }
            cell->write_stamp = clock_now;
            cell->writer = running;
            cell->write_site = site;
        } else if (whole && !access.atomic) {  // a strong read and a strong write are no race
            mark_read(*cell, running, site, access.space);
        }
    }
}

// Whether an access lies in one of the arrays from `first` on; then it is counted and examined.
[[gnu::always_inline]] inline bool access_array(Access& access, std::size_t first)
{
    for (std::size_t k = first; k < arrays.size(); ++k) {
        const Array& array = arrays[k];
        const std::uint64_t offset = access.address - array.begin;
        if (offset < array.bytes && offset + access.size <= array.bytes) {
            const unsigned site = site_at(access.pc, global, access.write, access.size);
            sites[site].atomic = access.atomic;
            if (counting) count(site, access.address);
            access.array = k;
            access.begin = array.begin;
            if (watching) examine(access, array.cells + cell_at(offset), site, array.written_by_host);
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
        const std::uint64_t distance =
            access.address < begin ? begin - access.address : access.address >= end ? access.address - end + 1 : 0;
        if (distance < nearest) {
            nearest = distance;
            access.array = k;
            access.begin = arrays[k].begin;
        }
    }
    report_access(Kind::out_of_bounds, access);
}

// Finds the array of an access to shared memory; reports it if it is in none. False also for what does not count.
[[gnu::always_inline]] inline bool find_shared(Access& access)
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

// A block's shared memory is there from its start to its end, and another block must know of both.
struct Remote {
    Access access;
    std::uint32_t stamp;
    uint3 block;
};
// The last access of each thread to the memory of each other block of its cluster, numbered in it.
std::unordered_map<std::uint32_t, Remote> remote;
std::vector<std::uint32_t> met;                    // of each thread: those that it knows to have started, as bits
std::vector<Known> heard;                          // of each block: what any of its threads knew at the end

[[gnu::noinline]] void examine_remote(const Access& access)
{
    const unsigned place = rank_at(access.address), rank = place % cluster_size;
    if (!(met[running] >> rank & 1)) {
        const Known& row = known[running];
        for (unsigned t = place * slots_of_block; t < (place + 1) * slots_of_block && t < row.size(); ++t)
            if (row[t]) met[running] |= 1u << rank;
        if (!(met[running] >> rank & 1)) {
            Fault fault = fault_of(Kind::asynchrony, access);
            fault.other_write = 2;  // not started
            report(fault);
            met[running] |= 1u << rank;
        }
    }
    remote[running << 5 | rank] = {access, clock_now, blockIdx};
}

// Whoever touched a block's memory must have told it before it ended.
void examine_ends()
{
    for (const auto& [key, last] : remote) {
        const unsigned thread = key >> 5, rank = rank_of(thread) / cluster_size * cluster_size + (key & 31);
        if (heard[rank].size() > thread && heard[rank][thread] >= last.stamp) continue;
        running = thread;
        blockIdx = last.block;
        Fault fault = fault_of(Kind::asynchrony, last.access);
        fault.other_write = 3;  // may have ended
        report(fault);
    }
    remote.clear();
}

[[gnu::always_inline]] inline void access_shared(Access& access)
{
    if (!find_shared(access)) return;
    const bool own = cluster_blocks == 1 || rank_at(access.address) == rank_of(running);
    const unsigned site = own ? site_at(access.pc, shared, access.write, access.size)
                              : remote_site(access.pc, access.write, access.size);
    sites[site].atomic = access.atomic;
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
        (thread_name(running) + " writes constant memory, or what is no variable of the kernel").copy(fault.text, sizeof fault.text - 1);
        stopping = true;
        report(fault);
        return;
    }
    if (access.address - reinterpret_cast<std::uintptr_t>(elsewhere) < elsewhere_bytes) return;
    if (shared_begin - access.address <= window_bytes || access.address - shared_begin < cluster_blocks * window_alignment) access.space = shared;  // a negative index
    stopping = true;  // nothing of the kernel's is there: the access itself could crash
    report_access(Kind::out_of_bounds, access);
}

bool access_any(std::uintptr_t at, unsigned size, bool write, bool atomic);

// A GPU takes a value of 2, 4, 8 or 16 bytes only from an address that its size divides.
[[gnu::noinline, gnu::cold]] void access_misaligned(Access access)
{
    for (std::size_t k = 0; k < arrays.size(); ++k)
        if (access.address - arrays[k].begin < arrays[k].bytes) {
            access.array = k;
            access.begin = arrays[k].begin;
        }
    if (is_shared(access.address)) {
        access.space = shared;
        const std::uint64_t offset = offset_at(access.address);
        if (offset < shared_bytes) access.array = shared_owner[cell_at(offset)];
        access.begin = access.array < 0 ? 0 : access.address - offset + shared_array_begin[access.array];
    }
    stopping |= access.size > 8;  // the CPU's own wide loads might crash, too
    report_access(Kind::misaligned, access);
    const unsigned piece = (access.address | access.size) & -(access.address | access.size);
    for (unsigned offset = 0; offset < access.size; offset += piece) access_any(access.address + offset, piece, access.write, access.atomic);
}

// Most of a kernel's accesses are to shared memory, and most of them reads of what threads of the block wrote before the
// last barrier. These two do in few instructions what access_any does. False if an access is another one: then nothing
// has been done.
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
        }
        cell->read_stamp = clock_now;
        cell->reader = running;
        cell->read_site = site;
    }
    return true;
}

[[gnu::noinline]] bool access_any(std::uintptr_t at, unsigned size, bool write, bool atomic)
{
    Access access{at, size, write, last_access, global, -1, 0, atomic};
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

[[gnu::always_inline]] inline bool access_memory(std::uintptr_t at, unsigned size, bool write, bool atomic)
{
    if (watching ? !write && read_quietly(at, size, last_access) : counting && count_quietly(at, size, write, last_access))
        return true;
    return access_any(at, size, write, atomic);
}

// The same for a size that the compiler knows.
template <unsigned size, bool write>
[[gnu::noinline]] bool access_sized(std::uintptr_t at)
{
    return access_memory(at, size, write, false);
}

// Below the frame of the function that is running there is no variable.
[[gnu::noinline, gnu::cold]] void report_below_frame(std::uintptr_t at, unsigned size, bool write)
{
    Fault fault = fault_of(Kind::out_of_bounds, {at, size, write, last_access, shared, -1, at});
    fault.other_write = 6;  // before a variable of the thread's own
    stopping |= write;
    report(fault);
}

// Registers that products are going to write: neighbours of one instruction are one entry.
struct Sums {
    std::uintptr_t begin, end;
    unsigned group;
    const void* pc;
};
std::vector<std::vector<Sums>> sums_of;  // of each thread
unsigned sums_count;                     // of all

[[gnu::noinline]] void examine_sums(std::uintptr_t at, unsigned size, bool write)
{
    for (const Sums& sums : sums_of[running]) {
        if (at + size <= sums.begin || at >= sums.end) continue;
        Fault fault = fault_of(Kind::asynchrony, {at, size, write, last_access, shared, -1, at});
        fault.other_pc = reinterpret_cast<std::uintptr_t>(sums.pc) - 1 - library_begin;
        fault.other_write = 7;  // a register that a product is going to write
        return report(fault);
    }
}

// Whether the address is in the thread's own arrays, most of which are registers on a GPU. What units do is no thread's.
[[gnu::always_inline]] inline bool is_own(std::uintptr_t at, unsigned size, bool write, const void* pc)
{
    last_access = reinterpret_cast<std::uintptr_t>(pc) - 1;
    if (__builtin_expect(out_of_time, false)) stop(End::time, last_access);
    if (!current || at - reinterpret_cast<std::uintptr_t>(current->stack) >= stack_bytes || at % size) return false;
    const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (__builtin_expect(at < frame, false)) report_below_frame(at, size, write);
    if (__builtin_expect(sums_count != 0, false)) examine_sums(at, size, write);
    return true;
}

// False if it is no place to touch: there is no such memory, or the GPU would refuse the address.
bool accessed(const void* address, unsigned size, bool write, const void* pc, bool atomic = false)
{
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return is_own(at, size, write, pc) || access_memory(at, size, write, atomic);
}

template <unsigned size, bool write>
[[gnu::always_inline]] inline void accessed(const void* address, const void* pc)
{
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (!is_own(at, size, write, pc)) access_sized<size, write>(at);
}

// ---- The run --------------------------------------------------------------------------------------------------------

// All threads of the block know now which work of units, and of other blocks, any of them has waited for.
template <typename Fibers>
void share_what_units_did(const Fibers& fibers)
{
    static Known all;
    all.assign(workers, 0);
    bool any = false;
    for (const Fiber* fiber : fibers) {
        const Known& row = known[fiber->thread];
        any |= !row.empty();
        for (unsigned w = cluster_blocks > 1 ? 0 : wgmma_of_warp; w < row.size(); ++w) all[w] = std::max(all[w], row[w]);
    }
    for (const Fiber* fiber : fibers)
        if (any) known[fiber->thread] = all;
    if (!knows_blocks) return;
    KnownBlocks of_all;
    for (const Fiber* fiber : fibers) take(of_all, known_blocks[fiber->thread]);
    for (const Fiber* fiber : fibers) known_blocks[fiber->thread] = of_all;
}

// What an atomic operation on an address was told by threads that had shown their writes before: by those of other
// blocks, and by those of this one, or of its cluster.
std::unordered_map<std::uintptr_t, KnownBlocks> told;
std::unordered_map<std::uintptr_t, Known> told_here;

void Observer::block_starts()
{
    block_start = last_barrier = ++clock_now;
    last_barriers.assign(cluster_blocks, block_start);
    last_ended.assign(cluster_blocks, -1);
    if (known.size() < wgmma_of_warp) known.resize(wgmma_of_warp);
    for (Known& row : known) row.clear();
    if (fenced.size() < wgmma_of_warp) {
        fenced.resize(wgmma_of_warp);
        fenced_in_block.resize(wgmma_of_warp);
        proxy_fenced.resize(wgmma_of_warp);
    }
    if (shared_cells.size() < cluster_blocks * block_cells) shared_cells.resize(cluster_blocks * block_cells);
    remote.clear();
    met.assign(cluster_blocks > 1 ? wgmma_of_warp : 0, 0);
    heard.assign(cluster_blocks > 1 ? cluster_blocks : 0, {});
    known_blocks.assign(knows_blocks ? 0 : known_blocks.size(), {});
    known_blocks.resize(wgmma_of_warp);
    knows_blocks = false;
    told_here.clear();
    sums_of.assign(wgmma_of_warp, {});
    sums_count = 0;
    emulator::block_starts.push_back({block_start, blockIdx});
    for (unsigned rank = 0; watching && rank < cluster_blocks; ++rank)
        std::fill_n(reinterpret_cast<std::uint32_t*>(shared_begin + rank * window_alignment), (shared_bytes + 3) / 4, poison);
    counted_warp = 0;
}

void Observer::thread_runs(unsigned thread)
{
    running = thread;
    if (cluster_blocks > 1) last_barrier = last_barriers[rank_of(thread)];
    if (!counting) return;
    if (thread / 32 != counted_warp) count_requests();
    counted_warp = thread / 32;
    std::fill(occurrences.begin(), occurrences.end(), 0);
}

void Observer::thread_ends(unsigned thread)
{
    last_ended[rank_of(thread)] = thread;
    if (cluster_blocks > 1) take(heard[rank_of(thread)], known[thread]);
}

template <typename Fibers>
void Observer::barrier_releases(const Fibers& fibers)
{
    if (counting) count_requests();
    ++clock_now;
    const Fiber& first = *fibers[0];
    const unsigned rank = rank_of(first.thread);
    last_barrier = last_barriers[rank] = clock_now;
    share_what_units_did(fibers);
    Fault fault = new_fault(Kind::divergence);
    set_block(fault.block, cluster_index[rank]);
    fault.file = first.file;
    fault.line = first.line;
    fault.other_thread = in_words(first.thread);
    if (last_ended[rank] >= 0) {
        fault.thread = in_words(last_ended[rank]);
        report(fault);
        return;
    }
    for (const Fiber* fiber : fibers)
        if (fiber->line != first.line || fiber->column != first.column || std::strcmp(fiber->file, first.file)) {
            fault.thread = in_words(fiber->thread);
            fault.other_line = fiber->line;
            fault.other_write = fiber->line == first.line;  // at another barrier of the line
            report(fault);
            return;
        }
}

// What its lanes do from here on are new requests.
void Observer::warp_goes_on()
{
    if (!counting) return;
    count_requests();
    std::fill(occurrences.begin(), occurrences.end(), 0);
}

void Observer::block_ends()
{
    if (counting) count_requests();
    if (watching && !abandoned) examine_ends();
}

void restore_variables()
{
    for (std::size_t k = operand_count; k < arrays.size(); ++k)
        std::copy(initial[k - operand_count].begin(), initial[k - operand_count].end(), reinterpret_cast<char*>(arrays[k].begin));
}

struct SourceLocation {
    const char* file;
    std::uint32_t line, column;
};
struct TypeDescriptor {
    std::uint16_t kind, info;
    char name[1];
};
struct Mismatch {
    SourceLocation location;
    const TypeDescriptor* type;
    std::uint8_t alignment, kind;  // 0: a load, 1: a store, ...
};
struct OutOfBounds {
    SourceLocation location;
    const TypeDescriptor *array, *index;
};

Fault said(Kind kind, const std::string& text, const char* file, int line, const void* pc = nullptr)
{
    Fault fault = new_fault(kind);
    if (pc) fault.pc = reinterpret_cast<std::uintptr_t>(pc) - 1 - library_begin;
    fault.file = file;
    fault.line = line;
    text.copy(fault.text, sizeof fault.text - 1);
    return fault;
}

unsigned asynchronous_site(const void* pc, bool write)
{
    const unsigned site = site_at(reinterpret_cast<std::uintptr_t>(pc) - 1, shared, write, 16);
    sites[site].unit = true;
    return site;
}

Access of_unit(const void* address, bool write, const void* pc)
{
    return {reinterpret_cast<std::uintptr_t>(address), unit, write, reinterpret_cast<std::uintptr_t>(pc) - 1, shared, -1, 0};
}

Known& row_of(unsigned thread)
{
    if (known[thread].empty()) known[thread].resize(workers);
    return known[thread];
}

}  // namespace

void fence(int scope)
{
    fenced_in_block[running] = clock_now;
    if (scope > 0) fenced[running] = clock_now;
    ++clock_now;
}

namespace watch {

bool accesses(const void* address, unsigned size, bool write, const void* pc) { return accessed(address, size, write, pc); }

bool uses(const void* address, unsigned bytes, bool write, const void* pc)
{
    const bool counts = counting;
    counting = false;
    unknown_is_fine = true;
    bool inside = true;
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (unsigned offset = 0; inside && offset < bytes;) {
        const auto rest = (at + offset) | (bytes - offset) | 16;
        const unsigned piece = rest & -rest;
        inside = accessed(static_cast<const char*>(address) + offset, piece, write, pc);
        offset += piece;
    }
    unknown_is_fine = false;
    counting = counts;
    return inside;
}

void atomic(const void* address, unsigned size, bool write, const void* pc)
{
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (watching && at - reinterpret_cast<std::uintptr_t>(current->stack) >= stack_bytes) {
        // What threads showed (__threadfence) before they came here is known to those who come later.
        if (!in_arrays(at)) {
            auto& here = told[at];
            for (auto [start, until] : here)
                if (start != block_start) {
                    auto& knows = known_blocks[running][start];
                    knows = std::max(knows, until);
                    knows_blocks = true;
                }
            if (write && fenced[running] >= block_start) {
                take(here, known_blocks[running]);
                // Also what the other threads did before the last barrier: they, or this one, have shown it.
                take(here, {{block_start, std::max(fenced[running], last_barrier)}});
            }
        }
        Known& here = told_here[at];
        if (!here.empty()) take(row_of(running), here);
        const std::uint32_t shown = (cluster_blocks > 1 ? fenced : fenced_in_block)[running];
        if (write && shown >= block_start) {
            if (here.empty()) here.resize(workers);
            take(here, known[running]);
            const unsigned first = rank_of(running) * slots_of_block;
            for (unsigned t = first; t < first + slots_of_block; ++t) here[t] = std::max(here[t], last_barrier - 1);
            here[running] = std::max(here[running], shown);
        }
    }
    accessed(address, size, write, pc, true);
}

void release(Known& to)
{
    if (knows_blocks)  // of other blocks all of this one know what one tells
        for (unsigned t = 0; t < wgmma_of_warp; ++t) take(known_blocks[t], known_blocks[running]);

    if (to.empty()) to.resize(workers);
    take(to, known[running]);
    if (cluster_blocks > 1) {  // another block was not at this one's barriers
        const unsigned first = rank_of(running) * slots_of_block;
        for (unsigned t = first; t < first + slots_of_block; ++t) to[t] = std::max(to[t], last_barrier - 1);
    }
    to[running] = clock_now++;
}

void acquire(const Known& from) { take(row_of(running), from); }

void join(const unsigned* threads, unsigned count)
{
    Known all(workers);
    for (unsigned i = 0; i < count; ++i) {
        take(all, known[threads[i]]);
        all[threads[i]] = clock_now;
    }
    ++clock_now;
    for (unsigned i = 0; i < count; ++i) known[threads[i]] = all;
    if (!knows_blocks) return;
    KnownBlocks of_all;
    for (unsigned i = 0; i < count; ++i) take(of_all, known_blocks[threads[i]]);
    for (unsigned i = 0; i < count; ++i) known_blocks[threads[i]] = of_all;
}

void finished(Known& to, unsigned worker)
{
    if (to.empty()) to.resize(workers);
    to[worker] = clock_now++;
}

void reads_only(const void* address, unsigned bytes, const void* pc)
{
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (const Array& array : arrays) {
        if (!watching || at - array.begin >= array.bytes || at - array.begin + bytes > array.bytes) continue;
        const Access access{at, bytes, false, reinterpret_cast<std::uintptr_t>(pc) - 1, global, int(&array - arrays.data()), array.begin};
        const unsigned site = site_at(access.pc, global, false, bytes);
        Cell* const first = array.cells + cell_at(at - array.begin);
        for (Cell* cell = first; cell != first + units(bytes); ++cell) {
            if (cell->write_stamp >= launch_start) {
                Fault fault = fault_of(Kind::race, access);
                fault.other_pc = sites[cell->write_site].pc - library_begin;
                fault.other_write = 5;
                return report(fault);
            }
            if (cell->first_read_stamp < launch_start) {
                cell->first_read_stamp = clock_now;
                cell->first_reader = running;
            }
            cell->mark = site + 1;
        }
    }
}

void sum_begins(const void* address, unsigned bytes, unsigned group, const void* pc)
{
    if (!watching) return;
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    auto& own = sums_of[running];
    const auto same = std::find_if(own.begin(), own.end(), [&](const Sums& s) { return s.pc == pc && at >= s.begin && at <= s.end; });
    if (same == own.end()) {
        own.push_back({at, at + bytes, group, pc});
        ++sums_count;
    } else {
        same->end = std::max(same->end, at + bytes);
        same->group = group;
    }
}

void sums_end(unsigned end)
{
    if (!watching) return;
    auto& own = sums_of[running];
    const auto rest = std::remove_if(own.begin(), own.end(), [&](const Sums& s) { return s.group < end; });
    sums_count -= own.end() - rest;
    own.erase(rest, own.end());
}

void guard(const void* address, unsigned bytes, const void* pc)
{
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (!watching || !in_arrays(at)) return;
    const unsigned mark = pc ? asynchronous_site(pc, true) + 1 : 0;
    for (Cell* cell = shared_cell(at); cell != shared_cell(at) + units(bytes); ++cell) cell->mark = mark;
}

std::uint32_t now() { return clock_now++; }

void meet(const Known& arrived)
{
    if (cluster_blocks == 1) return;
    met[running] = ~0u;
    take(heard[rank_of(running)], arrived);
}

void learn(unsigned worker, std::uint32_t until)
{
    auto& knows = row_of(running)[worker];
    knows = std::max(knows, until);
}

// Whether a thread touched shared memory and no fence.proxy.async came since, its own or the running thread's: then no
// barrier orders that before what a unit of the other proxy does there now.
bool needs_proxy_fence(std::uint32_t stamp, unsigned thread, unsigned site)
{
    return stamp >= block_start && thread < wgmma_of_warp && !sites[site].unit && proxy_fenced[thread] < stamp &&
           proxy_fenced[running] <= stamp;
}

void report_unfenced(const Access& access, unsigned thread, unsigned site)
{
    Fault fault = fault_of(Kind::asynchrony, access);
    fault.other_pc = sites[site].pc - library_begin;
    fault.other_thread = in_words(thread);
    fault.other_write = 1;  // no fence.proxy.async
    report(fault);
}

void copy_begins(const void* to, unsigned bytes, const void* pc, bool by_unit)
{
    const unsigned site = asynchronous_site(pc, true);
    if (!by_unit) {
        sites[site].size = bytes;
        if (counting) count(site, reinterpret_cast<std::uintptr_t>(to));
    }
    if (!watching) return;
    const char* at = static_cast<const char*>(to);
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
        const std::size_t faults_before = faults.empty() ? 0 : faults.size() + faults.back().count;
        examine(access, cell, site, false);
        bool faulty = faults_before != (faults.empty() ? 0 : faults.size() + faults.back().count);
        if (!faulty && by_unit && needs_proxy_fence(before.read_stamp, before.reader, before.read_site)) {
            report_unfenced(access, before.reader, before.read_site);
            faulty = true;
        }
        cell->write_stamp = before.write_stamp;
        cell->writer = before.writer;
        cell->write_site = before.write_site;
        cell->coming = site + 1;
        if (faulty) {
            for (; offset < bytes; offset += unit) {
                const auto place = reinterpret_cast<std::uintptr_t>(at + offset);
                if (in_arrays(place)) shared_cell(place)->coming = site + 1;
            }
            return;
        }
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
            report_under_way(access, cell.coming);
        } else if (cell.write_stamp < block_start) {
            report_access(Kind::uninitialised, access);
        } else if (at_the_same_time(cell.write_stamp, cell.writer, shared)) {
            report_access(Kind::race, access, cell.write_stamp, cell.writer, cell.write_site, true);
        } else if (needs_proxy_fence(cell.write_stamp, cell.writer, cell.write_site)) {
            report_unfenced(access, cell.writer, cell.write_site);
        } else {
            faulty = false;
        }
        const unsigned self = running;
        mark_read(cell, worker, site, shared);
        running = self;
    }
}

void proxy_fence() { proxy_fenced[running] = clock_now++; }

static void add_row(Traffic& to, std::uintptr_t at, unsigned bytes)
{
    to.units += (at + bytes - 1) / 32 - at / 32 + 1;
    to.bytes += bytes;
    ++to.requests;
}
void global_request(const void* address, unsigned bytes, bool write, unsigned blocks)
{
    if (!counting) return;
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    add_row(traffic.space[global][write], at, bytes);
    add_row(traffic.way[by_tma][write], at, bytes);
    for (unsigned further = 1; further < blocks; ++further) add_row(traffic.way[multicast][write], at, bytes);
}
void block_request(const void* address, unsigned bytes)
{
    if (counting && rank_at(reinterpret_cast<std::uintptr_t>(address)) != block_rank())
        add_row(traffic.way[to_block][1], reinterpret_cast<std::uintptr_t>(address), bytes);
}
void goes_by(Way which) { way = which; }

// Python puts the place in words: the line of the asm statement, and the line that calls the function around it.
std::string place(const void* pc, const char*, int)
{
    char text[32];
    std::snprintf(text, sizeof text, "\x01%zx\x01", static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(pc) - 1 - library_begin));
    return text;
}

void asynchrony(const std::string& text, const char* file, int line, const void* pc, bool last)
{
    report(said(Kind::asynchrony, text, file, line, pc));
    if (last) abandon();
}
void divergence(const std::string& text, const char* file, int line) { report(said(Kind::divergence, text, file, line)); }
void remark(const std::string& text, const char* file, int line) { report(said(Kind::ended, text, file, line)); }
void misaligned(const std::string& text, const char* file, int line) { report(said(Kind::misaligned, text, file, line)); }
void deadlock(const std::string& text, const char* file, int line, const void* pc)
{
    report(said(Kind::deadlock, text, file, line, pc));
    abandon();
}
void trap(const std::string& text, const char* file, int line)
{
    report(said(Kind::trap, text, file, line));
    abandon();
}

}  // namespace watch
}  // namespace emulator

using namespace emulator;

#define EXPORT extern "C" __attribute__((visibility("default")))

/// Where `count` arrays of these sizes (bytes) are, zeroed, aligned, and with room around each: an index that is wrong by
/// up to 2^31 elements of 8 bytes is still in memory that is ours. `written` says which of them the host has filled;
/// `unit_bytes`, 4 or 2, is the size of the smallest elements. Returns 0, or -1 if there is not enough memory.
EXPORT int tracer_allocate(int count, const std::uint64_t* bytes, const int* written, int unit_bytes, void** addresses)
{
    shared_begin = reinterpret_cast<std::uintptr_t>(window());
    dl_iterate_phdr(find_library, nullptr);
    for (auto& numbers : site_numbers) numbers.assign(library_end - library_begin, 0);
    sites.clear();
    occurrences.clear();
    unit = finest = unit_bytes;
    unit_bits = __builtin_ctz(unit);
    operand_count = count;
    char* memory = nullptr;
    std::size_t room;
    for (room = std::size_t(17) << 30; !memory && room > element_alignment; room /= 64) {
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

/// After tracer_allocate: the kernel's __device__ variables, at these offsets in the library. A launch finds in them what
/// the one before left there; each run begins with what they hold now.
EXPORT int tracer_variables(int count, const std::uint64_t* offsets, const std::uint64_t* bytes)
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
EXPORT int tracer_changed(int k)
{
    return std::memcmp(initial[k].data(), reinterpret_cast<const void*>(arrays[operand_count + k].begin), initial[k].size()) != 0;
}

/// The bytes of the smallest access that was smaller than a cell of the last run, or of a cell if there was none.
EXPORT unsigned tracer_finest() { return finest; }

/// Gives the memory of tracer_allocate back.
EXPORT void tracer_free()
{
    restore_variables();
    for (Array& array : arrays)
        if (array.cells) munmap(array.cells, units(array.bytes) * sizeof(Cell));
    arrays.clear();
    if (arena) munmap(reinterpret_cast<void*>(arena), arena_bytes);
    arena = 0;
}

/// Before a run, which is one launch or several. `count` is whether to count traffic, `watch` whether to look for races
/// and reads of what was never written, `stop` whether to give up at the first fault, `unwritten` the 4 bytes that shared
/// memory holds everywhere when a block begins. Forgets all earlier runs, except what they left in the kernel's variables
/// if it is the same program that launches `again`.
EXPORT void tracer_prepare(int count, int watch, int stop, int again, std::uint32_t unwritten)
{
    poison = unwritten;
    counting = count;
    watching = watch;
    stopping = stop;
    for (Array& array : arrays)
        if (array.cells) madvise(array.cells, units(array.bytes) * sizeof(Cell), MADV_DONTNEED);  // zero again
    if (!again) restore_variables();
    traffic = {};
    way = plain;
    faults.clear();
    block_starts.clear();
    clock_now = 0;
    launches = 0;
    for (Site& site : sites) {  // a run that was given up leaves requests behind
        for (unsigned i = 0; i < site.used; ++i) site.requests[i].lanes = 0;
        site.used = 0;
    }
}

/// Before each launch of a run. `places` (bytes from the window's begin) and `sizes` (bytes) are those of the shared
/// arrays that the kernel may use.
EXPORT void tracer_launch(const std::uint64_t* places, const std::uint64_t* sizes, int shared_arrays)
{
    ++launches;
    launch_start = clock_now + 1;
    shared_bytes = 0;
    for (int k = 0; k < shared_arrays; ++k) shared_bytes = std::max(shared_bytes, places[k] + sizes[k]);
    told.clear();
    fenced.clear();
    proxy_fenced.clear();
    block_cells = units(shared_bytes) + 1;
    shared_cells.assign(block_cells, Cell{});
    shared_owner.assign(units(shared_bytes) + 1, -1);
    shared_array_begin.assign(places, places + shared_arrays);
    shared_array_bytes.assign(sizes, sizes + shared_arrays);
    for (int k = 0; k < shared_arrays; ++k)
        std::fill(shared_owner.begin() + cell_at(places[k]), shared_owner.begin() + units(places[k] + sizes[k]), k);
}

/// The names of each Kind, by which a Fault's `kind` is known, and of each Way but the plain one.
EXPORT const char tracer_kinds[] = EMULATOR_KINDS(EMULATOR_NAMED);
EXPORT const char tracer_ways[] = EMULATOR_WAYS(EMULATOR_NAMED);

/// Loads and stores of global memory, then of shared memory; then the same of each Way.
EXPORT const Traffic* tracer_traffic() { return traffic.space[0]; }

EXPORT const Fault* tracer_faults(int* count)
{
    *count = faults.size();
    return faults.data();
}

// ---- What instrumented code calls -----------------------------------------------------------------------------------

extern "C" {

#define CALLER __builtin_return_address(0)
#define ACCESSES(bytes)                                                                              \
    void __tsan_read##bytes(void* address) { accessed<bytes, false>(address, CALLER); }              \
    void __tsan_write##bytes(void* address) { accessed<bytes, true>(address, CALLER); }              \
    void __tsan_unaligned_read##bytes(void* address) { accessed<bytes, false>(address, CALLER); }    \
    void __tsan_unaligned_write##bytes(void* address) { accessed<bytes, true>(address, CALLER); }
// CUDA's memory model has volatile accesses to global memory as strong ones; in shared memory they order nothing between
// lanes, and who relies on that is to be told.
static void volatile_access(void* address, unsigned size, bool write, void* pc)
{
    if (!write) asks(address, size, pc);
    if (is_shared(reinterpret_cast<std::uintptr_t>(address)) || reinterpret_cast<std::uintptr_t>(address) % size)
        accessed(address, size, write, pc);
    else
        watch::atomic(address, size, write, pc);
}
#define VOLATILE(bytes)                                                                                     \
    void __tsan_volatile_read##bytes(void* address) { volatile_access(address, bytes, false, CALLER); }     \
    void __tsan_volatile_write##bytes(void* address) { volatile_access(address, bytes, true, CALLER); }     \
    void __tsan_unaligned_volatile_read##bytes(void* address) { volatile_access(address, bytes, false, CALLER); } \
    void __tsan_unaligned_volatile_write##bytes(void* address) { volatile_access(address, bytes, true, CALLER); }
VOLATILE(1)
VOLATILE(2)
VOLATILE(4)
VOLATILE(8)
VOLATILE(16)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

// A struct: a GPU copies it in the widest pieces that its alignment allows.
static void range_accessed(void* address, std::size_t size, bool write, void* pc)
{
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const unsigned piece = (at | size | 16) & -(at | size | 16);  // the largest power of 2 up to 16 that divides both
    for (std::size_t offset = 0; offset < size; offset += piece)
        accessed(static_cast<char*>(address) + offset, piece, write, pc);
}
void __tsan_read_range(void* address, std::size_t size) { range_accessed(address, size, false, CALLER); }
void __tsan_write_range(void* address, std::size_t size) { range_accessed(address, size, true, CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

void __ubsan_handle_out_of_bounds(const OutOfBounds* expression, std::intptr_t index)
{
    Fault fault = new_fault(Kind::out_of_bounds);
    fault.space = shared;
    fault.file = expression->location.file;
    fault.line = expression->location.line;
    fault.type = expression->array->name;
    const unsigned bits = 1u << (expression->index->info >> 1);
    fault.offset = bits >= 64 ? index : index << (64 - bits) >> (64 - bits);
    report(fault);
}

// An access that leaves a variable whose size g++ knows. What a thread has for itself lies on its stack here and has no
// cells; beside it lies what the emulator needs, so a write ends the run.
void __ubsan_handle_type_mismatch_v1(const Mismatch* access, std::uintptr_t address)
{
    if (!current || address - reinterpret_cast<std::uintptr_t>(current->stack) >= stack_bytes) return;
    Fault fault = new_fault(Kind::out_of_bounds);
    fault.space = shared;
    fault.file = access->location.file;
    fault.line = access->location.line;
    fault.type = access->type->name;
    fault.write = access->kind == 1;
    fault.other_write = 1;  // no index
    stopping |= fault.write;
    report(fault);
}

}  // extern "C"
