// Who waits for whom, in words.
#include "scheduler.h"

#include <algorithm>
#include <cstring>

namespace emulator {

std::string thread_name(unsigned thread)
{
    const unsigned t = thread % slots_of_block;
    const unsigned x = t % blockDim.x, y = t / blockDim.x % blockDim.y, z = t / blockDim.x / blockDim.y;
    std::string name = "thread (" + std::to_string(x) + ", " + std::to_string(y);
    name += (blockDim.z > 1 ? ", " + std::to_string(z) : "") + ")";
    if (cluster_blocks == 1) return name;
    const uint3 block = cluster_index[thread / slots_of_block];
    return name + " of block (" + std::to_string(block.x) + ", " + std::to_string(block.y) +
           (gridDim.z > 1 ? ", " + std::to_string(block.z) : "") + ")";
}

std::string where(const Fiber* fiber)
{
    return fiber->pc ? watch::place(fiber->pc, fiber->file, fiber->line) : "line " + std::to_string(fiber->line);
}

std::string what(const Fiber* fiber)
{
    return fiber->why ? fiber->why(fiber->object, fiber->detail) : "the other threads of the block";
}

void report_deadlock()
{
    std::vector<Fiber*> all = sleeping;
    all.insert(all.end(), waiting.begin(), waiting.end());
    all.insert(all.end(), asking.begin(), asking.end());
    std::sort(all.begin(), all.end(), [](Fiber* a, Fiber* b) { return a->thread < b->thread; });
    std::vector<std::pair<Fiber*, unsigned>> places;  // the first thread that waits at each, and how many others do
    for (Fiber* fiber : all) {
        const auto same = std::find_if(places.begin(), places.end(), [&](const auto& place) {
            Fiber* f = place.first;
            return f->line == fiber->line && f->pc == fiber->pc && what(f) == what(fiber) &&
                   !std::strcmp(f->file, fiber->file);
        });
        if (same == places.end())
            places.push_back({fiber, 0});
        else
            ++same->second;
    }
    const auto who = [](const auto& place) {
        std::string text = thread_name(place.first->thread);
        if (place.second) text += " and " + std::to_string(place.second) + (place.second > 1 ? " others" : " other");
        return text + (place.second ? " wait" : " waits");
    };
    const Fiber* first = places[0].first;
    std::string others;
    for (std::size_t i = 1; i < std::min<std::size_t>(places.size(), 3); ++i)
        others +=
            (i > 1 ? "; " : "") + who(places[i]) + " at " + where(places[i].first) + " for " + what(places[i].first);
    if (places.size() > 3) others += "; others wait at " + std::to_string(places.size() - 3) + " more places";
    if (const std::size_t ended = order.size() - all.size())
        others += (others.empty() ? "" : "; ") + std::to_string(ended) +
                  (ended > 1 ? " threads have ended" : " thread has ended");
    if (others.empty()) others = "all threads wait here, and nobody is left to come";
    watch::deadlock(who(places[0]) + " at " + where(first) + "\n  for " + what(first) + "\n  but " + others,
                    first->file, first->line, first->pc);
}

}  // namespace emulator
