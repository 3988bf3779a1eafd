// Runs the threads of a cluster on one CPU core, each of them on a fiber.
//
// A fiber does not belong to one thread: it runs thread after thread of the block until one comes to a barrier, and
// only then is another fiber needed. So a kernel without barriers runs on a single fiber, with no switch at all.
#include "scheduler.h"

#include "ends.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulator {

dim3 clusterDim;
unsigned cluster_blocks, cluster_size;
unsigned wgmma_of_warp, copies_of_barrier, stores, workers;
unsigned threads_of_block, slots_of_block;
std::vector<uint3> cluster_index;
std::vector<unsigned> order;
std::vector<std::uint32_t> alive;
bool abandoned, descending, cooperative;
std::uint64_t seed;
std::vector<Fiber*> waiting, sleeping, asking;
Units beside;

namespace {

Context main_context;
std::vector<std::unique_ptr<Fiber>> fibers;  // kept from block to block and from launch to launch
std::size_t fresh;                           // fibers[fresh] and later ones run no thread of this block yet
std::size_t started;                         // threads of this cluster that have started
std::vector<Fiber*> ready;
std::size_t cursor;              // ready[cursor] runs next
std::vector<Fiber*> warp_ready;  // lanes that go on together, before all others
std::size_t warp_cursor;
bool something_happened;  // since they asked last
unsigned in_vain;         // how often they have asked since something happened
unsigned predicates;      // that held at the last barrier of the block
Thread kernel;
void* const* arguments;

/// Lanes that came to the same call, and wait for the rest of its mask.
struct Group {
    unsigned warp, mask, here;
    const void* kind;
    void (*act)(void* const*, unsigned);
    const char* file;
    int line;
    void* records[32];
    Fiber* lanes[32];
    unsigned elsewhere = 0, their_mask = 0;  // lanes of `mask` that have met with another one since
};
std::vector<Group> groups;
void run_threads();

// The lanes of a warp that are threads: the last warp of a block may have fewer than 32.
unsigned threads_of_warp(unsigned warp)
{
    const unsigned first = warp * 32 % slots_of_block, rest = threads_of_block - first;
    return rest < 32 ? (1u << rest) - 1 : ~0u;
}
unsigned live_lanes(const Group& group) { return group.mask & alive[group.warp]; }

// All lanes of a group are here, or are given up: they go on, one after the other, so that what they do next is still
// one request of the warp.
void go_on(std::size_t number)
{
    Group group = groups[number];
    groups.erase(groups.begin() + number);
    // Lanes that are here may still come to another call that names them, and then with that mask.
    for (Group& other : groups)
        if (other.warp == group.warp && other.kind == group.kind && other.mask && group.mask &&
            other.mask & group.here) {
            other.elsewhere |= group.here;
            other.their_mask = group.mask;
        }
    if (const unsigned never = group.mask & ~group.here & group.elsewhere) {
        char text[160];
        std::snprintf(text, sizeof text,
                      "lanes 0x%x of warp %u come with the mask 0x%x, and lanes 0x%x with the mask 0x%x", group.here,
                      group.warp, group.mask, never, group.their_mask);
        watch::divergence(text, group.file, group.line);
    }
    if (const unsigned ended = group.mask & ~alive[group.warp] & threads_of_warp(group.warp)) {
        char text[160];
        std::snprintf(text, sizeof text,
                      "the mask 0x%x names lanes 0x%x of warp %u, which have ended; nobody waits for them", group.mask,
                      ended, group.warp % (slots_of_block / 32));
        watch::remark(text, group.file, group.line);
    }
    group.act(group.records, group.here);
    watch::warp_goes_on();
    std::vector<Fiber*> lanes;
    for (unsigned i = 0; i < 32; ++i) {
        const unsigned lane = descending ? 31 - i : i;
        if (group.here >> lane & 1) lanes.push_back(group.lanes[lane]);
    }
    if (seed) shuffle(lanes);
    auto& to = seed ? ready : warp_ready;
    to.insert(to.end(), lanes.begin(), lanes.end());
}

constexpr unsigned most_looks = 1000;
// So often the threads that ask ask in vain: fewer times if there are many of them, because each takes most_looks.
constexpr std::size_t fewest_rounds = 100;
std::size_t most_rounds() { return std::max(fewest_rounds, most_looks / std::max<std::size_t>(1, asking.size())); }
constexpr std::size_t most_places = 256;  // at which a loop may look in turn
// Neighbours have different ones, and so have the begins of arrays: Fibonacci hashing.
std::size_t place_of(const void* address)
{
    return reinterpret_cast<std::uintptr_t>(address) / 4 * 0x9e3779b97f4a7c15 >> 56;
}

// If all threads of a block that have not ended wait at its barrier, they go on.
bool release_block()
{
    for (unsigned rank = 0; rank < cluster_blocks && !waiting.empty(); ++rank) {
        const unsigned live = live_threads(rank * slots_of_block, (rank + 1) * slots_of_block);
        if (waiting.size() < live || !live) continue;
        const auto others = std::stable_partition(waiting.begin(), waiting.end(),
                                                  [&](Fiber* f) { return f->thread / slots_of_block == rank; });
        if (others - waiting.begin() != live) continue;
        ready.assign(waiting.begin(), others);
        waiting.erase(waiting.begin(), others);
        predicates = std::count_if(ready.begin(), ready.end(), [](Fiber* f) { return f->predicate; });
        watch::barrier_releases(ready);
        if (seed) shuffle(ready);
        return true;
    }
    return false;
}

// No thread can run: finds those whose wait is over, or ends it. False if none is left.
bool release()
{
    ready.clear();
    cursor = 0;
    if (release_block()) return true;
    for (std::size_t i = 0; i < groups.size(); ++i) {
        const Group& group = groups[i];
        // Lanes that have ended are not waited for, as on the hardware; mask 0 takes whoever came.
        if (group.mask ? group.here == live_lanes(group) : true) return go_on(i), true;
    }
    if (!asking.empty() && something_happened) {
        ready.swap(asking);
        something_happened = false;
        in_vain = 0;
        return true;
    }
    // Units work as late as they may: what nobody waits for, nobody gets.
    if ((!sleeping.empty() || !asking.empty()) && beside.deliver && beside.deliver()) return something_happened = true;
    // A loop may do the same many times and still come to its end.
    const auto looks =
        std::find_if(asking.begin(), asking.end(), [](Fiber* f) { return f->asked && f->times == most_looks; });
    if (looks != asking.end()) {
        if (++in_vain < most_rounds()) return ready.swap(asking), true;
        current = *looks;
        stop(cluster_blocks == grid_blocks() ? End::never : End::waits,
             reinterpret_cast<std::uintptr_t>(current->pc) - 1, reinterpret_cast<std::uintptr_t>(current->asked));
    }
    if (!groups.empty()) {
        const Group& group = groups[0];
        const unsigned missing = __builtin_ctz(live_lanes(group) & ~group.here);
        const unsigned thread = 32 * group.warp + missing, here = 32 * group.warp + __builtin_ctz(group.here);
        std::string text = thread_name(here) + " waits here for lane " + std::to_string(missing) + " of its warp, but ";
        const auto is_it = [&](const Fiber* f) { return f->thread == thread; };
        std::string elsewhere = " is not here";
        for (const auto* list : {&waiting, &sleeping, &asking})
            for (const Fiber* f : *list)
                if (is_it(f)) elsewhere = " waits at " + where(f) + " for " + what(f);
        for (const Group& other : groups)
            if (&other != &group && other.warp == group.warp && other.here >> missing & 1)
                elsewhere = " waits at line " + std::to_string(other.line) +
                            (other.mask == group.mask ? " in another call" : " with another mask");
        watch::divergence(text + thread_name(thread) + elsewhere, group.file, group.line);
        return go_on(0), true;
    }
    if (!sleeping.empty() || !asking.empty()) report_deadlock();
    return false;
}

// Who runs next; null if no thread of the block is left, or none can go on.
Fiber* next()
{
    while (!abandoned) {
        if (warp_cursor < warp_ready.size()) return warp_ready[warp_cursor++];
        warp_ready.clear();
        warp_cursor = 0;
        if (started < order.size()) {
            if (fresh == fibers.size()) fibers.push_back(std::make_unique<Fiber>(fresh, run_threads));
            return fibers[fresh++].get();
        }
        if (cursor < ready.size()) return ready[cursor++];
        if (!release()) break;
    }
    return nullptr;
}

// Lets whoever is next run; returns when the caller is.
void yield(Context& self, Fiber* fiber)
{
    current = next();
    if (current != fiber) self.switch_to(current ? current->context : main_context);
}

void goes_on(const Fiber* fiber)
{
    threadIdx = fiber->index;
    if (cluster_blocks > 1) blockIdx = cluster_index[fiber->thread / slots_of_block];
    watch::thread_runs(fiber->thread);
}

// Marks the stack below its caller, where a thread's arrays will lie, as g++ 12 and newer mark what nobody has set: a
// sum that begins with what another thread left there, or with 0, would be right by chance.
[[gnu::noinline]] void mark_stack()
{
    char below[4096];
    std::memset(below, 0xFE, sizeof below);
    asm volatile("" : : "r"(below) : "memory");
}

// The body of a fiber, for ever: threads of a block as long as there are any.
void run_threads()
{
    for (;;) {
        Fiber* self = current;
        while (started < order.size() && warp_cursor == warp_ready.size()) {
            self->thread = order[started++];
            const unsigned number = self->thread % slots_of_block, row = number / blockDim.x;
            self->index = {number % blockDim.x, row % blockDim.y, row / blockDim.y};
            self->carry = false;
            goes_on(self);
            mark_stack();
            kernel(arguments);
            alive[self->thread / 32] &= ~(1u << self->thread % 32);
            something_happened = true;
            watch::thread_ends(self->thread);
            ends_at_blocks_barriers(self->thread);
        }
        yield(self->context, self);
    }
}

}  // namespace

void run_cluster(Thread called, void* const* with)
{
    kernel = called;
    arguments = with;
    started = fresh = 0;
    something_happened = false;
    in_vain = 0;
    yield(main_context, nullptr);
}

bool on_any_stack(std::uintptr_t address)
{
    return std::any_of(fibers.begin(), fibers.end(), [&](const auto& fiber) {
        return address - reinterpret_cast<std::uintptr_t>(fiber->stack) < stack_bytes;
    });
}

void forget_fibers()
{
    for (auto* list : {&ready, &waiting, &warp_ready, &sleeping, &asking}) list->clear();
    groups.clear();
    warp_cursor = 0;
    cursor = 0;
    fibers.clear();
}

void abandon()
{
    abandoned = true;
    if (current) current->context.switch_to(main_context);
}

void stay(Fiber* self, const char* file, int line)
{
    self->file = file;
    self->line = line;
    if (out_of_time) stop(End::time, 0);
    yield(self->context, self);
    goes_on(self);
}

std::uint64_t grid_blocks() { return std::uint64_t(gridDim.x) * gridDim.y * gridDim.z; }
unsigned live_threads(unsigned first, unsigned end)
{
    unsigned live = 0;
    for (unsigned warp = first / 32; warp < end / 32; ++warp) live += __builtin_popcount(alive[warp]);
    return live;
}

unsigned thread_number() { return current->thread; }
unsigned thread_in_block() { return current->thread % slots_of_block; }
unsigned thread_count() { return threads_of_block; }
unsigned block_threads() { return slots_of_block; }
unsigned block_rank() { return current->thread / slots_of_block; }
unsigned first_rank() { return block_rank() / cluster_size * cluster_size; }
bool is_cooperative() { return cooperative; }
bool is_random() { return seed != 0; }
std::uint64_t random_number() { return (seed = seed * 6364136223846793005u + 1442695040888963407u) >> 33; }

bool& carry() { return current->carry; }

unsigned synchronise(bool predicate, const char* file, int line, unsigned column)
{
    Fiber* self = current;
    self->column = column;
    self->predicate = predicate;
    self->pc = nullptr;
    self->why = nullptr;
    waiting.push_back(self);
    stay(self, file, line);
    self->round = 0;
    return predicates;
}

bool waits_at_block_barrier(unsigned rank)
{
    return std::any_of(waiting.begin(), waiting.end(), [&](Fiber* f) { return f->thread / slots_of_block == rank; });
}

void rounds(unsigned number) { current->round = number; }

void sleep_for(const void* object, Why why, std::uint64_t detail, const char* file, int line, const void* pc, bool now)
{
    Fiber* self = current;
    self->pc = pc;
    self->object = object;
    self->why = why;
    self->detail = detail;
    sleeping.push_back(self);
    if (now) wake(object);
    stay(self, file, line);
}

void wake(const void* object)
{
    std::vector<Fiber*> awake;
    for (std::size_t i = 0; i < sleeping.size();)
        if (sleeping[i]->object == object) {
            awake.push_back(sleeping[i]);
            sleeping.erase(sleeping.begin() + i);
        } else {
            ++i;
        }
    if (seed)
        shuffle(awake);
    else
        std::sort(awake.begin(), awake.end(), [](Fiber* a, Fiber* b) { return (a->thread < b->thread) != descending; });
    ready.insert(ready.end(), awake.begin(), awake.end());
    something_happened = true;
}

void let_others_run(const char* file, int line, const void* pc)
{
    Fiber* self = current;
    self->pc = pc;
    self->why = [](const void*, std::uint64_t) { return std::string("what it asks for again and again"); };
    asking.push_back(self);
    stay(self, file, line);
}

void asks(const void* address, unsigned size, const void* pc)
{
    Fiber* self = current;
    self->asked = address;
    self->looks.resize(most_places);
    Look& look = self->looks[place_of(address)];
    std::uint64_t value = 0;
    if (look.address == address) std::memcpy(&value, address, std::min<unsigned>(size, sizeof value));
    if (look.address == address && look.found != value) something_happened = true;  // by another thread
    if (look.address != address || look.found != value) {
        look = {address, value};
        self->times = 0;
    }
    if (++self->times < most_looks) return;
    self->times = most_looks;
    let_others_run("", 0, pc);
    self->times = 0;
}

void together(unsigned mask, const void* kind, void* record, void (*act)(void* const*, unsigned), const char* file,
              int line)
{
    Fiber* self = current;
    const unsigned warp = self->thread / 32, lane = self->thread % 32;
    if (mask && !(mask >> lane & 1)) {
        char text[96];
        std::snprintf(text, sizeof text, " calls with the mask 0x%x, which does not name its own lane %u", mask, lane);
        watch::divergence(thread_name(self->thread) + text, file, line);
        mask = 1u << lane;  // it goes on alone: of a mask that nobody wrote there is nothing more to say
    }
    std::size_t i = 0;
    while (i < groups.size() && !(groups[i].warp == warp && groups[i].kind == kind && groups[i].mask == mask &&
                                  (mask || groups[i].line == line)))
        ++i;
    if (i == groups.size()) groups.push_back({warp, mask, 0, kind, act, file, line, {}, {}, 0, 0});
    Group& group = groups[i];
    group.records[lane] = record;
    group.lanes[lane] = self;
    group.here |= 1u << lane;
    self->pc = nullptr;
    self->why = nullptr;
    if (mask && group.here == live_lanes(group)) go_on(i);
    stay(self, file, line);
}

}  // namespace emulator
