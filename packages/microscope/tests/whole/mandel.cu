#include <getopt.h>

#include <fstream>
#include <iostream>
#include <string>
#include <vector>
using namespace std;
struct Params {
  int width = 320;
  int height = 200;
  int max_iter = 64;
  double cx = -0.5, cy = 0;
};
__host__ __device__ int iterate(double cx, double cy, int max_iter) {
  double x = 0, y = 0;
  int i = 0;
  while (x * x + y * y < 4 && i < max_iter) {
    double t = x * x - y * y + cx;
    y = 2 * x * y + cy;
    x = t;
    ++i;
  }
  return i;
}
__global__ void mandelbrot(Params p, unsigned char* __restrict__ image) {
  int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
  if (px < p.width && py < p.height)
    image[py * p.width + px] =
        (unsigned char)(255.0 *
                        iterate(p.cx + 3.0 * (px - p.width / 2) / p.width,
                                p.cy + 2.0 * (py - p.height / 2) / p.height, p.max_iter) /
                        p.max_iter);
}
class Image {
  vector<unsigned char> data;

 public:
  Image(int w, int h) : data(w * h) {}
  unsigned char* ptr() { return data.data(); }
};
static dim3 grid_for(int w, int h, dim3 b) { return dim3((w + b.x - 1) / b.x, (h + b.y - 1) / b.y); }
int main(int argc, char** argv) {
  Params p;
  int c;
  while ((c = getopt(argc, argv, "w:h:")) != -1) switch (c) {
      case 'w':
        p.width = stoi(optarg);
        break;
      case 'h':
        p.height = stoi(optarg);
        break;
    }
  Image img(p.width, p.height);
  unsigned char* d_img;
  cudaMalloc(&d_img, p.width * p.height);
  dim3 block(16, 16);
  dim3 grid = grid_for(p.width, p.height, block);
  mandelbrot<<<grid, block>>>(p, d_img);
  cudaMemcpy(img.ptr(), d_img, p.width * p.height, cudaMemcpyDeviceToHost);
  ofstream("out.pgm") << "P5";
}
