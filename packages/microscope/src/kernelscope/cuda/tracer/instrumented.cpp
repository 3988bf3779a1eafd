// What instrumented code calls before each access. g++ compiles a kernel with -fsanitize=thread, bounds-strict,
// object-size and float-cast-overflow; these functions stand in for the sanitizers' libraries. The return address of a
// call names the instruction.
#include "accesses.h"

using namespace emulator;
using namespace emulator::tracer;

namespace {

struct SourceLocation {
    const char* file;
    std::uint32_t line, column;
};
struct TypeDescriptor {
    std::uint16_t kind, info;
    char name[1];
};
struct Mismatch {
    SourceLocation location;
    const TypeDescriptor* type;
    std::uint8_t alignment, kind;  // 0: a load, 1: a store, ...
};
struct OutOfBounds {
    SourceLocation location;
    const TypeDescriptor *array, *index;
};
struct Conversion {
    SourceLocation location;
    const TypeDescriptor *from, *to;
};

// CUDA's memory model has volatile accesses to global memory as strong ones; in shared memory they order nothing
// between lanes, and a kernel that relies on that is at fault.
void volatile_access(void* address, unsigned size, bool write, void* pc)
{
    if (!write) asks(address, size, pc);
    if (is_shared(reinterpret_cast<std::uintptr_t>(address)) || reinterpret_cast<std::uintptr_t>(address) % size)
        accessed(address, size, write, pc);
    else
        watch::atomic(address, size, write, pc, watch::strong);
}

// A struct: a GPU copies it in the widest pieces that its alignment allows.
void range_accessed(void* address, std::size_t size, bool write, void* pc)
{
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const unsigned piece = (at | size | 16) & -(at | size | 16);  // the largest power of 2 up to 16 that divides both
    for (std::size_t offset = 0; offset < size; offset += piece)
        accessed(static_cast<char*>(address) + offset, piece, write, pc);
}

}  // namespace

extern "C" {

#define CALLER __builtin_return_address(0)
#define ACCESSES(bytes)                                                                           \
    void __tsan_read##bytes(void* address) { accessed<bytes, false>(address, CALLER); }           \
    void __tsan_write##bytes(void* address) { accessed<bytes, true>(address, CALLER); }           \
    void __tsan_unaligned_read##bytes(void* address) { accessed<bytes, false>(address, CALLER); } \
    void __tsan_unaligned_write##bytes(void* address) { accessed<bytes, true>(address, CALLER); }
#define VOLATILE(bytes)                                                                                           \
    void __tsan_volatile_read##bytes(void* address) { volatile_access(address, bytes, false, CALLER); }           \
    void __tsan_volatile_write##bytes(void* address) { volatile_access(address, bytes, true, CALLER); }           \
    void __tsan_unaligned_volatile_read##bytes(void* address) { volatile_access(address, bytes, false, CALLER); } \
    void __tsan_unaligned_volatile_write##bytes(void* address) { volatile_access(address, bytes, true, CALLER); }
VOLATILE(1)
VOLATILE(2)
VOLATILE(4)
VOLATILE(8)
VOLATILE(16)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void __tsan_read_range(void* address, std::size_t size) { range_accessed(address, size, false, CALLER); }
void __tsan_write_range(void* address, std::size_t size) { range_accessed(address, size, true, CALLER); }
// The constructor of a class with virtual functions stores where they are.
void __tsan_vptr_update(void* address, void*) { accessed<sizeof(void*), true>(address, CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

void __ubsan_handle_out_of_bounds(const OutOfBounds* expression, std::intptr_t index)
{
    Fault fault = new_fault(Kind::out_of_bounds);
    fault.space = shared;
    fault.file = expression->location.file;
    fault.line = expression->location.line;
    fault.type = expression->array->name;
    const unsigned bits = 1u << (expression->index->info >> 1);
    fault.offset = bits >= 64 ? index : index << (64 - bits) >> (64 - bits);
    report(fault);
}

// An access that leaves a variable whose size g++ knows. What a thread has for itself lies on its stack here and has no
// cells; next to it lies what the emulator needs, so a write ends the run.
void __ubsan_handle_type_mismatch_v1(const Mismatch* access, std::uintptr_t address)
{
    if (!current || !on_stack(address)) return;
    Fault fault = new_fault(Kind::out_of_bounds);
    fault.space = shared;
    fault.file = access->location.file;
    fault.line = access->location.line;
    fault.type = access->type->name;
    fault.write = access->kind == 1;
    fault.which = Case::no_index;
    stopping |= fault.write;
    report(fault);
}

// An implicit conversion of a real number that the integer type does not have; the value comes as bits.
void __ubsan_handle_float_cast_overflow(const Conversion* conversion, std::uintptr_t bits)
{
    if (!current || conversion->from->info > 64) return;
    const double number = conversion->from->info == 32 ? bits_of<float>(std::uint32_t(bits)) : bits_of<double>(bits);
    Fault fault = new_fault(Kind::converted);
    fault.file = conversion->location.file;
    fault.line = conversion->location.line;
    std::snprintf(fault.text, sizeof fault.text,
                  "%s converts %g to %s, which does not have it; this run has a CPU's result, an explicit conversion "
                  "would have a GPU's",
                  thread_name(current->thread).c_str(), number, conversion->to->name);
    report(fault);
}

}  // extern "C"
