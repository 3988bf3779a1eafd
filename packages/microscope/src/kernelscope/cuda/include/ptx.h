// Inline PTX: what kernelscope/ptx.py makes of an asm statement. The files in ptx/ interpret it.
#pragma once

#include <cstdint>
#include <type_traits>

namespace emulator::ptx {

/// The text of an asm statement, and where it stands.
struct Source {
    const char *text, *file;
    int line;
};

/// A variable that an output is written to, or that a product (wgmma) reads.
struct Place {
    void* at;
    unsigned bytes;
};
template <typename T>
__forceinline__ Place place(T& value)
{
    return {&value, sizeof value};
}
template <typename T>
__forceinline__ Place input(const T& value)
{
    return {const_cast<T*>(&value), sizeof value};
}
template <typename T>
__forceinline__ Place input(const T&&)
{
    return {};
}

/// Runs statement `number` of emulator_ptx_sources; `values` are its operands, outputs first. With `places` it takes
/// the values of the outputs from there, and leaves them there.
void run(unsigned number, std::uint64_t* values, unsigned count, const Place* places = nullptr, unsigned outputs = 0);

template <char CONSTRAINT, typename T>
__forceinline__ void put(std::uint64_t& slot, T value)  // a copy: `&A[0]` of a __restrict__ A binds to no reference
{
    if constexpr (CONSTRAINT == 'n' || std::is_integral_v<T> || std::is_enum_v<T>) {
        slot = static_cast<std::uint64_t>(value);
    } else if constexpr (std::is_pointer_v<T>) {
        slot = reinterpret_cast<std::uintptr_t>(value);
    } else {
        static_assert(sizeof(T) <= 8, "an operand of inline PTX has at most 8 bytes");
        slot = 0;
        __builtin_memcpy(&slot, &value, sizeof value);
    }
}

template <char CONSTRAINT, typename T>
__forceinline__ void take(std::uint64_t slot, T& value)
{
    constexpr unsigned bytes = CONSTRAINT == 'h' ? 2 : CONSTRAINT == 'r' || CONSTRAINT == 'f' ? 4 : 8;
    static_assert(sizeof(T) <= 8, "an operand of inline PTX has at most 8 bytes");
    if constexpr (std::is_same_v<T, bool>) {
        value = slot != 0;
    } else if constexpr (sizeof(T) > bytes && std::is_integral_v<T>) {
        value = static_cast<T>(slot);
    } else {
        [[gnu::uninitialized]] T copy;
        __builtin_memcpy(&copy, &slot, sizeof copy);
        value = copy;
    }
}

}  // namespace emulator::ptx

extern const emulator::ptx::Source emulator_ptx_sources[];
