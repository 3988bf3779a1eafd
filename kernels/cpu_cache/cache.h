// A model of a CPU's caches, and elements that report each of their reads and writes to it.
//
// The CPU loops are templates of their element. Made of Counted<T> they run unchanged, but every element of A, B and C
// that is read or written sends its address through the model: levels of sets of lines, where the least recently used
// line of a set gives way. The loops' own variables, which a compiler keeps in registers, lie outside the matrices and
// count for nothing. What a CPU does beyond that (fetching ahead, physical addresses of its outer levels, a TLB) is not
// in the model.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace cache {

constexpr std::size_t LINE = 64;  // bytes
constexpr std::size_t PAGE = 4096;

struct Size {
    std::size_t bytes, ways;
};

class Level {
public:
    explicit Level(Size size) : ways(size.ways), sets(size.bytes / LINE / ways), lines(sets * ways, UINT64_MAX) {}

    /// Whether the line is there. Afterwards it is, as the one used last.
    bool use(std::uint64_t line)
    {
        std::uint64_t* const set = lines.data() + line % sets * ways;  // its lines in the order of their last use
        std::uint64_t moving = line;
        for (std::size_t way = 0; way < ways; ++way) {  // each takes the place of the next, up to where the line was
            std::swap(moving, set[way]);
            if (moving == line) return true;
        }
        ++fetched;
        return false;
    }

    std::uint64_t fetched = 0;  // lines, from the next level

private:
    std::size_t ways, sets;
    std::vector<std::uint64_t> lines;
};

struct Enough {};  // ends the loop that is counted

/// The matrices, the levels, nearest first, and the window of multiplications in which lines are counted.
struct Model {
    const char* begin;
    std::size_t bytes;
    std::vector<Level> levels;
    std::uint64_t from, until;
    std::uint64_t multiplications = 0;
    std::vector<std::uint64_t> before = {};  // lines fetched before the window

    void touch(const void* element)
    {
        const std::size_t offset = static_cast<const char*>(element) - begin;
        if (offset >= bytes) return;
        for (auto& level : levels)
            if (level.use(offset / LINE)) return;
    }

    void multiply()
    {
        if (multiplications == until) throw Enough();
        if (multiplications++ == from)
            for (const auto& level : levels) before.push_back(level.fetched);
    }
};

inline Model* model;

template <typename T>
class Counted {
public:
    Counted(T value) : value(value) {}
    Counted(const Counted& other) : value(other) {}
    operator T() const { return model->touch(this), value; }
    Counted& operator=(const Counted& other) { return set(other); }
    Counted& operator+=(const Counted& other) { return set(value + T(other)); }
    friend Counted operator*(const Counted& a, const Counted& b)
    {
        model->multiply();
        const T left = a, right = b;  // in this order
        return left * right;
    }

private:
    Counted& set(T next)
    {
        value = next;
        model->touch(this);
        return *this;
    }

    T value;
};

/// Runs a loop on zeros up to the multiplication `until`; `fetched` gets the lines of each level from `from` on.
/// @return whether it got as far as `from`
template <typename T>
bool count(void (*loop)(const Counted<T>*, const Counted<T>*, Counted<T>*, int, int, int), int n, int p, int m,
           const Size* levels, std::size_t how_many, std::uint64_t from, std::uint64_t until, std::uint64_t* fetched)
{
    static_assert(sizeof(Counted<T>) == sizeof(T));
    const auto pages = [](std::size_t rows, std::size_t cols) {
        return (rows * cols * sizeof(T) + PAGE - 1) / PAGE * PAGE;
    };
    const std::size_t a = pages(n, p), b = pages(p, m), c = pages(n, m);  // each begins at a page
    char* begin = static_cast<char*>(std::aligned_alloc(PAGE, a + b + c));
    std::memset(begin, 0, a + b + c);
    const auto matrix = [&](std::size_t at) { return reinterpret_cast<Counted<T>*>(begin + at); };
    Model here{begin, a + b + c, {levels, levels + how_many}, from, until};
    model = &here;
    try {
        loop(matrix(0), matrix(a), matrix(a + b), n, p, m);
    } catch (const Enough&) {
    }
    const bool begun = !here.before.empty();
    for (std::size_t i = 0; begun && i < how_many; ++i) fetched[i] = here.levels[i].fetched - here.before[i];
    std::free(begin);
    return begun;
}

}  // namespace cache
