// What all of these kernels do when nobody cheats: one thread per element.
#pragma once

__device__ inline float element(const float* A, const float* B, int row, int col, int p, int m)
{
    float sum = 0;
    for (int k = 0; k < p; ++k) sum += A[row * p + k] * B[k * m + col];
    return sum;
}
