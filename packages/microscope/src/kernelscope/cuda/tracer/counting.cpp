#include "counting.h"

namespace emulator {
namespace tracer {

bool counting;
std::vector<Site> sites;
std::vector<std::uint16_t> site_numbers[3];
Way way = plain;
std::vector<unsigned> occurrences;

namespace {

struct Counts {
    Traffic space[2][2];    // [space][write]
    Traffic way[plain][2];  // [way][write]
} traffic;

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
        if (highest - lowest < 32) {  // as most are: no two words share a bank
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

void add_row(Traffic& to, std::uintptr_t at, unsigned bytes)
{
    to.units += (at + bytes - 1) / 32 - at / 32 + 1;
    to.bytes += bytes;
    ++to.requests;
}

}  // namespace

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

void count_thread(unsigned thread)
{
    if (thread / 32 != counted_warp) count_requests();
    counted_warp = thread / 32;
    std::fill(occurrences.begin(), occurrences.end(), 0);
}

void count_meeting()
{
    count_requests();
    std::fill(occurrences.begin(), occurrences.end(), 0);
}

void count_block() { counted_warp = 0; }

void forget_sites()
{
    for (auto& numbers : site_numbers) numbers.assign(library_end - library_begin, 0);
    sites.clear();
    occurrences.clear();
}

void forget_traffic()
{
    traffic = {};
    way = plain;
    for (Site& site : sites) {  // a run that was given up leaves requests behind
        for (unsigned i = 0; i < site.used; ++i) site.requests[i].lanes = 0;
        site.used = 0;
    }
}

[[gnu::noinline, gnu::cold]] std::uint16_t new_site(std::uintptr_t pc, Space space, bool write, unsigned size)
{
    sites.push_back({pc, space, write, size, {}, 0, watch::weak, false, plain});
    occurrences.push_back(0);
    return sites.size();
}

[[gnu::noinline]] unsigned remote_site(std::uintptr_t pc, bool write, unsigned size)
{
    std::uint16_t& number = site_numbers[2][pc - library_begin];
    if (!number) {
        number = new_site(pc, shared, write, size);
        sites[number - 1].way = to_block;
    }
    return number - 1;
}

}  // namespace tracer

namespace watch {

using namespace tracer;

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

}  // namespace watch
}  // namespace emulator

/// The names of each Way but the plain one.
EMULATOR_EXPORT const char tracer_ways[] = EMULATOR_WAYS(EMULATOR_NAMED);

/// Loads and stores of global memory, then of shared memory; then the same of each Way.
EMULATOR_EXPORT const emulator::tracer::Traffic* tracer_traffic() { return emulator::tracer::traffic.space[0]; }
