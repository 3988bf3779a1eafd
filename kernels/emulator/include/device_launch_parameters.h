// What nvcc includes unasked, and kernels sometimes ask for: here it is all in cuda_emulator.h.
#pragma once

#include "cuda_emulator.h"
