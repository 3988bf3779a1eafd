#include "shared_window.h"

#include "fibers.h"

#include <cstdlib>
#include <sys/mman.h>

namespace emulator {

char* shared_window;
char* elsewhere;
std::size_t elsewhere_bytes;

namespace {
struct Placed {
    std::size_t offset, place;  // of an array: in the library's TLS segment, and from the window's begin
};
std::vector<Placed> placed;  // the arrays of the kernel that is launched
}  // namespace

char* window()
{
    static char* const begin = [] {
        void* memory = mmap(nullptr, (most_cluster_blocks + 2) * window_alignment, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) std::abort();
        const auto least = reinterpret_cast<std::uintptr_t>(memory) + window_bytes;
        return reinterpret_cast<char*>((least + window_alignment - 1) / window_alignment * window_alignment);
    }();
    return begin;
}

}  // namespace emulator

/// Where the shared arrays of the next launches lie: `offsets` are theirs in the library's TLS segment of `bytes`
/// bytes, `places` those from the window's begin.
EMULATOR_EXPORT void emulator_place(const std::uint64_t* offsets, const std::uint64_t* places, int count,
                                    std::uint64_t bytes)
{
    using namespace emulator;
    placed.clear();
    for (int i = 0; i < count; ++i) placed.push_back({offsets[i], places[i]});
    if (elsewhere_bytes < bytes) {
        std::free(elsewhere);
        elsewhere = static_cast<char*>(std::calloc(bytes, 1));
        elsewhere_bytes = bytes;
    }
}

/// The address of a thread_local variable, instead of the C library's function: the compiler calls it by this name.
struct EmulatorTlsIndex {
    unsigned long module, offset;
};
extern "C" __attribute__((visibility("hidden"))) void* __tls_get_addr(EmulatorTlsIndex* index)
{
    using namespace emulator;
    for (const Placed& array : placed)
        if (array.offset == index->offset)
            return shared_window + array.place + (cluster_blocks > 1 && current ? block_rank() * window_alignment : 0);
    return elsewhere + index->offset;
}
