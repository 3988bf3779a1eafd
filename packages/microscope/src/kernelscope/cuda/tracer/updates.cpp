// Updates by a load and a store: both volatile or atomic, so that they race with nothing, and yet an update of another
// thread between the two is lost. Blocks run in turn, and threads between barriers do, so that it happens only in a run
// in which each thread lets the others run before such a store.
#include "accesses.h"
#include "races.h"

#include <cstring>

namespace emulator {
namespace tracer {
namespace {

bool interleaving;
unsigned stores;  // after a load of the same thread

// What a thread has found at a place.
struct Loaded {
    std::uint64_t value;
    unsigned size;
    std::uintptr_t pc;
    Writer before{};  // another thread that had written it when an exchange loaded it
};
std::unordered_map<std::uintptr_t, Loaded> loaded;  // by address and thread
std::uintptr_t key_of(std::uintptr_t at) { return at ^ std::uintptr_t{running + 1} << 48; }

std::uint64_t value_at(std::uintptr_t at, unsigned size)
{
    std::uint64_t value = 0;
    std::memcpy(&value, reinterpret_cast<const void*>(at), std::min<unsigned>(size, sizeof value));
    return value;
}

// The last strong write, which is not done when it is announced.
struct {
    Loaded* own = nullptr;  // what its thread finds there now
    std::uintptr_t at = 0;
    bool loses = false;
    Fault fault;  // if it loses an update
    std::uint64_t lost;
} last;

Fault update_of(Kind kind, std::uintptr_t at, const Loaded& from, const watch::Strength& strength, const void* pc,
                const Writer& other)
{
    Access access{at, from.size, true, number_of(pc) - 1, is_shared(at) ? shared : global, -1, 0, strength};
    if (access.space == shared) {
        const std::uint64_t offset = offset_at(at);
        if (offset < shared_bytes) access.array = shared_owner[cell_at(offset)];
        access.begin = access.array < 0 ? at : at - offset + shared_array_begin[access.array];
    } else {
        name_array(access);
    }
    Fault fault = fault_of(kind, access, strength.swaps ? Case::lost_swap : Case::lost_update);
    set_block(fault.other_block, block_at(other.stamp, other.thread));
    fault.other_thread = in_words(other.thread);
    fault.other_write = true;
    fault.other_pc = other.pc - library_begin;
    fault.meeting_pc = from.pc - library_begin;
    return fault;
}

}  // namespace

void start_updates()
{
    loaded.clear();
    stores = 0;
    last.own = nullptr;
    last.loses = false;
}

void settle_update()
{
    if (last.own) last.own->value = value_at(last.at, last.own->size);
    last.own = nullptr;
    if (!std::exchange(last.loses, false)) return;
    last.fault.same_value = value_at(last.at, last.fault.size) == last.lost;
    report(last.fault);
}

void examine_update(std::uintptr_t at, unsigned size, bool write, const watch::Strength& strength, const void* pc)
{
    settle_update();
    if (!write) {
        loaded[key_of(at)] = {value_at(at, size), size, number_of(pc) - 1};
        return;
    }
    const bool overwrites = !strength.exchange || strength.swaps;
    auto from = loaded.find(key_of(at));
    if (overwrites && from != loaded.end() && from->second.size == size) {
        if (interleaving && stores++ % 2 == 0) {  // between its load and its store, others do both
            static const char others = 0;
            wake(&others);  // something happens: those who ask again and again are asked, too
            let_others_run("", 0, pc);
            from = loaded.find(key_of(at));
        }
        const Writer* other = other_writer(at);
        if (!other && from->second.before.pc) other = &from->second.before;
        if (other) {
            const std::uint64_t now = value_at(at, size);
            if (!interleaving) report(update_of(Kind::unordered, at, from->second, strength, pc, *other));
            last.loses = interleaving && now != from->second.value;
            last.lost = now;
            last.at = at;
            if (last.loses) last.fault = update_of(Kind::race, at, from->second, strength, pc, *other);
        }
    }
    if (strength.exchange) {
        const Writer* const other = other_writer(at);
        last.own = &(loaded[key_of(at)] = {0, size, number_of(pc) - 1, other ? *other : Writer{}});
        last.at = at;
    } else if (from != loaded.end()) {
        loaded.erase(from);
    }
}

}  // namespace tracer
}  // namespace emulator

/// Whether threads let others run before they store what they may have made of an earlier load.
EMULATOR_EXPORT void tracer_interleave(int interleave) { emulator::tracer::interleaving = interleave; }
