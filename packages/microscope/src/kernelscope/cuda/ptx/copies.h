// What copies have in common: boxes of tensor maps, where TMA puts them and wgmma finds them, and how they end.
#pragma once

#include "program.h"

namespace emulator::ptx {

inline std::uint32_t swizzled(std::uint32_t at, unsigned swizzle)
{
    if (swizzle == 128) return at ^ (at >> 3 & 0x70);
    if (swizzle == 64) return at ^ (at >> 3 & 0x30);
    if (swizzle == 32) return at ^ (at >> 3 & 0x10);
    return at;
}

// What a tensor map says, as kernelscope/emulator.py packs it.
struct TensorMap {
    std::uint32_t magic, rank, bytes, swizzle;  // bytes of an element
    std::uint64_t base, shape[5], pitch[5];     // the innermost dimension first; pitch in bytes
    std::uint16_t box[5], step[5];
    std::uint8_t to_tf32;  // whether elements are rounded to TF32 on their way to shared memory
};
static_assert(sizeof(TensorMap) <= 128);

/// The tensor map at an address; null, and said to be none, if there is none.
const TensorMap* map_at(std::uint64_t at, Frame& f);
std::vector<std::int64_t> coordinates(const Operand& map, Frame& f);

/// Calls f(offset in the box in bytes, address in global memory, bytes) for each row of a box that lies within the
/// array.
template <typename F>
unsigned for_rows(const TensorMap& map, const std::int64_t* at, F&& each)
{
    unsigned rows = 1;
    for (unsigned d = 1; d < map.rank; ++d) rows *= map.box[d];
    const unsigned row_bytes = map.box[0] * map.bytes;
    for (unsigned row = 0; row < rows; ++row) {
        std::uint64_t from = map.base;
        bool inside = true;
        for (unsigned d = 1, rest = row; d < map.rank; rest /= map.box[d], ++d) {
            const std::int64_t c = at[d] + static_cast<std::int64_t>(rest % map.box[d]) * map.step[d];
            inside &= c >= 0 && c < static_cast<std::int64_t>(map.shape[d]);
            from += c * map.pitch[d];
        }
        const std::int64_t first = std::max<std::int64_t>(0, -at[0]);
        const std::int64_t last = std::min<std::int64_t>(map.box[0], static_cast<std::int64_t>(map.shape[0]) - at[0]);
        if (inside && first < last)
            each(row * row_bytes + first * map.bytes, from + (at[0] + first) * map.bytes, (last - first) * map.bytes);
    }
    return rows * row_bytes;
}

/// Whether cp.async.bulk takes both addresses and the size; if not, says which it refuses.
bool takes_bulk(std::uint64_t from, std::uint64_t to, unsigned bytes, Frame& f);
/// Work that nobody has waited for outlives the block, whose shared memory is another's then.
void still_under_way(const Origin& origin, const char* what);

// Of stores.cpp.
void start_stores();
void end_stores();

}  // namespace emulator::ptx
