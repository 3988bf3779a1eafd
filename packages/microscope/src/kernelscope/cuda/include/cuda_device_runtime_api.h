// Of what a kernel may ask of CUDA's runtime: to wait for the launch before, and to let the next one begin. Launches
// run one after the other here.
#pragma once

#include "cuda_emulator.h"

inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}
