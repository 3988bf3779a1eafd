// A ring of stages in shared memory, which some warps fill and others read.
#pragma once

/// A place in a ring of STAGES stages, and the parity of the stages' barriers on this round.
template <int STAGES>
struct Place {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void next()
    {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};
