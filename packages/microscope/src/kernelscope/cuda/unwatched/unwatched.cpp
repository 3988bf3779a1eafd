// Nobody watches: what would be a fault ends the run, or goes unnoticed.
#include "../runtime/scheduler.h"

namespace emulator {
namespace watch {
namespace {
void give_up(const std::string& text, const char* file, int line)
{
    message = std::string(file) + ":" + std::to_string(line) + ": " + text;
    abandon();
}
}  // namespace
void block_starts() {}
void thread_runs(unsigned) {}
void thread_ends(unsigned) {}
void barrier_releases(const std::vector<Fiber*>&) {}
void warp_goes_on() {}
void block_ends() {}
bool accesses(const void*, unsigned, bool, const void*) { return true; }
void atomic(const void*, unsigned, bool, const void*, Strength) {}
void reads_only(const void*, unsigned, const void*) {}
void guard(const void*, unsigned, const void*) {}
void product_begins(const void*, unsigned, unsigned, const void*, bool) {}
void products_end(unsigned) {}
void registers_fenced() {}
void remark(const std::string&, const char*, int) {}
void release(Known&) {}
void acquire(const Known&) {}
void join(const unsigned*, unsigned) {}
void finished(Known&, unsigned) {}
void meet(const Known&) {}
std::uint32_t now() { return 0; }
void learn(unsigned, std::uint32_t) {}
bool uses(const void*, unsigned, bool, const void*, Strength) { return true; }
void copy_begins(const void*, unsigned, const void*, bool) {}
void copy_ends(const void*, unsigned, unsigned) {}
void unit_reads(const void*, unsigned, const void*, unsigned) {}
bool unit_loads(const void*, unsigned, const void*, unsigned) { return true; }
void store_begins(const void*, unsigned, const void*, bool) {}
bool unit_writes(const void*, unsigned, const void*, bool) { return true; }
void store_ends(const void*, unsigned, const void*, unsigned) {}
void fence(int, bool, bool) {}
void proxy_fence(bool, bool) {}
void global_request(const void*, unsigned, bool, unsigned) {}
void block_request(const void*, unsigned) {}
void goes_by(Way) {}
void asynchrony(const std::string&, const char*, int, const void*) {}
void invalid(const std::string& text, const char* file, int line, const void*, bool last)
{
    if (last) give_up(text, file, line);
}
void divergence(const std::string&, const char*, int) {}
void misaligned(const std::string&, const char*, int) {}
void deadlock(const std::string& text, const char* file, int line, const void*)
{
    give_up("deadlock: " + text, file, line);
}
std::string place(const void*, const char* file, int line) { return std::string(file) + ":" + std::to_string(line); }
void trap(const std::string& text, const char* file, int line) { give_up(text, file, line); }
}  // namespace watch
}  // namespace emulator
