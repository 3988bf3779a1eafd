// From the text of an asm statement to its program.
#pragma once

#include "program.h"

namespace emulator::ptx {

/// The program of a text with so many operands. Throws Unknown for what the interpreter does not know.
Program read(const char* text, unsigned operands);

/// Finds out which instruction this is; `name` is its operation. Throws Unknown.
void decode(Instruction& i, const std::string& name);

}  // namespace emulator::ptx
