// Copies of inline PTX to shared memory: cp.async, cp.async.bulk, TMA, st.async.
#include "barriers.h"
#include "copies.h"

#include <deque>
#include <memory>
#include <utility>

namespace emulator::ptx {

struct Piece {
    char* to;
    std::vector<char> bytes;
    const char* from = nullptr;  // in shared memory, to be read when the copy ends; else null
};

// What a copy has read of global memory, which must still be there when it ends.
struct Read {
    const char* from;
    std::vector<char> bytes;
};

static void compare(const std::vector<Read>& reads, const Origin& origin)
{
    const auto same = [](const Read& r) { return std::memcmp(r.from, r.bytes.data(), r.bytes.size()) == 0; };
    if (std::all_of(reads.begin(), reads.end(), same)) return;
    watch::asynchrony(
        "what the copy that starts here reads is written before anything has waited for the copy; write it "
        "after the wait",
        origin.source->file, origin.source->line, origin.pc);
}

// cp.async: of each thread, by group. An mbarrier may wait for the same pieces, so whoever comes first brings them.
struct Group {
    std::vector<Piece> pieces;
    std::vector<Read> reads;
    Origin origin;              // of the last of them
    int worker = -1;            // who brings them for an mbarrier
    std::uint32_t brought = 0;  // when
};
using Pieces = std::shared_ptr<Group>;
struct Own {
    Pieces open = std::make_shared<Group>();
    std::deque<Pieces> groups;
    std::vector<Pieces> counted;    // by an mbarrier
    std::vector<unsigned> workers;  // of the mbarriers that counted some
};
static std::vector<Own> own;

static void bring(const Pieces& pieces, unsigned thread)
{
    if (pieces->pieces.empty()) return;
    compare(std::exchange(pieces->reads, {}), pieces->origin);
    for (Piece& piece : pieces->pieces) {
        std::memcpy(piece.to, piece.bytes.data(), piece.bytes.size());
        watch::copy_ends(piece.to, piece.bytes.size(), pieces->worker < 0 ? thread : pieces->worker);
    }
    pieces->pieces.clear();
    pieces->brought = watch::now();
}

static void wait_for(const Pieces& pieces)
{
    bring(pieces, thread_number());
    if (pieces->worker >= 0) watch::learn(pieces->worker, pieces->brought);
}

void run_cp_async(const Instruction& i, Frame& f)
{
    const unsigned bytes = get(i.operands[2], f);
    unsigned given = i.operands.size() > 3 && i.operands[3].kind != Operand::none ? get(i.operands[3], f) : bytes;
    if (i.other) given = bytes;  // the operand is a cache policy
    char* to = shared_pointer(address(i.operands[0], f));
    const char* from = reinterpret_cast<const char*>(address(i.operands[1], f));
    if (reinterpret_cast<std::uintptr_t>(to) % bytes) {
        watch::accesses(to, bytes, true, f.pc);  // reports it
        return;
    }
    if (given > bytes) {
        refuse(f, "cp.async reads " + std::to_string(given) + " bytes and writes " + std::to_string(bytes));
        given = bytes;
    }
    Piece piece{to, std::vector<char>(bytes)};
    watch::goes_by(by_copy);
    const bool is_there = given && watch::accesses(from, bytes, false, f.pc);
    watch::goes_by(plain);
    Group& group = *own[thread_number()].open;
    if (is_there) {
        std::memcpy(piece.bytes.data(), from, given);
        group.reads.push_back({from, {from, from + given}});
    }
    watch::copy_begins(to, bytes, f.pc, false);
    group.pieces.push_back(std::move(piece));
    group.origin = {f.source, f.pc};
}

void run_commit(const Instruction&, Frame&)
{
    Own& mine = own[thread_number()];
    mine.groups.push_back(std::exchange(mine.open, std::make_shared<Group>()));
}

void run_wait_group(const Instruction& i, Frame& f)
{
    Own& mine = own[thread_number()];
    if (i.flag) {  // wait_all
        run_commit(i, f);
        while (!mine.groups.empty()) wait_for(mine.groups.front()), mine.groups.pop_front();
        for (const Pieces& pieces : std::exchange(mine.counted, {})) wait_for(pieces);
        return;
    }
    const std::size_t left = get(i.operands[0], f);
    while (mine.groups.size() > left) wait_for(mine.groups.front()), mine.groups.pop_front();
}

// Copies that an mbarrier counts.
struct Coming {
    std::uint32_t barrier;
    std::uint32_t bytes;
    std::vector<Piece> pieces;
    int thread = -1;  // whose cp.async these are; it arrives with them
    std::vector<Pieces> of_thread;
    Origin origin{};
    std::shared_ptr<std::vector<Read>> reads{};  // of all blocks that a copy goes to
};
static std::deque<Coming> under_way;

// cp.async.mbarrier.arrive: the thread arrives when its copies have come.
void run_cp_async_arrive(const Instruction& i, Frame& f)
{
    Own& mine = own[thread_number()];
    const std::uint32_t at = i.starts("shared") ? address(i.operands[0], f)
                                                : shared_number(reinterpret_cast<void*>(address(i.operands[0], f)));
    MBarrier* b = barrier_at(at, f);
    if (!b) return;
    if (!i.has("noinc")) ++b->pending;
    mine.counted.erase(
        std::remove_if(mine.counted.begin(), mine.counted.end(), [](const Pieces& p) { return p->pieces.empty(); }),
        mine.counted.end());
    std::vector<Pieces> all(mine.groups.begin(), mine.groups.end());
    all.push_back(std::exchange(mine.open, std::make_shared<Group>()));
    mine.counted.insert(mine.counted.end(), all.begin(), all.end());
    for (const Pieces& pieces : all)
        if (!pieces->pieces.empty()) pieces->worker = b->worker;
    if (std::find(mine.workers.begin(), mine.workers.end(), b->worker) == mine.workers.end())
        mine.workers.push_back(b->worker);
    under_way.push_back({at, 0, {}, int(thread_number()), all, {f.source, f.pc}});
    watch::release(b->coming);
}

bool deliver()
{
    if (under_way.empty()) return false;
    std::size_t which = is_random() ? random_number() % under_way.size() : 0;
    if (under_way[which].thread >= 0)  // those of one thread come in their order
        which = std::find_if(under_way.begin(), under_way.end(),
                             [&](const Coming& c) { return c.thread == under_way[which].thread; }) -
                under_way.begin();
    Coming copy = std::move(under_way[which]);
    under_way.erase(under_way.begin() + which);
    const auto found = barriers.find(copy.barrier);
    if (copy.reads) compare(std::exchange(*copy.reads, {}), copy.origin);
    for (Piece& piece : copy.pieces) {
        if (piece.from) std::copy_n(piece.from, piece.bytes.size(), piece.bytes.begin());
        std::memcpy(piece.to, piece.bytes.data(), piece.bytes.size());
        watch::copy_ends(piece.to, piece.bytes.size(), found == barriers.end() ? 0u + stores : found->second.worker);
    }
    for (const Pieces& pieces : copy.of_thread) bring(pieces, copy.thread);
    if (found != barriers.end()) {
        MBarrier& b = found->second;
        watch::finished(b.coming, b.worker);
        b.bytes -= copy.bytes;
        if (copy.thread >= 0) {
            for (unsigned worker : own[copy.thread].workers) watch::finished(b.coming, worker);
            if (b.pending) --b.pending;
        }
        look(b);
    }
    return true;
}

// Who brings what the mbarrier counts.
static unsigned worker_of(std::uint32_t barrier)
{
    const auto found = barriers.find(barrier);
    return found == barriers.end() ? 0u + stores : found->second.worker;
}

static MBarrier* barrier_of_copy(std::uint32_t at, Frame& f)
{
    MBarrier* b = barrier_at(at, f);
    if (b && !b->shown) {
        complain(f, "a copy counts at the mbarrier made at " + b->made +
                        ", which no fence has shown to it (fence.mbarrier_init or fence.proxy.async)");
        b->shown = true;
    }
    return b;
}

// Into the blocks of the cluster that `mask` names, or to `to` alone (mask 0): a copy of these pieces, whose places
// count from `to`, and whose barrier lies in the same block.
static void send(std::uint32_t to, std::uint32_t barrier, unsigned mask, std::uint32_t bytes,
                 const std::vector<std::pair<std::uint32_t, Piece>>& pieces, Frame& f, std::vector<Read> reads = {})
{
    const auto of_all = std::make_shared<std::vector<Read>>(std::move(reads));
    if (!mask && rank_of_shared(to) != rank_of_shared(barrier))
        return refuse(f, "a copy goes into one block of the cluster and counts at an mbarrier of another");
    if (mask >> cluster_size)
        return refuse(f,
                      "the mask of .multicast names blocks that a cluster of " + std::to_string(cluster_size) +
                          " does not have",
                      true);
    const unsigned first = rank_of_shared(to) / cluster_size * cluster_size;
    const unsigned ranks = mask ? mask : 1u << rank_of_shared(to) % cluster_size;
    for (unsigned rank = first; ranks >> (rank - first); ++rank) {
        if (!(ranks >> (rank - first) & 1)) continue;
        MBarrier* b = barrier_of_copy(in_block_of(barrier, rank), f);
        if (!b) return;
        char* const begin = shared_pointer(in_block_of(to, rank));
        watch::copy_begins(begin, bytes, f.pc, true);
        Coming copy{b->at, bytes, {}, -1, {}, {f.source, f.pc}, of_all};
        for (const auto& [at, piece] : pieces) {
            copy.pieces.push_back(piece);
            copy.pieces.back().to = begin + at;
        }
        under_way.push_back(std::move(copy));
    }
}

static unsigned mask_of_blocks(const Instruction& i, std::size_t operand, Frame& f)
{
    return i.has("multicast::cluster") ? get(i.operands[operand], f) & 0xffff : 0;
}

void run_bulk_load(const Instruction& i, Frame& f)  // [to], [from], bytes, [barrier], mask
{
    const std::uint32_t to = address(i.operands[0], f), bytes = get(i.operands[2], f);
    const auto* from = reinterpret_cast<const char*>(address(i.operands[1], f));
    if (!takes_bulk(reinterpret_cast<std::uintptr_t>(from), to, bytes, f)) return;
    const std::uint32_t barrier = address(i.operands[3], f);
    if (!watch::unit_loads(from, bytes, f.pc, worker_of(barrier))) return;
    const unsigned mask = mask_of_blocks(i, 4, f);
    watch::global_request(from, bytes, false, __builtin_popcount(mask));
    if (!mask) watch::block_request(shared_pointer(to), bytes);
    send(to, barrier, mask, bytes, {{0, {nullptr, {from, from + bytes}}}}, f, {{from, {from, from + bytes}}});
}

// From shared memory of the block into that of a block of its cluster. It reads when it ends.
void run_bulk_between(const Instruction& i, Frame& f)  // [to], [from], bytes, [barrier]
{
    const std::uint32_t to = address(i.operands[0], f), from = address(i.operands[1], f), bytes = get(i.operands[2], f);
    const std::uint32_t barrier = address(i.operands[3], f);
    if (!takes_bulk(from, to, bytes, f)) return;
    watch::unit_reads(shared_pointer(from), bytes, f.pc, worker_of(barrier));
    watch::block_request(shared_pointer(to), bytes);
    send(to, barrier, 0, bytes, {{0, {nullptr, std::vector<char>(bytes), shared_pointer(from)}}}, f);
}

// A value into shared memory of a block of the cluster, counted by an mbarrier there.
void run_st_async(const Instruction& i, Frame& f)  // [to], value, [barrier]
{
    const unsigned bytes = i.type.bytes();
    const std::uint32_t to = address(i.operands[0], f);
    if (to % (bytes * i.width))
        return (void)watch::accesses(shared_pointer(to), bytes * i.width, true, f.pc);  // reports it
    Piece piece{nullptr, std::vector<char>(bytes * i.width)};
    for (unsigned k = 0; k < i.width; ++k) {
        const std::uint64_t value =
            get(i.operands[1].kind == Operand::list ? i.operands[1].parts[k] : i.operands[1], f);
        std::memcpy(piece.bytes.data() + k * bytes, &value, bytes);
    }
    watch::block_request(shared_pointer(to), bytes * i.width);
    send(to, address(i.operands[2], f), 0, bytes * i.width, {{0, piece}}, f);
}

/// Rounds floats to TF32, to the nearest, halves to even: an H100's TMA does so if its map says TFLOAT32.
static void round_to_tf32(std::vector<char>& floats)
{
    for (std::size_t at = 0; at < floats.size(); at += 4) {
        std::uint32_t bits;
        std::memcpy(&bits, &floats[at], 4);
        if ((bits & 0x7f800000) != 0x7f800000) bits += 0xfff + (bits >> 13 & 1);
        bits &= ~0x1fffu;
        std::memcpy(&floats[at], &bits, 4);
    }
}

void run_box_load(const Instruction& i, Frame& f)  // [to], [map, {c}], [barrier], mask
{
    const std::uint32_t to = address(i.operands[0], f);
    const TensorMap* map = map_at(address(i.operands[1], f), f);
    if (!map) return;
    const auto at = coordinates(i.operands[1], f);
    if (at.size() != map->rank)
        return refuse(f, "the box has " + std::to_string(at.size()) + " coordinates, the tensor map " +
                             std::to_string(map->rank) + " dimensions");
    if (to % 128) return refuse(f, "the box goes to an address of shared memory that 128 does not divide");
    std::vector<char> box(1);
    unsigned rows = 1;
    for (unsigned d = 1; d < map->rank; ++d) rows *= map->box[d];
    const unsigned mask = mask_of_blocks(i, 3, f);
    const std::uint32_t barrier = address(i.operands[2], f);
    box.assign(rows * map->box[0] * map->bytes, 0);
    std::vector<Read> reads;
    for_rows(*map, at.data(), [&](unsigned offset, std::uint64_t address, unsigned bytes) {
        const char* const from = reinterpret_cast<const char*>(address);
        watch::unit_loads(from, bytes, f.pc, worker_of(barrier));
        watch::global_request(from, bytes, false, __builtin_popcount(mask));
        std::memcpy(box.data() + offset, from, bytes);
        reads.push_back({from, {from, from + bytes}});
    });
    if (map->to_tf32) round_to_tf32(box);
    std::vector<std::pair<std::uint32_t, Piece>> pieces;
    for (unsigned offset = 0; offset < box.size(); offset += 16) {
        const unsigned bytes = std::min<unsigned>(16, box.size() - offset);
        pieces.push_back({swizzled(to + offset, map->swizzle) - to,
                          {nullptr, {box.begin() + offset, box.begin() + offset + bytes}}});
    }
    if (!mask) watch::block_request(shared_pointer(to), box.size());
    send(to, barrier, mask, box.size(), pieces, f, reads);
}

void start_copies()
{
    own.assign(cluster_blocks * block_threads(), {});
    under_way.clear();
}

void end_copies()
{
    for (const Coming& copy : under_way) still_under_way(copy.origin, "may still write shared memory");
    for (Own& mine : own) {
        mine.groups.push_back(mine.open);
        for (const Pieces& pieces : mine.groups)
            if (!pieces->pieces.empty()) still_under_way(pieces->origin, "may still write shared memory");
    }
}

}  // namespace emulator::ptx
