// What the hardware would move. The lanes of a warp that execute the same instruction for the same time since the last
// barrier make one request. It moves the distinct 32-byte sectors that it touches, or, in shared memory, takes as many
// wavefronts as the busiest bank has distinct words. Requests are kept for one warp between two barriers, then counted
// and forgotten.
#pragma once

#include "clock.h"

#include <algorithm>

#pragma GCC visibility push(hidden)
namespace emulator::tracer {

struct Traffic {
    // units: sectors of global, wavefronts of shared memory; more: cache lines of global, bank conflicts of shared
    // memory
    std::uint64_t requests, units, more, bytes;
};

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
    watch::Strength strength;
    bool unit;  // an asynchronous unit does it
    Way way = plain;
    bool generic = false;  // a unit that writes by the proxy of the threads' accesses (cp.async)
    bool guesses = false;  // a plain load of what a compare-and-swap of the same thread is then to find
};

extern bool counting;
extern std::vector<Site> sites;
/// By space and pc - library_begin; 0: none yet. The last ones are of other blocks' memory.
extern std::vector<std::uint16_t> site_numbers[3];
extern Way way;                            // of what the running thread does
extern std::vector<unsigned> occurrences;  // of each site, for the running thread since the last barrier

void forget_sites();    // of another program
void forget_traffic();  // of an earlier run
/// The thread that runs now, and what its lanes do from here on.
void count_thread(unsigned thread);
void count_requests();
/// Lanes have met: what they do from here on are new requests.
void count_meeting();
void count_block();
std::uint16_t new_site(std::uintptr_t pc, Space space, bool write, unsigned size);
/// The same instruction when it goes to the memory of another block of the cluster.
unsigned remote_site(std::uintptr_t pc, bool write, unsigned size);

inline unsigned site_at(std::uintptr_t pc, Space space, bool write, unsigned size)
{
    std::uint16_t& number = site_numbers[space][pc - library_begin];
    if (!number) number = new_site(pc, space, write, size);
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

}  // namespace emulator::tracer
#pragma GCC visibility pop
