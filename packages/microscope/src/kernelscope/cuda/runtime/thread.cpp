// What one thread does and others must know.
#include "scheduler.h"
#include "shared_window.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace emulator {

void atomic_access(const void* address, unsigned size, Atomic kind)
{
    if (kind.reads) asks(address, size, __builtin_return_address(0));
    watch::atomic(address, size, kind.writes, __builtin_return_address(0),
                  {true, kind.reads && kind.writes, kind.of_block, kind.takes, false, kind.swaps});
}
void fence(int scope, bool shows, bool learns) { watch::fence(scope, shows, learns); }

constexpr std::size_t most_printed = 1 << 20;  // as much as a GPU keeps of it
int print(const char* format, ...)
{
    char text[4096];
    std::va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length > 0)
        printed.append(text, std::min({std::size_t(length), sizeof text - 1, most_printed - printed.size()}));
    return length;
}
int lanes_turned() { return descending || seed ? 21 : 0; }
void reads_only(const void* address, unsigned size) { watch::reads_only(address, size, __builtin_return_address(0)); }
bool touches(const void* address, std::size_t bytes, std::size_t piece, bool write)
{
    bool inside = true;
    for (std::size_t offset = 0; inside && offset < bytes; offset += piece)
        inside = watch::accesses(static_cast<const char*>(address) + offset, piece, write, __builtin_return_address(0));
    return inside;
}
void move_bytes(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void fill_bytes(void* to, int value, std::size_t bytes) { std::memset(to, value, bytes); }
void trap(const char* text, const char* file, int line)
{
    watch::trap(thread_name(thread_number()) + text, file, line);
}
long long tick()
{
    static long long now;
    return now += 64;
}
std::uint32_t number_of_shared(const void* address) { return shared_number(address); }
void* shared_at(std::uint64_t number) { return shared_pointer(number); }
void* map_shared(const void* address, unsigned rank, const char* file, int line)
{
    if (rank >= cluster_size)
        watch::trap(thread_name(thread_number()) + " maps into block " + std::to_string(rank) + " of a cluster of " +
                        std::to_string(cluster_size),
                    file, line);
    return shared_pointer(in_block_of(shared_number(address), first_rank() + rank));
}
bool is_shared(const void* address, bool own)
{
    const std::size_t rank =
        static_cast<std::size_t>(static_cast<const char*>(address) - shared_window) >> block_window_bits;
    return own ? rank == block_rank() : rank < cluster_blocks && rank / cluster_size == block_rank() / cluster_size;
}
unsigned rank_of_address(const void* address) { return rank_of_shared(shared_number(address)) % cluster_size; }
unsigned rank_in_cluster() { return block_rank() % cluster_size; }
dim3 cluster_dimensions() { return clusterDim; }
void arrive_in_cluster(bool relaxed, const char* file, int line) { cluster_arrive(relaxed, file, line); }
void wait_in_cluster(const char* file, int line) { cluster_wait(file, line, nullptr); }
void arrive_in_block(const char* file, int line) { block_arrive(file, line); }
void wait_in_block(const char* file, int line) { block_wait(file, line); }
void arrive_in_grid(const char* file, int line) { grid_arrive(file, line); }
void wait_in_grid(const char* file, int line) { grid_wait(file, line); }

}  // namespace emulator
