// What must not be, as Python reads it.
#pragma once

#include "clock.h"

#pragma GCC visibility push(hidden)
namespace emulator::tracer {

// Python reads these names; it has the words for each.
enum class Kind : std::int32_t {
#define FAULT(name, column, words) name,
#define CASE(name)
#include "faults.def"
#undef FAULT
#undef CASE
};
enum class Case : std::int32_t {
#define FAULT(name, column, words)
#define CASE(name) name,
#include "faults.def"
#undef FAULT
#undef CASE
};

struct Fault {
    Kind kind;
    Case which;
    std::int32_t space, write, other_write;  // other_write: whether the other one of a race writes
    std::int32_t same_value;                 // whether both write the same, each time
    std::int32_t size, array, launch;        // bytes of the access; its array, or -1; number of the launch
    std::int64_t offset;                     // bytes from the array's begin, or the index of an array expression
    std::uint64_t address;
    std::uint64_t pc, other_pc;  // from the library's begin; 0 if file and line are known
    std::uint64_t meeting_pc;    // of an atomic operation that does not order the two accesses of a race
    std::uint64_t load_pc;       // of a plain load whose race is with an atomic operation; else 0
    const char *file, *type;
    std::int32_t line, other_line;
    std::uint32_t block[3], other_block[3], home[3], thread, other_thread;  // home: the block whose shared memory it is
    std::uint64_t count;
    char text[1200];  // what happened, if it is said here
};

struct Access {
    std::uintptr_t address;
    unsigned size;
    bool write;
    std::uintptr_t pc;
    Space space;
    int array;  // or -1
    std::uint64_t begin;
    watch::Strength strength = watch::weak;
};

extern std::vector<Fault> faults;
extern bool stopping;  // at the first fault

void set_block(std::uint32_t (&numbers)[3], const uint3& block);
/// The number by which Python names a worker: of a thread in its block; of units as in a block of 1024 threads.
unsigned in_words(unsigned worker);
Fault new_fault(Kind kind);
Fault fault_of(Kind kind, const Access& access, Case which = Case::plain);
void report(const Fault& fault);
void report_access(Kind kind, const Access& access);
/// The fault has to do with what another instruction did.
void report_beside(Kind kind, const Access& access, Case which, std::uintptr_t pc);

}  // namespace emulator::tracer
#pragma GCC visibility pop
