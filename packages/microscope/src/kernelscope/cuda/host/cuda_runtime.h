// What nvcc includes unasked. NVRTC knows threadIdx, float4 and the rest of CUDA's own vocabulary without it, but not
// the short names that the host's headers bring along.
#pragma once
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
