// Tensor cores: mma.sync, and WMMA's fragments.
#include "tensor.h"
#include "../include/mma.h"

namespace emulator::ptx {

Row rows[16];
Columns columns;

void clear(unsigned count, unsigned depth, Short kind_of_rows, Short kind_of_columns, int kept)
{
    for (Row& row : rows) row.zero = true, row.special = false;
    columns.count = count;
    columns.depth = depth;
    columns.kind = kind_of_columns;
    columns.kind_of_rows = kind_of_rows;
    columns.kept = kept;
    columns.special = false;
}

// A's fragment of 16 rows: register r of lane (g, t) is row g + 8 (r % 2), from k = per * t + (r / 2) * 4 * per on,
// where a register holds `per` elements.
template <typename Registers>
static void take_rows(unsigned lane, Type t, unsigned depth, bool negated, const Registers& registers)
{
    const unsigned g = lane / 4, per = per_register(t);
    for (unsigned r = 0; r < 16 * depth / 32 / per; ++r) {
        const std::uint32_t v = registers(r);
        const unsigned k = per * (lane % 4) + r / 2 * 4 * per, row = g + 8 * (r % 2);
        for (unsigned e = 0; e < per; ++e) set(rows[row], k + e, short_of(t), element(v, e, t), negated);
    }
}

void take_rows(const Operand& a, Frame& f, unsigned lane, Type t, unsigned depth, bool negated)
{
    take_rows(lane, t, depth, negated, [&](unsigned r) { return get(part(a, r), f); });
}

// C's fragment: of each 8 columns, rows g and g + 8, columns 2 t and 2 t + 1; two halves share a register.
void exchange_sums(const Operand& c, Frame& f, unsigned lane, unsigned count, bool halves, bool store,
                   float (*sums)[most_columns])
{
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned j = 0; j < count / 8; ++j)
        for (unsigned h = 0; h < 2; ++h) {
            float* const two = &sums[g + 8 * h][8 * j + 2 * t];
            if (halves) {
                const Operand& o = part(c, 2 * j + h);
                if (store) {
                    set(o, f, std::uint32_t(half_of(two[1])) << 16 | half_of(two[0]));
                } else {
                    const std::uint32_t v = get(o, f);
                    two[0] = float_of_half(v & 0xffff);
                    two[1] = float_of_half(v >> 16);
                }
            } else {
                for (unsigned v = 0; v < 2; ++v) {
                    const Operand& o = part(c, 4 * j + 2 * h + v);
                    if (store)
                        set(o, f, bits_of<std::uint32_t>(two[v]));
                    else
                        two[v] = bits_of<float>(static_cast<std::uint32_t>(get(o, f)));
                }
            }
        }
}

float sums[16][most_columns];

// B's fragment of 8 columns: register r of lane (g, t) is column g, from k = per * t + r * 4 * per on.
template <typename Registers>
static void take_columns(unsigned lane, Type t, unsigned depth, const Registers& registers)
{
    const unsigned per = per_register(t);
    for (unsigned r = 0; r < 8 * depth / 32 / per; ++r) {
        const std::uint32_t v = registers(r);
        for (unsigned e = 0; e < per; ++e) columns.set(per * (lane % 4) + r * 4 * per + e, lane / 4, element(v, e, t));
    }
}

static void act_mma(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Instruction& i = *lane_of(records, 0).instruction;
    const Operand &d = i.operands[0], &a = i.operands[1], &b = i.operands[2], &c = i.operands[3];
    clear(8, i.depth, short_of(i.type), short_of(i.from));
    for (unsigned lane = 0; lane < 32; ++lane) {
        Frame& f = *lane_of(records, lane).frame;
        take_rows(a, f, lane, i.type, i.depth);
        take_columns(lane, i.from, i.depth, [&](unsigned r) { return get(part(b, r), f); });
        exchange_sums(c, f, lane, 8, i.flag, false, sums);
    }
    for (unsigned row = 0; row < 16; ++row) multiply(rows[row], columns, sums[row], i.other);
    for (unsigned lane = 0; lane < 32; ++lane)
        exchange_sums(d, *lane_of(records, lane).frame, lane, 8, i.other, true, sums);
}

// On Hopper mma.sync of FP8 is two products of half, as ptxas translates it: one of the lower two elements of each
// register, then one of the upper two. They begin with 0; C is added to their sum.
static void act_mma_fp8(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Instruction& i = *lane_of(records, 0).instruction;
    const Operand &d = i.operands[0], &a = i.operands[1], &b = i.operands[2], &c = i.operands[3];
    const Type half = {'h', 16};
    float products[16][8] = {};
    for (unsigned step = 0; step < 2; ++step) {
        const auto halves = [&](const Operand& o, unsigned r, Frame& f, Type t) {
            const std::uint32_t two = get(part(o, r), f) >> 16 * step;
            const auto one = [&](unsigned e) { return half_of(float_of_fp8(element(two, e, t), t.kind == '4')); };
            return std::uint32_t(one(1)) << 16 | one(0);
        };
        clear(8, i.depth / 2, Short::half, Short::half);
        for (unsigned lane = 0; lane < 32; ++lane) {
            Frame& f = *lane_of(records, lane).frame;
            take_rows(lane, half, i.depth / 2, false, [&](unsigned r) { return halves(a, r, f, i.type); });
            take_columns(lane, half, i.depth / 2, [&](unsigned r) { return halves(b, r, f, i.from); });
        }
        for (unsigned row = 0; row < 16; ++row) multiply(rows[row], columns, products[row], i.other);
    }
    for (unsigned lane = 0; lane < 32; ++lane)
        exchange_sums(c, *lane_of(records, lane).frame, lane, 8, i.flag, false, sums);
    for (unsigned row = 0; row < 16; ++row)
        for (unsigned column = 0; column < 8; ++column) sums[row][column] += products[row][column];
    for (unsigned lane = 0; lane < 32; ++lane)
        exchange_sums(d, *lane_of(records, lane).frame, lane, 8, i.other, true, sums);
}

// Doubles: fused multiply-adds in the order of k.
static void act_mma_double(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Instruction& i = *lane_of(records, 0).instruction;
    const unsigned n_rows = i.rows, depth = i.depth, halves = n_rows / 8;
    double A[16][16], B[16][8], C[16][8];
    for (unsigned lane = 0; lane < 32; ++lane) {
        Frame& f = *lane_of(records, lane).frame;
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned k = 0; k < depth / 4; ++k) {
            for (unsigned h = 0; h < halves; ++h)
                A[g + 8 * h][t + 4 * k] = bits_of<double>(get(part(i.operands[1], halves * k + h), f));
            B[t + 4 * k][g] = bits_of<double>(get(part(i.operands[2], k), f));
        }
        for (unsigned h = 0; h < halves; ++h)
            for (unsigned v = 0; v < 2; ++v)
                C[g + 8 * h][2 * t + v] = bits_of<double>(get(part(i.operands[3], 2 * h + v), f));
    }
    for (unsigned r = 0; r < n_rows; ++r)
        for (unsigned j = 0; j < 8; ++j)
            for (unsigned k = 0; k < depth; ++k) C[r][j] = fma(A[r][k], B[k][j], C[r][j]);
    for (unsigned lane = 0; lane < 32; ++lane)
        for (unsigned h = 0; h < halves; ++h)
            for (unsigned v = 0; v < 2; ++v)
                set(part(i.operands[0], 2 * h + v), *lane_of(records, lane).frame,
                    bits_of<std::uint64_t>(C[lane / 4 + 8 * h][2 * (lane % 4) + v]));
}

Bytes bytes;

// A's fragment of 16 rows: register r of lane (g, t) holds row g + 8 (r % 2), 4 of k from 4 t + 16 (r / 2) on.
void take_rows_of_bytes(const Operand& a, Frame& f, unsigned lane, unsigned depth, bool is_signed)
{
    for (unsigned r = 0; r < depth / 8; ++r)
        for (unsigned e = 0; e < 4; ++e)
            bytes.rows[lane / 4 + 8 * (r % 2)][4 * (lane % 4) + 16 * (r / 2) + e] =
                byte_of(get(part(a, r), f), e, is_signed);
}

// C's fragment, as `exchange_sums` has it.
void exchange_sums_of_bytes(const Operand& c, Frame& f, unsigned lane, unsigned count, bool store)
{
    for (unsigned j = 0; j < count / 8; ++j)
        for (unsigned h = 0; h < 2; ++h)
            for (unsigned v = 0; v < 2; ++v) {
                std::int32_t& sum = bytes.sums[lane / 4 + 8 * h][8 * j + 2 * (lane % 4) + v];
                const Operand& o = part(c, 4 * j + 2 * h + v);
                if (store)
                    set(o, f, std::uint32_t(sum));
                else
                    sum = std::int32_t(get(o, f));
            }
}

void multiply_bytes(unsigned count, unsigned depth)
{
    for (auto row = 0; row < 16; ++row)
        for (unsigned j = 0; j < count; ++j) {
            std::uint32_t sum = bytes.sums[row][j];
            for (unsigned k = 0; k < depth; ++k) sum += bytes.rows[row][k] * bytes.columns[j][k];
            bytes.sums[row][j] = std::int32_t(sum);
        }
}

static void act_mma_bytes(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Instruction& i = *lane_of(records, 0).instruction;
    for (unsigned lane = 0; lane < 32; ++lane) {
        Frame& f = *lane_of(records, lane).frame;
        take_rows_of_bytes(i.operands[1], f, lane, i.depth, i.flag);
        for (unsigned r = 0; r < unsigned(i.depth) / 16; ++r)
            for (unsigned e = 0; e < 4; ++e)
                bytes.columns[lane / 4][4 * (lane % 4) + 16 * r + e] =
                    byte_of(get(part(i.operands[2], r), f), e, i.other);
        exchange_sums_of_bytes(i.operands[3], f, lane, 8, false);
    }
    multiply_bytes(8, i.depth);
    for (unsigned lane = 0; lane < 32; ++lane)
        exchange_sums_of_bytes(i.operands[0], *lane_of(records, lane).frame, lane, 8, true);
}
void run_mma(const Instruction& i, Frame& f)
{
    all_lanes(i, f,
              i.type.kind == 'f' ? act_mma_double
              : is_bytes(i.type) ? act_mma_bytes
              : is_fp8(i.type)   ? act_mma_fp8
                                 : act_mma);
}

// ---- WMMA -----------------------------------------------------------------------------------------------------------

struct Fragments {
    int m, n, k, kind;
    bool half_sums;
    const float *a, *b, *c;
    float* d;
    const char* file;
    int line;
};

static void act_fragments(void* const* records, unsigned lanes)
{
    const auto of = [&](unsigned holder) -> const Fragments& {
        return *static_cast<const Fragments*>(records[holder ^ lanes_turned()]);
    };
    const Fragments& one = *static_cast<const Fragments*>(records[__builtin_ctz(lanes)]);
    if (lanes != ~0u)
        return watch::divergence("not all lanes of the warp multiply these fragments", one.file, one.line);
    const Short kind = static_cast<Short>(one.kind);
    const auto bits = [&](float v) -> std::uint32_t {
        return kind == Short::half ? half_of(v) : kind == Short::bfloat16 ? bfloat16_of(v) : bits_of<std::uint32_t>(v);
    };
    std::vector<float> d(one.m * one.n);
    const int depth = kind == Short::tf32 ? std::min(one.k, 8) : std::min(one.k, 16);
    for (int e = 0; e < one.m * one.n; ++e) d[e] = of(e % 32).c[e / 32];
    for (int first = 0; first < one.k; first += depth) {
        clear(one.n, depth, kind, kind);
        for (int k = 0; k < depth; ++k)
            for (int j = 0; j < one.n; ++j) {
                const int e = (first + k) * one.n + j;
                columns.set(k, j, bits(of(e % 32).b[e / 32]));
            }
        for (int r = 0; r < one.m; ++r) {
            Row row;
            row.zero = true;
            row.special = false;
            for (int k = 0; k < depth; ++k) {
                const int e = r * one.k + first + k;
                set(row, k, kind, bits(of(e % 32).a[e / 32]));
            }
            multiply(row, columns, d.data() + r * one.n, one.half_sums);
        }
    }
    for (int e = 0; e < one.m * one.n; ++e) of(e % 32).d[e / 32] = d[e];
}

}  // namespace emulator::ptx

void emulator::multiply_fragments(int m, int n, int k, int kind, bool half_sums, const float* a, const float* b,
                                  const float* c, float* d, const char* file, int line)
{
    ptx::Fragments record{m, n, k, kind, half_sums, a, b, c, d, file, line};
    together(~0u, reinterpret_cast<const void*>(ptx::act_fragments), &record, ptx::act_fragments, file, line);
}
