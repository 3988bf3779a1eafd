// Of the driver's header, what a kernel's parameters may be.
#pragma once

#include "cuda_emulator.h"

struct alignas(64) CUtensorMap {
    unsigned long long opaque[16];
};
