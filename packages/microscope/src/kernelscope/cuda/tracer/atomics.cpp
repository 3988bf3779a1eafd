#include "atomics.h"

namespace emulator {
namespace tracer {
namespace {

// When each thread last showed its writes, and any of them.
struct Fences {
    std::vector<std::uint32_t> of;
    std::uint32_t last;
};
Fences fenced_in_block, fenced;  // to its block, to the device

void fence_now(Fences& fences) { fences.of[running] = fences.last = clock_now; }

// What an atomic operation on an address was told by threads that had shown their writes before: by those of other
// blocks, and by those of this one, or of its cluster.
std::unordered_map<std::uintptr_t, KnownBlocks> told;
struct Shown {
    Known threads;
    KnownBlocks blocks;  // other ones
};
std::unordered_map<std::uintptr_t, Shown> told_here;
std::unordered_map<unsigned, Shown> taken;  // what a thread has been told, and will know after its next fence

// The last atomic write to an address: when, by whom, and up to when it had shown its block's writes by then.
struct Told {
    std::uint32_t stamp, fenced_in_block, fenced, barrier;  // barrier: its block's last one
    unsigned thread;
    std::uintptr_t pc;
    bool of_block;
};
std::unordered_map<std::uintptr_t, Told> last_told;

// A thread has read what another one had written by an atomic operation.
struct Meeting {
    Told told;
    std::uintptr_t at, pc;
    bool of_block, takes;
    int learned;  // the scope of the fence that followed, or -1
};
// The last few of a thread, at as many addresses, and those of any thread of a block: others learn of them at a
// barrier.
constexpr std::size_t most_meetings = 4;
std::unordered_map<unsigned, std::vector<Meeting>> meetings, meetings_of_block;

void keep(std::vector<Meeting>& last, const Meeting& meeting)
{
    const auto same = std::find_if(last.begin(), last.end(), [&](const Meeting& m) { return m.at == meeting.at; });
    if (same != last.end())
        last.erase(same);
    else if (last.size() == most_meetings)
        last.erase(last.begin());
    last.push_back(meeting);
}

// Threads of a block among themselves use another place than those of all its cluster.
std::uintptr_t place_of_block(std::uintptr_t at) { return at + (std::uintptr_t{rank_of(running) + 1} << 48); }

bool is_of_own_block(std::uint32_t stamp, unsigned thread)
{
    return stamp >= block_start && (cluster_blocks == 1 || rank_of(thread) == rank_of(running));
}

void learn_of_blocks(const KnownBlocks& from)
{
    for (auto [start, until] : from)
        if (start != block_start) {
            auto& knows = known_blocks[running][start];
            knows = std::max(knows, until);
            knows_blocks = true;
        }
}

void read_told(std::uintptr_t at, const watch::Strength& strength)
{
    const auto blocks = strength.of_block || in_arrays(at) ? told.end() : told.find(at);
    const auto own = told_here.find(place_of_block(at));
    const auto all = strength.of_block || cluster_blocks == 1 ? told_here.end() : told_here.find(at);
    if (blocks == told.end() && own == told_here.end() && all == told_here.end()) return;
    Shown* const later = strength.takes ? &taken[running] : nullptr;
    if (blocks != told.end()) later ? take(later->blocks, blocks->second) : learn_of_blocks(blocks->second);
    for (const auto& here : {own, all}) {
        if (here == told_here.end()) continue;
        take(later ? later->threads : row_of(running), here->second.threads);
        later ? take(later->blocks, here->second.blocks) : learn_of_blocks(here->second.blocks);
    }
}

void tell(Shown& here, std::uint32_t shown)
{
    here.threads.resize(workers);
    take(here.threads, known[running]);
    take(here.blocks, known_blocks[running]);
    const unsigned first = rank_of(running) * slots_of_block;
    for (unsigned t = first; t < first + slots_of_block; ++t)
        here.threads[t] = std::max(here.threads[t], last_barrier - 1);
    here.threads[running] = std::max(here.threads[running], shown);
}

// Up to when what the block did is shown: by the last fence of the running thread, or of one with which it has met
// since.
std::uint32_t shown_until(const Fences& fences)
{
    std::uint32_t until = fences.of[running];
    if (fences.last < block_start || fences.last == until) return until;
    const Known& row = known[running];
    const unsigned first = rank_of(running) / cluster_size * cluster_size * slots_of_block;
    for (unsigned t = first; t < first + cluster_size * slots_of_block; ++t) {
        const std::uint32_t fence = fences.of[t];
        const bool is_before_barrier = fence < last_barrier && rank_of(t) == rank_of(running);
        if (is_before_barrier || (t < row.size() && fence <= row[t])) until = std::max(until, fence);
    }
    return until;
}

void write_told(std::uintptr_t at, const watch::Strength& strength, std::uint32_t shown)
{
    if (!strength.of_block && shown >= block_start) {
        if (!in_arrays(at)) {
            take(told[at], known_blocks[running]);
            take(told[at], {{block_start, shown}});
        }
        if (cluster_blocks > 1) tell(told_here[at], shown);
    }
    const std::uint32_t shown_in_block = fenced_in_block.of[running];
    if (shown_in_block < block_start) return;
    tell(told_here[place_of_block(at)], shown_in_block);
}

}  // namespace

void meet_at_atomic(std::uintptr_t at, bool write, watch::Strength strength, const void* pc)
{
    const std::uintptr_t site = number_of(pc) - 1;
    read_told(at, strength);
    const auto last = last_told.find(at);
    if (last != last_told.end() &&
        (last->second.thread != running || !is_of_own_block(last->second.stamp, last->second.thread))) {
        const Meeting meeting{last->second, at, site, strength.of_block, strength.takes, -1};
        keep(meetings[running], meeting);
        keep(meetings_of_block[rank_of(running)], meeting);
    }
    if (!write) return;
    const std::uint32_t shown = shown_until(fenced);
    write_told(at, strength, shown);
    last_told[at] = {clock_now++, shown_until(fenced_in_block), shown, last_barrier, running, site, strength.of_block};
}

void share_what_is_taken(const std::vector<unsigned>& threads)
{
    if (taken.empty()) return;
    Shown all;
    for (const unsigned thread : threads)
        if (const auto own = taken.find(thread); own != taken.end()) {
            take(all.threads, own->second.threads);
            take(all.blocks, own->second.blocks);
        }
    if (all.threads.empty() && all.blocks.empty()) return;
    for (const unsigned thread : threads) taken[thread] = all;
}

Unordered unordered_by_meeting(std::uintptr_t at, std::uint32_t stamp, unsigned worker)
{
    const auto by_thread = meetings.find(running), by_block = meetings_of_block.find(rank_of(running));
    if (by_block == meetings_of_block.end()) return {};
    std::vector<Meeting> all = by_block->second;
    if (by_thread != meetings.end()) all.insert(all.end(), by_thread->second.begin(), by_thread->second.end());
    const std::uint32_t start = start_of_block(stamp);
    const bool own = is_of_own_block(stamp, worker);
    for (auto meeting = all.rbegin(); meeting != all.rend(); ++meeting) {
        const Told& told = meeting->told;
        // What another thread of that block did before its last barrier, too.
        if (meeting->at == at || rank_of(worker) != rank_of(told.thread) || start_of_block(told.stamp) != start ||
            stamp > (worker == told.thread ? told.stamp : told.barrier))
            continue;
        const auto is_shown = [&](std::uint32_t fence) { return fence >= start && stamp <= fence; };
        const auto lacks = [&](Case which, std::uintptr_t pc) { return Unordered{which, pc, meeting->takes}; };
        if (!own && told.of_block) return lacks(Case::meets_narrow, told.pc);
        if (!is_shown(own ? told.fenced_in_block : told.fenced))
            return lacks(is_shown(told.fenced_in_block) ? Case::fenced_narrow : Case::unfenced, told.pc);
        if (!own && meeting->of_block) return lacks(Case::meets_narrow, meeting->pc);
        if (meeting->takes && meeting->learned < (own ? 0 : 1))
            return lacks(meeting->learned < 0 ? Case::taken_unfenced : Case::taken_narrow, meeting->pc);
    }
    return {};
}

const Writer* other_writer(std::uintptr_t at)
{
    static Writer writer;
    const auto last = last_told.find(at);
    if (last == last_told.end()) return nullptr;
    const Told& told = last->second;
    if (told.thread == running && told.stamp >= block_start) return nullptr;
    writer = {told.stamp, told.thread, told.pc};
    return &writer;
}

void start_meetings_of_launch()
{
    told.clear();
    last_told.clear();
    fenced = {};
}

void start_meetings_of_block()
{
    for (Fences* fences : {&fenced_in_block, &fenced})
        if (fences->of.size() < wgmma_of_warp) fences->of.resize(wgmma_of_warp);
    told_here.clear();
    taken.clear();
    meetings.clear();
    meetings_of_block.clear();
}

}  // namespace tracer

namespace watch {

using namespace tracer;

void fence(int scope, bool shows, bool learns)
{
    if (shows) {
        fence_now(fenced_in_block);
        if (scope > 0) fence_now(fenced);
        ++clock_now;
    }
    if (!learns) return;
    for (Meeting& meeting : meetings[running]) meeting.learned = std::max(meeting.learned, scope);
    for (Meeting& meeting : meetings_of_block[rank_of(running)]) meeting.learned = std::max(meeting.learned, scope);
    const auto own = taken.find(running);
    if (own == taken.end()) return;
    Known& threads = own->second.threads;
    Known now = threads;
    for (unsigned t = 0; scope == 0 && t < now.size() && t < wgmma_of_warp; ++t)
        if (rank_of(t) != rank_of(running)) now[t] = 0;
    if (!now.empty()) take(row_of(running), now);
    if (scope == 0) return;
    learn_of_blocks(own->second.blocks);
    taken.erase(own);
}

}  // namespace watch
}  // namespace emulator
