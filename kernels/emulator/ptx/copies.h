// Where TMA puts what it copies, and where wgmma finds it.
#pragma once

#include <cstdint>

namespace emulator::ptx {

inline std::uint32_t swizzled(std::uint32_t at, unsigned swizzle)
{
    if (swizzle == 128) return at ^ (at >> 3 & 0x70);
    if (swizzle == 64) return at ^ (at >> 3 & 0x30);
    if (swizzle == 32) return at ^ (at >> 3 & 0x10);
    return at;
}
}  // namespace emulator::ptx
