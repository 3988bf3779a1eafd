// Votes, shuffles and their like: each is one `together` with a record per lane.

#include <cfenv>
#include <cstdarg>
#include <cstdio>

namespace emulator {
namespace {

struct Record {
    std::uint64_t value, result;
    int kind, operand, width;
    bool is_signed;
    const char* file;
    int line;
};

template <typename F>
void for_lanes(unsigned lanes, F&& f)
{
    for (unsigned lane = 0; lane < 32; ++lane)
        if (lanes >> lane & 1) f(lane);
}

Record& record(void* const* records, unsigned lane) { return *static_cast<Record*>(records[lane]); }

void act_nothing(void* const*, unsigned) {}

void act_synchronise(void* const* records, unsigned lanes)
{
    unsigned threads[32], count = 0;
    for_lanes(lanes, [&](unsigned lane) { threads[count++] = record(records, lane).value; });
    watch::join(threads, count);
}

void act_whole(void* const* records, unsigned lanes)
{
    const Record& one = record(records, __builtin_ctz(lanes));
    if (lanes != ~0u)
        watch::divergence("not all lanes of the warp load or store this fragment, which needs all", one.file, one.line);
}

void act_active(void* const* records, unsigned lanes)
{
    for_lanes(lanes, [&](unsigned lane) { record(records, lane).result = lanes; });
}

void act_vote(void* const* records, unsigned lanes)
{
    unsigned ballot = 0;
    for_lanes(lanes, [&](unsigned lane) { ballot |= unsigned(record(records, lane).value != 0) << lane; });
    for_lanes(lanes, [&](unsigned lane) {
        Record& r = record(records, lane);
        switch (static_cast<Vote>(r.kind)) {
        case Vote::ballot: r.result = ballot; break;
        case Vote::any: r.result = ballot != 0; break;
        case Vote::all: r.result = ballot == lanes; break;
        case Vote::uniform: r.result = ballot == 0 || ballot == lanes; break;
        }
    });
}

void act_shuffle(void* const* records, unsigned lanes)
{
    for_lanes(lanes, [&](unsigned lane) {
        Record& r = record(records, lane);
        const int width = r.width, first = lane & ~(width - 1), me = lane;
        int from = me;
        switch (static_cast<Shuffle>(r.kind)) {
        case Shuffle::index: from = first | (r.operand & (width - 1)); break;
        case Shuffle::up: from = me - r.operand < first ? me : me - r.operand; break;
        case Shuffle::down: from = me + r.operand >= first + width ? me : me + r.operand; break;
        case Shuffle::exclusive_or: from = (me ^ r.operand) >= first + width ? me : (me ^ r.operand) & 31; break;
        }
        if (lanes >> from & 1) {
            r.result = record(records, from).value;
        } else {
            char text[96];
            std::snprintf(text, sizeof text, "lane %d of a warp reads the value of lane %d, which is not there", me, from);
            r.result = 0xdeadbeefdeadbeef;
            watch::divergence(text, r.file, r.line);
        }
    });
}

void act_match(void* const* records, unsigned lanes)
{
    for_lanes(lanes, [&](unsigned lane) {
        Record& r = record(records, lane);
        r.result = 0;
        for_lanes(lanes, [&](unsigned other) { r.result |= std::uint64_t(record(records, other).value == r.value) << other; });
        if (r.kind && r.result != lanes) r.result = 0;
    });
}

void act_reduce(void* const* records, unsigned lanes)
{
    const Record& one = record(records, __builtin_ctz(lanes));
    std::uint32_t all = one.value;
    for_lanes(lanes & (lanes - 1), [&](unsigned lane) {
        const std::uint32_t value = record(records, lane).value;
        const bool less = one.is_signed ? static_cast<std::int32_t>(value) < static_cast<std::int32_t>(all) : value < all;
        switch (static_cast<Reduction>(one.kind)) {
        case Reduction::add: all += value; break;
        case Reduction::minimum: all = less ? value : all; break;
        case Reduction::maximum: all = less ? all : value; break;
        case Reduction::conjunction: all &= value; break;
        case Reduction::disjunction: all |= value; break;
        case Reduction::exclusive_or: all ^= value; break;
        }
    });
    for_lanes(lanes, [&](unsigned lane) { record(records, lane).result = all; });
}

std::uint64_t exchange(unsigned mask, void (*act)(void* const*, unsigned), Record r)
{
    together(mask, reinterpret_cast<const char*>(act) + r.kind, &r, act, r.file, r.line);
    return r.result;
}

}  // namespace

void synchronise_warp(unsigned mask, const char* file, int line)
{
    exchange(mask, act_synchronise, {thread_number(), 0, 0, 0, 0, false, file, line});
}
unsigned active_mask(const char* file, int line) { return exchange(0, act_active, {0, 0, 0, 0, 0, false, file, line}); }
unsigned vote(Vote kind, unsigned mask, bool predicate, const char* file, int line)
{
    return exchange(mask, act_vote, {predicate, 0, int(kind), 0, 0, false, file, line});
}
void whole_warp(const void* address, unsigned pitch, const char* file, int line)
{
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (at % 32 || pitch % 16)
        watch::misaligned(thread_name(thread_number()) + " loads or stores a fragment " +
                              (at % 32 ? "at an address that 32 bytes do not divide"
                                       : "whose rows are " + std::to_string(pitch) + " bytes apart, which 16 do not divide"),
                          file, line);
    exchange(~0u, act_whole, {0, 0, 0, 0, 0, false, file, line});
}
std::uint64_t shuffle(Shuffle kind, unsigned mask, std::uint64_t value, int operand, int width, const char* file, int line)
{
    return exchange(mask, act_shuffle, {value, 0, int(kind), operand, width, false, file, line});
}
unsigned match(bool all, unsigned mask, std::uint64_t value, const char* file, int line)
{
    return exchange(mask, act_match, {value, 0, all, 0, 0, false, file, line});
}
std::uint32_t reduce(Reduction kind, bool is_signed, unsigned mask, std::uint32_t value, const char* file, int line)
{
    return exchange(mask, act_reduce, {value, 0, int(kind), 0, 0, is_signed, file, line});
}
bool elect(unsigned mask, unsigned* lane, const char* file, int line)
{
    const unsigned first = __builtin_ctz(mask);
    exchange(mask, act_nothing, {0, 0, 0, 0, 0, false, file, line});
    if (lane) *lane = first;
    return thread_number() % 32 == first;
}

// ---- Arithmetic that the compiler must not do itself --------------------------------------------------------------------

namespace {
/// What `f` returns if the CPU rounds that way. What it calculates with is volatile, so that it is calculated there.
template <typename F>
auto with(Rounding rounding, F f)
{
    static constexpr int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    const int before = std::fegetround();
    std::fesetround(modes[static_cast<int>(rounding)]);
    const volatile auto result = f();
    std::fesetround(before);
    return result;
}
template <typename T>
T calculated(Rounding rounding, Calculation what, T first, T second, T third)
{
    const volatile T a = first, b = second, c = third;
    return with(rounding, [&]() -> T {
        switch (what) {
        case Calculation::add: return a + b;
        case Calculation::subtract: return a - b;
        case Calculation::multiply: return a * b;
        case Calculation::divide: return a / b;
        case Calculation::multiply_add: return std::fma(a, b, c);
        case Calculation::root: return std::sqrt(a);
        }
        return 0;
    });
}
template <typename To, typename From>
To converted(Rounding rounding, From from)
{
    const volatile From a = from;
    return with(rounding, [&] { return static_cast<To>(a); });
}
}  // namespace

float rounded(Rounding r, Calculation what, float a, float b, float c) { return calculated(r, what, a, b, c); }
double rounded(Rounding r, Calculation what, double a, double b, double c) { return calculated(r, what, a, b, c); }
float rounded_float(Rounding r, double a) { return converted<float>(r, a); }
float rounded_float(Rounding r, long long a) { return converted<float>(r, a); }
float rounded_float(Rounding r, unsigned long long a) { return converted<float>(r, a); }
double rounded_double(Rounding r, long long a) { return converted<double>(r, a); }
double rounded_double(Rounding r, unsigned long long a) { return converted<double>(r, a); }

double sine_of_turns(double a) { return std::sin(M_PI * std::remainder(a, 2)); }
double cosine_of_turns(double a) { return std::cos(M_PI * std::remainder(a, 2)); }
double inverse_error(double a)
{
    if (!(a > -1 && a < 1)) return a == 1 || a == -1 ? a * HUGE_VAL : NAN;
    double x = 0;  // Newton's method, from Winitzki's approximation
    const double l = std::log1p(-a * a), t = 2 / (M_PI * 0.147) + l / 2;
    x = std::copysign(std::sqrt(std::sqrt(t * t - l / 0.147) - t), a);
    for (int step = 0; step < 4; ++step) x -= (std::erf(x) - a) / (2 / std::sqrt(M_PI) * std::exp(-x * x));
    return x;
}

// ---- What a thread does by itself, and the tracer must know ----------------------------------------------------------

void atomic_access(const void* address, unsigned size)
{
    asks(address, size, __builtin_return_address(0));
    watch::atomic(address, size, true, __builtin_return_address(0));
}
// As much as a GPU keeps of it.
std::string printed;
constexpr std::size_t most_printed = 1 << 20;
int print(const char* format, ...)
{
    char text[4096];
    std::va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length > 0) printed.append(text, std::min({std::size_t(length), sizeof text - 1, most_printed - printed.size()}));
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
void trap(const char* text, const char* file, int line) { watch::trap(thread_name(thread_number()) + text, file, line); }
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
                        std::to_string(cluster_size), file, line);
    return shared_pointer(in_block_of(shared_number(address), first_rank() + rank));
}
bool is_shared(const void* address, bool own)
{
    const std::size_t rank = static_cast<std::size_t>(static_cast<const char*>(address) - shared_window) >> block_window_bits;
    return own ? rank == block_rank() : rank < cluster_blocks && rank / cluster_size == block_rank() / cluster_size;
}
unsigned rank_of_address(const void* address) { return rank_of_shared(shared_number(address)) % cluster_size; }
unsigned rank_in_cluster() { return block_rank() % cluster_size; }
dim3 cluster_dimensions() { return clusterDim; }
void arrive_in_cluster(bool relaxed, const char* file, int line) { cluster_arrive(relaxed, file, line); }
void wait_in_cluster(const char* file, int line) { cluster_wait(file, line, nullptr); }
void synchronise_grid(const char* file, int line) { grid_synchronise(file, line); }
#ifndef EMULATOR_OBSERVED
void fence(int) {}
#endif

}  // namespace emulator
