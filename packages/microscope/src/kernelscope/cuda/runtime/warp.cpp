// Votes, shuffles and their like: each is one `together` with a record per lane.

#include "scheduler.h"

#include <cstdio>

namespace emulator {
namespace {

struct Record {
    std::uint64_t value, result;
    int kind, operand, width;
    bool is_signed;
    const char* file;
    int line;
};

template <typename F>
void for_lanes(unsigned lanes, F&& f)
{
    for (unsigned lane = 0; lane < 32; ++lane)
        if (lanes >> lane & 1) f(lane);
}

Record& record(void* const* records, unsigned lane) { return *static_cast<Record*>(records[lane]); }

void act_nothing(void* const*, unsigned) {}

void act_synchronise(void* const* records, unsigned lanes)
{
    unsigned threads[32], count = 0;
    for_lanes(lanes, [&](unsigned lane) { threads[count++] = record(records, lane).value; });
    watch::join(threads, count);
}

void act_whole(void* const* records, unsigned lanes)
{
    const Record& one = record(records, __builtin_ctz(lanes));
    if (lanes != ~0u)
        watch::divergence("not all lanes of the warp load or store this fragment, which needs all", one.file, one.line);
}

void act_active(void* const* records, unsigned lanes)
{
    for_lanes(lanes, [&](unsigned lane) { record(records, lane).result = lanes; });
}

void act_vote(void* const* records, unsigned lanes)
{
    unsigned ballot = 0;
    for_lanes(lanes, [&](unsigned lane) { ballot |= unsigned(record(records, lane).value != 0) << lane; });
    for_lanes(lanes, [&](unsigned lane) {
        Record& r = record(records, lane);
        switch (static_cast<Vote>(r.kind)) {
        case Vote::ballot: r.result = ballot; break;
        case Vote::any: r.result = ballot != 0; break;
        case Vote::all: r.result = ballot == lanes; break;
        case Vote::uniform: r.result = ballot == 0 || ballot == lanes; break;
        }
    });
}

void act_shuffle(void* const* records, unsigned lanes)
{
    for_lanes(lanes, [&](unsigned lane) {
        Record& r = record(records, lane);
        const int width = r.width, first = lane & ~(width - 1), me = lane;
        int from = me;
        switch (static_cast<Shuffle>(r.kind)) {
        case Shuffle::index: from = first | (r.operand & (width - 1)); break;
        case Shuffle::up: from = me - r.operand < first ? me : me - r.operand; break;
        case Shuffle::down: from = me + r.operand >= first + width ? me : me + r.operand; break;
        case Shuffle::exclusive_or: from = (me ^ r.operand) >= first + width ? me : (me ^ r.operand) & 31; break;
        }
        if (lanes >> from & 1) {
            r.result = record(records, from).value;
        } else {
            char text[96];
            std::snprintf(text, sizeof text, "lane %d of a warp reads the value of lane %d, which is not there", me,
                          from);
            r.result = 0xdeadbeefdeadbeef;
            watch::divergence(text, r.file, r.line);
        }
    });
}

void act_match(void* const* records, unsigned lanes)
{
    for_lanes(lanes, [&](unsigned lane) {
        Record& r = record(records, lane);
        r.result = 0;
        for_lanes(lanes,
                  [&](unsigned other) { r.result |= std::uint64_t(record(records, other).value == r.value) << other; });
        if (r.kind && r.result != lanes) r.result = 0;
    });
}

void act_reduce(void* const* records, unsigned lanes)
{
    const Record& one = record(records, __builtin_ctz(lanes));
    std::uint32_t all = one.value;
    for_lanes(lanes & (lanes - 1), [&](unsigned lane) {
        const std::uint32_t value = record(records, lane).value;
        const bool less =
            one.is_signed ? static_cast<std::int32_t>(value) < static_cast<std::int32_t>(all) : value < all;
        switch (static_cast<Reduction>(one.kind)) {
        case Reduction::add: all += value; break;
        case Reduction::minimum: all = less ? value : all; break;
        case Reduction::maximum: all = less ? all : value; break;
        case Reduction::conjunction: all &= value; break;
        case Reduction::disjunction: all |= value; break;
        case Reduction::exclusive_or: all ^= value; break;
        }
    });
    for_lanes(lanes, [&](unsigned lane) { record(records, lane).result = all; });
}

std::uint64_t exchange(unsigned mask, void (*act)(void* const*, unsigned), Record r)
{
    together(mask, reinterpret_cast<const char*>(act) + r.kind, &r, act, r.file, r.line);
    return r.result;
}

}  // namespace

void synchronise_warp(unsigned mask, const char* file, int line)
{
    exchange(mask, act_synchronise, {thread_number(), 0, 0, 0, 0, false, file, line});
}
unsigned active_mask(const char* file, int line) { return exchange(0, act_active, {0, 0, 0, 0, 0, false, file, line}); }
unsigned vote(Vote kind, unsigned mask, bool predicate, const char* file, int line)
{
    return exchange(mask, act_vote, {predicate, 0, int(kind), 0, 0, false, file, line});
}
void whole_warp(const void* address, unsigned pitch, const char* file, int line)
{
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (at % 32 || pitch % 16)
        watch::misaligned(
            thread_name(thread_number()) + " loads or stores a fragment " +
                (at % 32 ? "at an address that 32 bytes do not divide"
                         : "whose rows are " + std::to_string(pitch) + " bytes apart, which 16 do not divide"),
            file, line);
    exchange(~0u, act_whole, {0, 0, 0, 0, 0, false, file, line});
}
std::uint64_t shuffle(Shuffle kind, unsigned mask, std::uint64_t value, int operand, int width, const char* file,
                      int line)
{
    return exchange(mask, act_shuffle, {value, 0, int(kind), operand, width, false, file, line});
}
unsigned match(bool all, unsigned mask, std::uint64_t value, const char* file, int line)
{
    return exchange(mask, act_match, {value, 0, all, 0, 0, false, file, line});
}
std::uint32_t reduce(Reduction kind, bool is_signed, unsigned mask, std::uint32_t value, const char* file, int line)
{
    return exchange(mask, act_reduce, {value, 0, int(kind), 0, 0, is_signed, file, line});
}
bool elect(unsigned mask, unsigned* lane, const char* file, int line)
{
    const unsigned first = __builtin_ctz(mask);
    exchange(mask, act_nothing, {0, 0, 0, 0, 0, false, file, line});
    if (lane) *lane = first;
    return thread_number() % 32 == first;
}

}  // namespace emulator
