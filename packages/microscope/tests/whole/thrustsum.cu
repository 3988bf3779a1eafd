#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>

#include <chrono>
#include <iostream>
const int N = 1000;
__global__ void square(const float* in, float* out, int n) {
  int i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i < n) out[i] = in[i] * in[i];
}
int main() {
  thrust::host_vector<float> h(N);
  for (int i = 0; i < N; i++) h[i] = i;
  thrust::device_vector<float> d_in = h;
  thrust::device_vector<float> d_out(N);
  int threads = 128;
  int blocks = (N + threads - 1) / threads;
  square<<<blocks, threads>>>(thrust::raw_pointer_cast(d_in.data()), thrust::raw_pointer_cast(d_out.data()),
                              N);
  float s = thrust::reduce(d_out.begin(), d_out.end(), 0.0f, thrust::plus<float>());
  std::cout << s << std::endl;
}
