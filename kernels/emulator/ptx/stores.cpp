// Copies of inline PTX from shared to global memory: cp.async.bulk, TMA.
#include "copies.h"

#include <deque>
#include <utility>

namespace emulator::ptx {

constexpr std::uint32_t map_magic = 0x70616d54;

const TensorMap* map_at(std::uint64_t at, Frame& f)
{
    const auto* map = reinterpret_cast<const TensorMap*>(at);
    if (map->magic == map_magic) return map;
    complain(f, "this is no tensor map of the launch; give it to the kernel as an argument {tensor_map: ...}");
    return nullptr;
}

std::vector<std::int64_t> coordinates(const Operand& map, Frame& f)
{
    std::vector<std::int64_t> at;
    for (const Operand& c : map.parts[1].parts) at.push_back(static_cast<std::int32_t>(get(c, f)));
    return at;
}

void still_under_way(const Origin& origin, const char* what)
{
    watch::asynchrony(std::string("the block ends, and nothing has waited for the copy that starts here; it ") + what,
                      origin.source->file, origin.source->line, origin.pc);
}

// The stores of each thread, by group. They read when they must be done, not before.
struct Store {
    std::uint32_t from;
    std::uint64_t to;
    unsigned bytes;
    const TensorMap* map;
    std::vector<std::int64_t> at;
    Origin origin;
    int reduce;  // -1, or the Code
    Type type;
};
struct Leaving {
    std::vector<Store> open;
    std::deque<std::vector<Store>> groups;
    std::deque<std::uint32_t> closed;  // when each group was
};
static std::map<unsigned, Leaving> leaving;

static void put_out(const std::vector<Store>& group)
{
    for (const Store& s : group) {
        const auto write = [&](std::uint32_t offset, std::uint64_t to, unsigned bytes, unsigned swizzle) {
            if (!watch::uses(reinterpret_cast<void*>(to), bytes, true, s.origin.pc)) return;
            for (unsigned k = 0; k < bytes;) {
                const unsigned n = std::min(bytes - k, 16 - (s.from + offset + k) % 16);
                const char* from = shared_pointer(swizzled(s.from + offset + k, swizzle));
                if (s.reduce < 0) {
                    std::memcpy(reinterpret_cast<char*>(to) + k, from, n);
                } else {
                    for (unsigned e = 0; e < n; e += s.type.bytes()) {
                        std::uint64_t a = 0, b = 0;
                        std::memcpy(&a, reinterpret_cast<char*>(to) + k + e, s.type.bytes());
                        std::memcpy(&b, from + e, s.type.bytes());
                        a = calculate(s.reduce, s.type, a, b);
                        std::memcpy(reinterpret_cast<char*>(to) + k + e, &a, s.type.bytes());
                    }
                }
                k += n;
            }
            watch::global_request(reinterpret_cast<void*>(to), bytes, true);
        };
        if (s.map)
            for_rows(*s.map, s.at.data(), [&](unsigned offset, std::uint64_t to, unsigned bytes) {
                write(offset, to, bytes, s.map->swizzle);
            });
        else
            write(0, s.to, s.bytes, 0);
    }
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
            nullptr,
            {},
            {f.source, f.pc},
            reduction_of(i),
            i.type};
    if (s.from % 16 || s.to % 16 || s.bytes % 16)
        return complain(f, "both addresses and the size of cp.async.bulk must be multiples of 16 bytes");
    watch::unit_reads(shared_pointer(s.from), s.bytes, f.pc, stores);
    leaving[thread_number()].open.push_back(std::move(s));
}
void run_box_store(const Instruction& i, Frame& f)  // [map, {c}], [from]
{
    const TensorMap* map = map_at(address(i.operands[0], f), f);
    if (!map) return;
    Store s{std::uint32_t(address(i.operands[1], f)),
            0,
            0,
            map,
            coordinates(i.operands[0], f),
            {f.source, f.pc},
            reduction_of(i),
            i.type};
    if (s.reduce >= 0) s.type = map->bytes == 8 ? Type{'f', 64} : map->bytes == 4 ? Type{'f', 32} : Type{'g', 16};
    if (s.from % 128) return complain(f, "the box comes from an address of shared memory that 128 does not divide");
    unsigned bytes = map->bytes;
    for (unsigned d = 0; d < map->rank; ++d) bytes *= map->box[d];
    watch::unit_reads(shared_pointer(s.from), bytes, f.pc, stores);
    leaving[thread_number()].open.push_back(std::move(s));
}
void run_bulk_commit(const Instruction&, Frame&)
{
    Leaving& mine = leaving[thread_number()];
    mine.groups.push_back(std::move(mine.open));
    mine.closed.push_back(watch::now());
    mine.open.clear();
}
void run_bulk_wait(const Instruction& i, Frame& f)
{
    Leaving& mine = leaving[thread_number()];
    const std::size_t left = get(i.operands[0], f);
    while (mine.groups.size() > left) {
        put_out(mine.groups.front());
        watch::learn(stores, mine.closed.front());
        mine.groups.pop_front();
        mine.closed.pop_front();
    }
}

void start_stores() { leaving.clear(); }

void end_stores()
{
    for (auto& [thread, mine] : leaving) {
        mine.groups.push_back(std::move(mine.open));
        for (const auto& group : mine.groups) {
            if (!group.empty()) still_under_way(group[0].origin, "may still read shared memory");
            put_out(group);
        }
    }
}

}  // namespace emulator::ptx
