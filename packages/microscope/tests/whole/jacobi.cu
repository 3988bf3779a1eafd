#include <iostream>
#include <memory>
#include <string>
#include <utility>
static constexpr int NX = 64, NY = 48;
template <typename real>
class Field {
 public:
  Field(int nx, int ny) : nx_(nx), ny_(ny) {
    cudaMallocManaged(&data_, sizeof(real) * nx * ny);
    cudaMemset(data_, 0, sizeof(real) * nx * ny);
  }
  ~Field() { cudaFree(data_); }
  real* data() { return data_; }

 private:
  int nx_, ny_;
  real* data_;
};
template <typename real, int BX, int BY>
__launch_bounds__(BX* BY) __global__
    void jacobi(const real* __restrict__ a, real* __restrict__ b, real* norm, int nx, int ny) {
  __shared__ real block_sum[BX * BY];
  const int ix = blockIdx.x * BX + threadIdx.x, iy = blockIdx.y * BY + threadIdx.y,
            t = threadIdx.y * BX + threadIdx.x;
  real d = 0;
  if (ix >= 1 && ix < nx - 1 && iy >= 1 && iy < ny - 1) {
    real v = real(0.25) *
             (a[iy * nx + ix - 1] + a[iy * nx + ix + 1] + a[(iy - 1) * nx + ix] + a[(iy + 1) * nx + ix]);
    b[iy * nx + ix] = v;
    d = v - a[iy * nx + ix];
    d *= d;
  }
  block_sum[t] = d;
  __syncthreads();
  for (int s = BX * BY / 2; s > 0; s /= 2) {
    if (t < s) block_sum[t] += block_sum[t + s];
    __syncthreads();
  }
  if (t == 0) atomicAdd(norm, block_sum[0]);
}
int main(int argc, char** argv) {
  auto name = std::string("jacobi");
  Field<float> u(NX, NY), v(NX, NY);
  float* norm;
  cudaMalloc(&norm, sizeof(float));
  const dim3 block(32, 4), grid((NX + block.x - 1) / block.x, (NY + block.y - 1) / block.y);
  float *a = u.data(), *b = v.data();
  for (int it = 0; it < 100; ++it) {
    cudaMemsetAsync(norm, 0, sizeof(float));
    jacobi<float, 32, 4><<<grid, block>>>(a, b, norm, NX, NY);
    std::swap(a, b);
  }
  cudaDeviceSynchronize();
}
