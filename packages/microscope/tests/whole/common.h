#pragma once
#include <sys/time.h>
#include <string>
#define CHECK(call) { const cudaError_t error = call; if (error != cudaSuccess) { printf("Error: %s:%d, ", __FILE__, __LINE__); exit(1); } }
inline double seconds() { struct timeval tp; gettimeofday(&tp, NULL); return ((double)tp.tv_sec + (double)tp.tv_usec * 1.e-6); }
template <typename T> T* device_copy(const T* h, size_t n) { T* d; CHECK(cudaMalloc(&d, n * sizeof(T))); CHECK(cudaMemcpy(d, h, n * sizeof(T), cudaMemcpyHostToDevice)); return d; }
__device__ __forceinline__ float sq(float x) { return x * x; }
