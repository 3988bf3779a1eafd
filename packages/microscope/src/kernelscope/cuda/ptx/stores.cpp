// Copies of inline PTX from shared to global memory: cp.async.bulk, TMA.
#include "copies.h"

#include <deque>
#include <optional>
#include <utility>

namespace emulator::ptx {

constexpr std::uint32_t map_magic = 0x70616d54;

const TensorMap* map_at(std::uint64_t at, Frame& f)
{
    const auto* map = reinterpret_cast<const TensorMap*>(at);
    if (map->magic == map_magic) return map;
    refuse(f, "this is no tensor map of the launch; give it to the kernel as an argument {tensor_map: ...}");
    return nullptr;
}

std::vector<std::int64_t> coordinates(const Operand& map, Frame& f)
{
    std::vector<std::int64_t> at;
    for (const Operand& c : map.parts[1].parts) at.push_back(static_cast<std::int32_t>(get(c, f)));
    return at;
}

bool takes_bulk(std::uint64_t from, std::uint64_t to, unsigned bytes, Frame& f)
{
    if (from % 16 == 0 && to % 16 == 0 && bytes % 16 == 0) return true;
    refuse(f, from % 16 ? "16 does not divide the address from which cp.async.bulk copies"
              : to % 16 ? "16 does not divide the address to which cp.async.bulk copies"
                        : "16 does not divide the size of cp.async.bulk, " + std::to_string(bytes) + " bytes");
    return false;
}

void still_under_way(const Origin& origin, const char* what)
{
    watch::asynchrony(std::string("the block ends, and nothing has waited for the copy that starts here; it ") + what,
                      origin.source->file, origin.source->line, origin.pc);
}

// The stores of each thread, by group. They read when they must have read, and write when they must have written, not
// before.
struct Store {
    std::uint32_t from;
    std::uint64_t to;
    unsigned bytes;
    std::optional<TensorMap> map;  // a copy: the kernel's parameters end with the thread
    std::vector<std::int64_t> at;
    Origin origin;
    int reduce;  // -1, or the Code
    Type type;
    std::vector<char> data{};    // what it has read
    std::vector<bool> inside{};  // whether each run lies where it may write
};
struct StoreGroup {
    std::vector<Store> members;
    std::uint32_t closed = 0;  // when the group was
    bool have_read = false;
};
struct Leaving {
    std::vector<Store> open;
    std::deque<StoreGroup> groups;
};
static std::map<unsigned, Leaving> leaving;

// Calls f(offset in the data, address in global memory, bytes) for each run of bytes that a store writes.
template <typename F>
static void for_runs(const Store& s, F&& each)
{
    if (s.map)
        for_rows(*s.map, s.at.data(), each);
    else
        each(0u, s.to, s.bytes);
}

static void begin(Store&& s)
{
    watch::unit_reads(shared_pointer(s.from), s.bytes, s.origin.pc, stores);
    for_runs(s, [&](unsigned, std::uint64_t to, unsigned bytes) {
        watch::store_begins(reinterpret_cast<void*>(to), bytes, s.origin.pc, s.reduce >= 0);
    });
    leaving[thread_number()].open.push_back(std::move(s));
}

static void read_sources(StoreGroup& group)
{
    if (std::exchange(group.have_read, true)) return;
    for (Store& s : group.members) {
        s.data.resize(s.bytes);
        const unsigned swizzle = s.map ? s.map->swizzle : 0;
        for (unsigned k = 0; k < s.bytes; k += 16) {
            const char* const from = shared_pointer(swizzled(s.from + k, swizzle));
            std::memcpy(s.data.data() + k, from, std::min(16u, s.bytes - k));
        }
        // For the order of accesses it writes now, when its thread waits, although the data may come later.
        for_runs(s, [&](unsigned, std::uint64_t to, unsigned bytes) {
            s.inside.push_back(watch::unit_writes(reinterpret_cast<void*>(to), bytes, s.origin.pc, s.reduce >= 0));
            watch::global_request(reinterpret_cast<void*>(to), bytes, true);
        });
    }
}

static void write_out(StoreGroup& group, unsigned thread)
{
    read_sources(group);
    for (const Store& s : group.members)
        for_runs(s, [&, run = std::size_t(0)](unsigned offset, std::uint64_t at, unsigned bytes) mutable {
            char* const to = reinterpret_cast<char*>(at);
            watch::store_ends(to, bytes, s.origin.pc, thread);
            if (!s.inside[run++]) return;
            const char* const from = s.data.data() + offset;
            if (s.reduce < 0) std::memcpy(to, from, bytes);
            for (unsigned k = 0; s.reduce >= 0 && k < bytes; k += s.type.bytes()) {
                std::uint64_t a = 0, b = 0;
                std::memcpy(&a, to + k, s.type.bytes());
                std::memcpy(&b, from + k, s.type.bytes());
                a = calculate(s.reduce, s.type, a, b);
                std::memcpy(to + k, &a, s.type.bytes());
            }
        });
}

static int reduction_of(const Instruction& i)
{
    return i.words[1] != "reduce" ? -1
           : i.has("add")         ? add
           : i.has("min")         ? min_
           : i.has("max")         ? max_
           : i.has("and")         ? and_
           : i.has("or")          ? or_
                                  : xor_;
}
void run_bulk_store(const Instruction& i, Frame& f)  // [to], [from], bytes
{
    Store s{std::uint32_t(address(i.operands[1], f)),
            address(i.operands[0], f),
            unsigned(get(i.operands[2], f)),
            {},
            {},
            {f.source, f.pc},
            reduction_of(i),
            i.type};
    if (!takes_bulk(s.from, s.to, s.bytes, f)) return;
    begin(std::move(s));
}
void run_box_store(const Instruction& i, Frame& f)  // [map, {c}], [from]
{
    const TensorMap* map = map_at(address(i.operands[0], f), f);
    if (!map) return;
    unsigned bytes = map->bytes;
    for (unsigned d = 0; d < map->rank; ++d) bytes *= map->box[d];
    Store s{std::uint32_t(address(i.operands[1], f)),
            0,
            bytes,
            *map,
            coordinates(i.operands[0], f),
            {f.source, f.pc},
            reduction_of(i),
            i.type};
    if (s.reduce >= 0) s.type = map->bytes == 8 ? Type{'f', 64} : map->bytes == 4 ? Type{'f', 32} : Type{'g', 16};
    if (s.from % 128) return refuse(f, "the box comes from an address of shared memory that 128 does not divide");
    begin(std::move(s));
}
void run_bulk_commit(const Instruction&, Frame&)
{
    Leaving& mine = leaving[thread_number()];
    mine.groups.push_back({std::exchange(mine.open, {}), watch::now()});
}
void run_bulk_wait(const Instruction& i, Frame& f)
{
    auto& groups = leaving[thread_number()].groups;
    const std::size_t left = get(i.operands[0], f);
    for (std::size_t k = 0; k + left < groups.size(); ++k) {
        read_sources(groups[k]);
        watch::learn(stores, groups[k].closed);
    }
    if (i.has("read")) return;  // what they write may come later
    while (groups.size() > left) {
        write_out(groups.front(), thread_number());
        groups.pop_front();
    }
}

void start_stores() { leaving.clear(); }

void end_stores()
{
    for (auto& [thread, mine] : leaving) {
        mine.groups.push_back({std::move(mine.open)});
        for (StoreGroup& group : mine.groups) {
            if (!group.have_read && !group.members.empty())
                still_under_way(group.members[0].origin, "may still read shared memory");
            write_out(group, thread);
        }
    }
}

}  // namespace emulator::ptx
