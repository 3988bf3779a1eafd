#include "atomics.h"

namespace emulator {
namespace tracer {

std::uint32_t clock_now, launch_start, block_start, last_barrier;
std::vector<std::uint32_t> last_barriers, met, proxy_fenced[2];
int launches;
std::vector<Known> known, heard;
std::vector<KnownBlocks> known_blocks;
bool knows_blocks;
std::vector<std::pair<std::uint32_t, uint3>> starts_of_blocks;
unsigned running;

namespace {

// The block, or the first one of the cluster, that ran at that time.
const std::pair<std::uint32_t, uint3>& block_of(std::uint32_t stamp)
{
    return *(std::upper_bound(starts_of_blocks.begin(), starts_of_blocks.end(), stamp,
                              [](std::uint32_t s, const auto& start) { return s < start.first; }) -
             1);
}

}  // namespace

Known& row_of(unsigned thread)
{
    if (known[thread].empty()) known[thread].resize(workers);
    return known[thread];
}

std::uint32_t start_of_block(std::uint32_t stamp) { return block_of(stamp).first; }

void take(KnownBlocks& to, const KnownBlocks& from)
{
    for (auto [start, until] : from) to[start] = std::max(to[start], until);
}

void take(Known& to, const Known& from)
{
    if (to.size() < from.size()) to.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}

bool knows_of_block(std::uint32_t stamp) { return knows_blocks && known_blocks[running].count(start_of_block(stamp)); }

bool unknown_of_another_block(std::uint32_t stamp)
{
    if (!knows_blocks) return true;
    const auto found = known_blocks[running].find(start_of_block(stamp));
    return found == known_blocks[running].end() || stamp > found->second;
}

uint3 block_at(std::uint32_t stamp, unsigned thread)
{
    const unsigned rank = thread < wgmma_of_warp ? rank_of(thread) : 0;
    if (stamp >= block_start) return cluster_index[rank];
    const uint3 first = block_of(stamp).second, own = cluster_index[0], it = cluster_index[rank];
    return {first.x + it.x - own.x, first.y + it.y - own.y, first.z + it.z - own.z};
}

void start_clock()
{
    starts_of_blocks.clear();
    clock_now = 0;
    launches = 0;
}

void start_clock_of_launch()
{
    ++launches;
    launch_start = clock_now + 1;
    start_meetings_of_launch();
    for (auto& times : proxy_fenced) times.clear();
}

void start_clock_of_block()
{
    block_start = last_barrier = ++clock_now;
    last_barriers.assign(cluster_blocks, block_start);
    if (known.size() < wgmma_of_warp) known.resize(wgmma_of_warp);
    for (Known& row : known) row.clear();
    for (auto& times : proxy_fenced) times.resize(std::max<std::size_t>(times.size(), wgmma_of_warp));
    met.assign(cluster_blocks > 1 ? wgmma_of_warp : 0, 0);
    heard.assign(cluster_blocks > 1 ? cluster_blocks : 0, {});
    known_blocks.assign(knows_blocks ? 0 : known_blocks.size(), {});
    known_blocks.resize(wgmma_of_warp);
    knows_blocks = false;
    start_meetings_of_block();
    starts_of_blocks.push_back({block_start, blockIdx});
}

void share_what_units_did(const std::vector<Fiber*>& fibers)
{
    static Known all;
    all.assign(workers, 0);
    bool any = false;
    for (const Fiber* fiber : fibers) {
        const Known& row = known[fiber->thread];
        any |= !row.empty();
        for (unsigned w = cluster_blocks > 1 ? 0 : wgmma_of_warp; w < row.size(); ++w)
            all[w] = std::max(all[w], row[w]);
    }
    for (const Fiber* fiber : fibers)
        if (any) known[fiber->thread] = all;
    std::vector<unsigned> threads;
    for (const Fiber* fiber : fibers) threads.push_back(fiber->thread);
    share_what_is_taken(threads);
    if (!knows_blocks) return;
    KnownBlocks of_all;
    for (const Fiber* fiber : fibers) take(of_all, known_blocks[fiber->thread]);
    for (const Fiber* fiber : fibers) known_blocks[fiber->thread] = of_all;
}

}  // namespace tracer

namespace watch {

using namespace tracer;

void release(Known& to)
{
    if (knows_blocks)  // all threads of this block know of other blocks what one of them knows
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
    share_what_is_taken({threads, threads + count});
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

void proxy_fence(bool of_global, bool of_shared)
{
    if (of_global) proxy_fenced[global][running] = clock_now;
    if (of_shared) proxy_fenced[shared][running] = clock_now;
    ++clock_now;
}

}  // namespace watch
}  // namespace emulator
