// The tensor core, as mma.sync, WMMA and wgmma use it: 16 rows of A times columns of B.
#pragma once

#include "program.h"

namespace emulator::ptx {

extern Row rows[16];
extern Columns columns;
extern float sums[16][most_columns];

void clear(unsigned count, unsigned depth, Short kind);
void take_rows(const Operand& a, Frame& f, unsigned lane, Type t, unsigned depth, bool negated = false);
void exchange_sums(const Operand& c, Frame& f, unsigned lane, unsigned count, bool halves, bool store,
                   float (*sums)[most_columns]);
inline Short short_of(Type t) { return t.kind == 'h' ? Short::half : t.kind == 'g' ? Short::bfloat16 : Short::tf32; }

}  // namespace emulator::ptx
