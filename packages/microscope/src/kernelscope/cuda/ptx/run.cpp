// An interpreter of inline PTX, and the asynchronous units: copies (cp.async, TMA), mbarriers, tensor
// cores. docs/microscope.md lists the instructions.
//
// What is asynchronous on a GPU is late here: a copy brings its data when a thread waits for it and not before, so that
// a thread which does not wait finds the old data, and the tracer says so. Products of wgmma are the exception: their
// sums are there at once, and the tracer says so if a thread looks at one too early; what they read of shared memory is
// in use until the thread waits.
#include "copies.h"
#include "reader.h"

#include <memory>

namespace emulator::ptx {

namespace {

std::vector<std::unique_ptr<Program>> programs;

const Program& program(unsigned number, unsigned operands)
{
    if (programs.size() <= number) programs.resize(number + 1);
    if (!programs[number])
        programs[number] = std::make_unique<Program>(read(emulator_ptx_sources[number].text, operands));
    return *programs[number];
}

void block_starts()
{
    start_barriers();
    start_copies();
    start_stores();
    start_products();
}

void block_ends()
{
    end_barriers();
    end_products();
    end_stores();
    end_copies();
}

const bool registered = [] {
    beside = {block_starts, deliver, block_ends};
    return true;
}();

}  // namespace

__attribute__((noinline)) void run(unsigned number, std::uint64_t* values, unsigned count, const Place* places,
                                   unsigned outputs)
{
    for (unsigned k = 0; k < outputs; ++k) std::memcpy(&(values[k] = 0), places[k].at, std::min(places[k].bytes, 8u));
    const Program& p = program(number, count);
    std::uint64_t locals[64];
    std::unique_ptr<std::uint64_t[]> more;
    if (p.locals > 64) more = std::make_unique<std::uint64_t[]>(p.locals);
    Frame frame{values, count, more ? more.get() : locals, &emulator_ptx_sources[number], __builtin_return_address(0),
                0,      places};
    while (frame.next < p.code.size()) {
        const Instruction& i = p.code[frame.next++];
        if (i.predicate >= 0) {
            const std::uint64_t holds =
                static_cast<unsigned>(i.predicate) < count ? values[i.predicate] : frame.locals[i.predicate - count];
            if ((holds != 0) == i.unless) continue;
        }
        i.run(i, frame);
    }
    for (unsigned k = 0; k < outputs; ++k) std::memcpy(places[k].at, &values[k], std::min(places[k].bytes, 8u));
}

}  // namespace emulator::ptx

/// The first statement of inline PTX that the emulator does not know, as `file:line: name`; else "".
extern "C" __attribute__((visibility("default"))) const char* emulator_ptx_unknown()
{
    static std::string message;
    for (unsigned k = 0; emulator_ptx_sources[k].text; ++k) {
        try {
            emulator::ptx::read(emulator_ptx_sources[k].text, 1000);
        } catch (const emulator::ptx::Unknown& unknown) {
            message = std::string(emulator_ptx_sources[k].file) + ":" + std::to_string(emulator_ptx_sources[k].line) +
                      ": the emulator does not know this inline PTX: " + unknown.what();
            return message.c_str();
        }
    }
    return "";
}
