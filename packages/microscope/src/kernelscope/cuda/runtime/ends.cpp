#include "ends.h"

#include "scheduler.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <iterator>
#include <pthread.h>
#include <sys/time.h>
#include <ucontext.h>

namespace emulator {

std::uintptr_t last_access;
volatile bool out_of_time;

namespace {

// What Python reads of how a run ended. `pc` is from the library's begin; 0 if it is not in there.
struct Stopped {
    End how;
    std::uint32_t thread, block[3];
    std::uint64_t pc, last, address;  // `last`: of the last access, `address`: what was to be read or written
    const char* file;                 // where the thread waited, if pc is 0
    std::int32_t line;
} stopped;

double seconds_left;  // of computing, for all launches until it is set again; 0: no limit
pthread_t runner;
constexpr int signals[] = {SIGPROF, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction earlier[std::size(signals)];
stack_t earlier_stack;

std::uint64_t library_offset(std::uintptr_t pc)
{
    Dl_info here, there;
    if (!dladdr(reinterpret_cast<void*>(&library_offset), &here) || !dladdr(reinterpret_cast<void*>(pc), &there))
        return 0;
    return here.dli_fbase == there.dli_fbase ? pc - reinterpret_cast<std::uintptr_t>(here.dli_fbase) : 0;
}

#if defined(__x86_64__)
// The CPU refuses the least integer divided by -1, where a GPU wraps around. Whether that was it; then the instruction,
// an idiv, is done: quotient and remainder are there.
bool divides_by_minus_one(greg_t* registers)
{
    static constexpr int numbers[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                      REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    const auto* at = reinterpret_cast<const unsigned char*>(registers[REG_RIP]);
    const unsigned rex = (*at & 0xf0) == 0x40 ? *at++ : 0;
    if (at[0] != 0xf7 || (at[1] >> 3 & 7) != 7) return false;
    ++at;
    const bool is_wide = rex & 8;
    const unsigned mode = *at >> 6, low = *at & 7, number = low | (rex & 1) << 3;
    ++at;
    std::uintptr_t address = 0;
    const auto displacement = [&](unsigned bytes) {
        std::int32_t value = 0;
        if (bytes == 1) value = (*at ^ 0x80) - 0x80;  // its sign is that of the address
        if (bytes == 4) std::memcpy(&value, at, 4);
        at += bytes;
        return value;
    };
    if (mode != 3) {
        bool has_base = true;
        unsigned base = number;
        if (low == 4) {
            const unsigned sib = *at++, index = (sib >> 3 & 7) | (rex >> 1 & 1) << 3;
            base = (sib & 7) | (rex & 1) << 3;
            if (index != 4) address += registers[numbers[index]] << (sib >> 6);
            has_base = mode || (sib & 7) != 5;
            if (!has_base) address += displacement(4);
        } else if (low == 5 && !mode) {
            has_base = false;
            address += displacement(4);
            address += reinterpret_cast<std::uintptr_t>(at);  // from the next instruction on
        }
        if (has_base) address += registers[numbers[base]] + displacement(mode == 1 ? 1 : mode == 2 ? 4 : 0);
    }
    std::int64_t divisor = mode == 3 ? registers[numbers[number]] : 0;
    if (mode != 3) std::memcpy(&divisor, reinterpret_cast<const void*>(address), is_wide ? 8 : 4);
    if ((is_wide ? divisor : static_cast<std::int32_t>(divisor)) != -1) return false;
    registers[REG_RAX] = is_wide ? registers[REG_RAX] : static_cast<std::uint32_t>(registers[REG_RAX]);
    registers[REG_RDX] = 0;
    registers[REG_RIP] = reinterpret_cast<greg_t>(at);
    return true;
}
#endif

// A thread that computes without an access or a barrier is not asked whether its time is up: the second tick ends it.
void on_signal(int number, siginfo_t* info, [[maybe_unused]] void* context)
{
    if (!pthread_equal(pthread_self(), runner)) {
        pthread_kill(runner, number);
        return;
    }
    std::uintptr_t pc = 0;
#if defined(__x86_64__)
    pc = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    pc = static_cast<ucontext_t*>(context)->uc_mcontext.pc;
#endif
    if (number == SIGPROF) {
        if (out_of_time && current) stop(End::time, pc);
        out_of_time = true;
        return;
    }
    if (!current) {  // not the kernel's doing
        sigaction(number, &earlier[std::find(signals, std::end(signals), number) - signals], nullptr);
        return;
    }
#if defined(__x86_64__)
    if (number == SIGFPE && divides_by_minus_one(static_cast<ucontext_t*>(context)->uc_mcontext.gregs)) return;
#endif
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    if (number == SIGFPE) stop(End::division, pc);
    if (number == SIGILL) stop(End::instruction, pc);
    const bool is_full = address - reinterpret_cast<std::uintptr_t>(current->stack) < guard_bytes;
    stop(is_full ? End::stack : End::address, pc, address);
}

}  // namespace

void catch_signals()
{
    static char own_stack[64 << 10];
    stack_t alternative{};
    alternative.ss_sp = own_stack;
    alternative.ss_size = sizeof own_stack;
    sigaltstack(&alternative, &earlier_stack);
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (std::size_t i = 0; i < std::size(signals); ++i) sigaction(signals[i], &action, &earlier[i]);
    runner = pthread_self();
    stopped = {};
    last_access = 0;
    out_of_time = false;
    if (seconds_left <= 0) return;
    const auto seconds = static_cast<time_t>(seconds_left);
    const auto rest = static_cast<suseconds_t>(1e6 * (seconds_left - static_cast<double>(seconds)));
    const itimerval timer{{0, 100000}, {seconds, std::max<suseconds_t>(1, rest)}};
    setitimer(ITIMER_PROF, &timer, nullptr);
}

void release_signals()
{
    if (seconds_left > 0) {
        const itimerval none{};
        itimerval left{};
        setitimer(ITIMER_PROF, &none, &left);
        const double rest =
            static_cast<double>(left.it_value.tv_sec) + 1e-6 * static_cast<double>(left.it_value.tv_usec);
        seconds_left = out_of_time ? 1e-6 : std::max(1e-6, rest);
    }
    for (std::size_t i = 0; i < std::size(signals); ++i) sigaction(signals[i], &earlier[i], nullptr);
    sigaltstack(&earlier_stack, nullptr);
}

void stop(End how, std::uintptr_t pc, std::uintptr_t address)
{
    stopped = {how,
               current->thread % slots_of_block,
               {blockIdx.x, blockIdx.y, blockIdx.z},
               library_offset(pc),
               library_offset(last_access),
               address,
               current->file,
               current->line};
    abandon();
}

}  // namespace emulator

/// How many seconds all the launches from now on may compute together; 0: as long as they like.
EMULATOR_EXPORT void emulator_limit(double seconds) { emulator::seconds_left = seconds; }

/// How the last run ended, and the names by which its `how` is known.
EMULATOR_EXPORT const char emulator_ends[] = EMULATOR_ENDS(EMULATOR_NAMED);
EMULATOR_EXPORT const void* emulator_stopped() { return &emulator::stopped; }
