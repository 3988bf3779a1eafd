// Tensor cores: wgmma, of four warps.
#include "copies.h"
#include "tensor.h"

namespace emulator::ptx {

struct Layout {
    std::uint32_t start, leading, stride;
    unsigned swizzle;  // bytes of a row of the pattern
    bool across;       // whether k is the outer dimension
    unsigned bytes;    // of an element

    Layout(std::uint64_t d, bool across, unsigned bytes)
        : start((d & 0x3fff) << 4),
          leading((d >> 16 & 0x3fff) << 4),
          stride((d >> 32 & 0x3fff) << 4),
          across(across),
          bytes(bytes)
    {
        constexpr unsigned widths[] = {16, 128, 64, 32};
        swizzle = widths[d >> 62];
    }
    /// Of the 16 bytes that hold element (line, k): line is a row of A or a column of B.
    char* chunk(unsigned line, unsigned k) const
    {
        std::uint32_t at;
        if (!across) {
            const unsigned byte = k * bytes;
            at = swizzle == 16 ? line / 8 * stride + line % 8 * 16 + byte / 16 * leading
                               : line / 8 * stride + line % 8 * swizzle + byte / 16 * 16;
        } else {
            const unsigned byte = line * bytes, wide = byte / swizzle;
            at = swizzle == 16 ? byte / 16 * stride + k % 8 * 16 + k / 8 * leading
                               : wide * leading + k % 8 * swizzle + k / 8 * stride + byte % swizzle / 16 * 16;
        }
        at = swizzled(start + at, swizzle == 16 ? 0 : swizzle);
        return shared_pointer(in_block_of(at & 0x3ffff, block_rank()));
    }
};

struct Products {
    std::vector<std::uint32_t> groups;  // when each was committed
    bool fenced = false;                // whether there was a wgmma.fence
    unsigned started = 0;               // products
    Origin last{};                      // that was started
};
static std::vector<Products> products;  // of each warp

static void check_fence(Frame& f)
{
    bool& fenced = products[thread_number() / 32].fenced;
    if (!fenced) complain(f, "multiplies (wgmma.mma_async) before its warp's first wgmma.fence");
    fenced = true;
}

/// Hands each element of `lines` rows of A or columns of B, `depth` of k, to `put`(line, k, bits).
template <typename Put>
static void read(const Layout& layout, unsigned from, unsigned lines, unsigned depth, Frame& f, Put&& put)
{
    const unsigned worker = wgmma_of_warp + thread_number() / 32, per = 16 / layout.bytes;
    const auto element = [&](const char* chunk, unsigned e) {
        std::uint32_t v = 0;
        std::memcpy(&v, chunk + e * layout.bytes, layout.bytes);
        return v;
    };
    if (layout.across) {
        for (unsigned k = 0; k < depth; ++k)
            for (unsigned line = 0; line < lines; line += per) {
                const char* chunk = layout.chunk(from + line, k);
                watch::unit_reads(chunk, 16, f.pc, worker);
                for (unsigned e = 0; e < per; ++e) put(line + e, k, element(chunk, e));
            }
    } else {
        for (unsigned line = 0; line < lines; ++line)
            for (unsigned k = 0; k < depth; k += per) {
                const char* chunk = layout.chunk(from + line, k);
                watch::unit_reads(chunk, 16, f.pc, worker);
                for (unsigned e = 0; e < per; ++e) put(line, k + e, element(chunk, e));
            }
    }
}

static void act_wgmma(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Instruction& i = *lane_of(records, 0).instruction;
    Frame& first = *lane_of(records, 0).frame;
    const unsigned size = i.type.bytes(), depth = i.depth, count = i.columns;
    const Operand &d = i.operands[0], &a = i.operands[1], &b = i.operands[2];
    check_fence(first);
    const bool accumulate = i.operands.size() > 3 ? get(i.operands[3], first) : true;
    const auto option = [&](std::size_t k) {
        return k < i.operands.size() ? static_cast<std::int32_t>(get(i.operands[k], first)) : 0;
    };
    const bool minus_a = option(4) == -1, minus_b = option(5) == -1;
    const bool from_registers = a.kind == Operand::list;
    const bool a_across = !from_registers && option(6) == 1, b_across = option(from_registers ? 6 : 7) == 1;
    clear(count, depth, short_of(i.type), short_of(i.from), size == 1 ? kept_of_fp8 : kept_bits);
    if (from_registers) {
        for (unsigned lane = 0; lane < 32; ++lane)
            take_rows(a, *lane_of(records, lane).frame, lane, i.type, depth, minus_a);
    } else {
        read(Layout(get(a, first), a_across, size), thread_in_block() / 32 % 4 * 16, 16, depth, first,
             [&](unsigned line, unsigned k, std::uint32_t v) { set(rows[line], k, columns.kind_of_rows, v, minus_a); });
    }
    read(Layout(get(b, first), b_across, size), 0, count, depth, first,
         [&](unsigned line, unsigned k, std::uint32_t v) { columns.set(k, line, v, minus_b); });
    if (accumulate) {
        for (unsigned lane = 0; lane < 32; ++lane)
            exchange_sums(d, *lane_of(records, lane).frame, lane, count, i.other, false, sums);
    } else {
        for (auto& row : sums) std::fill(row, row + count, 0.0f);
    }
    for (unsigned row = 0; row < 16; ++row) multiply(rows[row], columns, sums[row], i.other);
    for (unsigned lane = 0; lane < 32; ++lane)
        exchange_sums(d, *lane_of(records, lane).frame, lane, count, i.other, true, sums);
}
// Both operands along k; D, A, B, and whether to add to D.
static void act_wgmma_bytes(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Instruction& i = *lane_of(records, 0).instruction;
    Frame& first = *lane_of(records, 0).frame;
    const unsigned depth = i.depth, count = i.columns;
    const Operand &d = i.operands[0], &a = i.operands[1], &b = i.operands[2];
    check_fence(first);
    if (a.kind == Operand::list) {
        for (unsigned lane = 0; lane < 32; ++lane)
            take_rows_of_bytes(a, *lane_of(records, lane).frame, lane, depth, i.flag);
    } else {
        read(Layout(get(a, first), false, 1), thread_in_block() / 32 % 4 * 16, 16, depth, first,
             [&](unsigned line, unsigned k, std::uint32_t v) { bytes.rows[line][k] = byte_of(v, 0, i.flag); });
    }
    read(Layout(get(b, first), false, 1), 0, count, depth, first,
         [&](unsigned line, unsigned k, std::uint32_t v) { bytes.columns[line][k] = byte_of(v, 0, i.other); });
    const bool accumulate = get(i.operands[3], first);
    for (unsigned lane = 0; lane < 32 && accumulate; ++lane)
        exchange_sums_of_bytes(d, *lane_of(records, lane).frame, lane, count, false);
    if (!accumulate)
        for (auto& row : bytes.sums) std::fill(row, row + count, 0);
    multiply_bytes(count, depth);
    for (unsigned lane = 0; lane < 32; ++lane)
        exchange_sums_of_bytes(d, *lane_of(records, lane).frame, lane, count, true);
}
void run_wgmma(const Instruction& i, Frame& f)
{
    all_lanes(i, f, is_bytes(i.type) ? act_wgmma_bytes : act_wgmma);
    if (thread_number() % 32 == 0) {
        Products& mine = products[thread_number() / 32];
        ++mine.started;
        mine.last = {f.source, f.pc};
    }
    for (unsigned k = 0; k < 2; ++k)  // the sums, and A if it is a list
        for (const Operand& each : i.operands[k].parts)
            if (each.kind == Operand::slot && unsigned(each.index) < f.count && f.places)
                watch::product_begins(f.places[each.index].at, f.places[each.index].bytes,
                                      products[thread_number() / 32].groups.size(), f.pc, k == 1);
}
static void act_nothing(void* const*, unsigned) {}
static void act_wgmma_commit(void* const*, unsigned)
{
    Products& mine = products[thread_number() / 32];
    mine.groups.push_back(watch::now());
    wake(&mine);
}
void run_wgmma_commit(const Instruction& i, Frame& f) { all_lanes(i, f, act_wgmma_commit); }
static void act_wgmma_fence(void* const*, unsigned) { products[thread_number() / 32].fenced = true; }
void run_wgmma_fence(const Instruction& i, Frame& f)
{
    all_lanes(i, f, act_wgmma_fence);
    watch::registers_fenced();
}
// A product is one operation of four warps: that a group of them is done for one warp says that it is done for all.
void run_wgmma_wait(const Instruction& i, Frame& f)
{
    const unsigned warp = thread_number() / 32, first = warp - thread_in_block() / 32 % 4;
    const std::size_t own = products[warp].groups.size(), left = get(i.operands[0], f),
                      wanted = own > left ? own - left : 0;
    const Why why = [](const void*, std::uint64_t w) {
        return "warp " + std::to_string(w) + " of its warp group, which has not asked for the same products (wgmma)";
    };
    for (unsigned w = first; wanted && w < std::min<std::size_t>(first + 4, products.size()); ++w)
        while (products[w].groups.size() < wanted)
            sleep_for(&products[w], why, w % (block_threads() / 32), f.source->file, f.source->line, f.pc);
    all_lanes(i, f, act_nothing);
    watch::products_end(wanted);
    for (unsigned w = first; wanted && w < std::min<std::size_t>(first + 4, products.size()); ++w)
        watch::learn(wgmma_of_warp + w, products[w].groups[wanted - 1]);
}

void start_products() { products.assign(cluster_blocks * block_threads() / 32, {}); }

// A product is one operation of the four warps of a group.
void end_products()
{
    for (std::size_t warp = 0; warp < products.size(); ++warp) {
        const Products &one = products[warp], &other = products[warp - warp % (block_threads() / 32) % 4];
        const Origin& last = one.started > other.started ? one.last : other.last;
        if (one.started != other.started)
            return watch::divergence(
                "warp " + std::to_string(warp % (block_threads() / 32)) + " starts " + std::to_string(one.started) +
                    " products (wgmma), and the first warp of its "
                    "group " +
                    std::to_string(other.started) + "; a product is one operation of the four warps of a group",
                last.source->file, last.source->line);
    }
}

}  // namespace emulator::ptx
