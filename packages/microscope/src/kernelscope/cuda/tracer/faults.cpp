#include "races.h"

#include <algorithm>
#include <cstdio>

namespace emulator {
namespace tracer {

std::vector<Fault> faults;
bool stopping;

void set_block(std::uint32_t (&numbers)[3], const uint3& block)
{
    numbers[0] = block.x;
    numbers[1] = block.y;
    numbers[2] = block.z;
}

unsigned in_words(unsigned worker)
{
    if (worker < wgmma_of_warp) return worker % slots_of_block;
    if (worker < copies_of_barrier) return 1024 + (worker - wgmma_of_warp) % (slots_of_block / 32);
    return 1024 + 32 + (worker - copies_of_barrier);
}

Fault new_fault(Kind kind)
{
    Fault fault{};
    fault.kind = kind;
    fault.array = -1;
    fault.launch = launches - 1;
    set_block(fault.block, blockIdx);
    set_block(fault.other_block, blockIdx);
    set_block(fault.home, blockIdx);
    fault.thread = in_words(running);
    fault.count = 1;
    return fault;
}

namespace {
bool is_update(const Fault& fault) { return fault.which == Case::lost_update || fault.which == Case::lost_swap; }

// Two of one kind and instruction become one: the first, unless it is of the lanes of a warp alone.
void join(Fault& first, const Fault& other)
{
    const std::uint64_t count = first.count + other.count;
    const std::int32_t same_value = first.same_value & other.same_value;
    if (first.which == Case::lanes && other.which == Case::plain)
        first.which = Case::plain;
    else if (first.which == Case::lanes && other.which != Case::lanes)
        first = other;
    first.count = count;
    first.same_value = same_value;
}

void keep(const Fault& fault)
{
    auto same = std::find_if(faults.begin(), faults.end(), [&](const Fault& f) {
        return f.kind == fault.kind && f.pc == fault.pc && f.line == fault.line && f.space == fault.space &&
               f.load_pc == fault.load_pc && is_update(f) == is_update(fault);
    });
    if (same == faults.end())
        faults.push_back(fault);
    else
        join(*same, fault);
}

// Whether it is the load with which a loop of compare-and-swaps begins: what it finds is a guess.
bool is_guess(std::uint64_t load_pc)
{
    return load_pc && std::any_of(sites.begin(), sites.end(),
                                  [&](const Site& site) { return site.guesses && site.pc == library_begin + load_pc; });
}

bool is_remark(Kind kind) { return kind == Kind::ended || kind == Kind::unordered || kind == Kind::unfenced_reuse; }
}  // namespace

void report(const Fault& fault)
{
    keep(fault);
    if (stopping && !is_remark(fault.kind)) abandon();
}

Fault fault_of(Kind kind, const Access& access, Case which)
{
    Fault fault = new_fault(kind);
    fault.which = which;
    fault.space = access.space;
    fault.write = access.write;
    fault.size = access.size;
    fault.array = access.array;
    fault.address = access.address;
    fault.offset = access.address - access.begin;
    fault.pc = access.pc - library_begin;
    if (access.space == shared)
        set_block(fault.home, cluster_index[std::min(rank_at(access.address), cluster_blocks - 1)]);
    return fault;
}

[[gnu::noinline, gnu::cold]] void report_access(Kind kind, const Access& access) { report(fault_of(kind, access)); }

[[gnu::noinline, gnu::cold]] void report_beside(Kind kind, const Access& access, Case which, std::uintptr_t pc)
{
    Fault fault = fault_of(kind, access, which);
    fault.other_pc = pc - library_begin;
    report(fault);
}

namespace {
Fault said(Kind kind, const std::string& text, const char* file, int line, const void* pc = nullptr)
{
    Fault fault = new_fault(kind);
    if (pc) fault.pc = reinterpret_cast<std::uintptr_t>(pc) - 1 - library_begin;
    fault.file = file;
    fault.line = line;
    text.copy(fault.text, sizeof fault.text - 1);
    return fault;
}
}  // namespace
}  // namespace tracer

namespace watch {

using namespace tracer;

// Python puts the place in words: the line of the asm statement, and the line that calls the function around it.
std::string place(const void* pc, const char*, int)
{
    char text[32];
    std::snprintf(text, sizeof text, "\x01%zx\x01",
                  static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(pc) - 1 - library_begin));
    return text;
}

void asynchrony(const std::string& text, const char* file, int line, const void* pc)
{
    report(said(Kind::asynchrony, text, file, line, pc));
}
void invalid(const std::string& text, const char* file, int line, const void* pc, bool last)
{
    report(said(Kind::invalid, text, file, line, pc));
    if (last) abandon();
}
void divergence(const std::string& text, const char* file, int line)
{
    report(said(Kind::divergence, text, file, line));
}
void remark(const std::string& text, const char* file, int line) { report(said(Kind::ended, text, file, line)); }
void misaligned(const std::string& text, const char* file, int line)
{
    report(said(Kind::misaligned, text, file, line));
}
void deadlock(const std::string& text, const char* file, int line, const void* pc)
{
    report(said(Kind::deadlock, text, file, line, pc));
    abandon();
}
void trap(const std::string& text, const char* file, int line)
{
    report(said(Kind::trap, text, file, line));
    abandon();
}

}  // namespace watch
}  // namespace emulator

/// The names of each Kind and of each Case, by which a Fault's `kind` and `which` are known.
EMULATOR_EXPORT const char tracer_kinds[] =
#define FAULT(name, column, words) #name " "
#define CASE(name)
#include "faults.def"
#undef FAULT
#undef CASE
    ;
EMULATOR_EXPORT const char tracer_cases[] =
#define FAULT(name, column, words)
#define CASE(name) #name " "
#include "faults.def"
#undef FAULT
#undef CASE
    ;

EMULATOR_EXPORT const emulator::tracer::Fault* tracer_faults(int* count)
{
    using namespace emulator::tracer;
    if (is_undecided) decide();
    for (Fault& fault : std::exchange(faults, {})) {
        if (is_guess(std::exchange(fault.load_pc, 0))) continue;
        keep(fault);
    }
    *count = faults.size();
    return faults.data();
}
