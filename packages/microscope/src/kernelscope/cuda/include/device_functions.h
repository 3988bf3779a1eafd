// What nvcc includes without a directive, and kernels sometimes include: here it is all in cuda_emulator.h.
#pragma once

#include "cuda_emulator.h"
