// The tensor core, as mma.sync, WMMA and wgmma use it: 16 rows of A times columns of B.
#pragma once

#include "program.h"

namespace emulator::ptx {

extern Row rows[16];
extern Columns columns;
extern float sums[16][most_columns];

void clear(unsigned count, unsigned depth, Short kind_of_rows, Short kind_of_columns, int kept = kept_bits);
void take_rows(const Operand& a, Frame& f, unsigned lane, Type t, unsigned depth, bool negated = false);
void exchange_sums(const Operand& c, Frame& f, unsigned lane, unsigned count, bool halves, bool store,
                   float (*sums)[most_columns]);

// Bytes are multiplied and added exactly: sums in 32 bits, modulo 2^32.
inline bool is_bytes(Type t) { return (t.kind == 's' || t.kind == 'u') && t.bits == 8; }
constexpr unsigned most_bytes = 32;  // of k in an instruction
struct Bytes {
    std::int32_t rows[16][most_bytes], columns[most_columns][most_bytes], sums[16][most_columns];
};
extern Bytes bytes;
inline std::int32_t byte_of(std::uint32_t v, unsigned e, bool is_signed)
{
    return is_signed ? std::int32_t(std::int8_t(v >> 8 * e)) : std::int32_t(v >> 8 * e & 0xff);
}
void take_rows_of_bytes(const Operand& a, Frame& f, unsigned lane, unsigned depth, bool is_signed);
void exchange_sums_of_bytes(const Operand& c, Frame& f, unsigned lane, unsigned count, bool store);
void multiply_bytes(unsigned count, unsigned depth);

inline Short short_of(Type t)
{
    return t.kind == 'h'   ? Short::half
           : t.kind == 'g' ? Short::bfloat16
           : t.kind == '4' ? Short::e4m3
           : t.kind == '5' ? Short::e5m2
                           : Short::tf32;
}
/// Elements in a register, and one of them.
inline unsigned per_register(Type t) { return 32 / t.bits; }
inline std::uint32_t element(std::uint32_t v, unsigned e, Type t) { return cut(v >> t.bits * e, t.bits); }

}  // namespace emulator::ptx
