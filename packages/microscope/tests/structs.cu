// Structs with pointers, by value and in arrays. test_structs.py launches each with one block of 32 threads.
#include <cuda/barrier>  // it has inline PTX
#include <cuda_fp16.h>

struct Sizes {
    int rows, columns;
};
template <typename T>
struct View : Sizes {
    T* data;
    const T* row[2];
    struct {
        double by;
        short* count;
    } scale;
    __device__ T& at(int i) { return data[i]; }
};

class Hidden {
    int* p;

public:
    __device__ void store(int i, int value) { p[i] = value; }
};

namespace list {
struct Node {
    float value;
    __half small;
    int next;
    float4 more;
    Node* parent;
};
}  // namespace list

template <typename T>
__global__ void scaled(View<T> view)
{
    const int i = threadIdx.x;
    if (i < view.rows * view.columns) view.at(i) = T(view.row[0][i] + view.row[1][i] * view.scale.by);
    if (i == 0) view.scale.count[0] = view.columns;
}

template <typename T>
__global__ void scaled_out_of_bounds(View<T> view)
{
    view.at(threadIdx.x) = view.row[0][threadIdx.x];  // FAULT
}

__global__ void hidden(Hidden h) { h.store(threadIdx.x, 42); }

__global__ void hidden_race(Hidden h) { h.store(threadIdx.x / 2, threadIdx.x); }  // FAULT

__global__ void views(const View<int>* all, int n)  // an array of structs, each with an array of its own
{
    for (int k = 0; k < n; ++k)
        if (threadIdx.x < all[k].rows) all[k].data[threadIdx.x] = k;
}

__global__ void sums(const list::Node* nodes, float* out)
{
    float sum = 0;
    for (int i = 0; i >= 0; i = nodes[i].next) sum += nodes[i].value + nodes[i].parent->value + nodes[i].more.y;
    out[threadIdx.x] = sum;
}

__global__ void null(View<float> view) { view.at(threadIdx.x) = 1; }  // FAULT

struct Filter {
    int n;
    float scale;
    const float* in;
    float weight[3];
};
__constant__ Filter filter = {0, 2};
__device__ list::Node nodes_of_the_file[2];
__device__ double nothing[4][0][4];  // an array of no elements, which nobody uses
namespace held {
__device__ float* buffer;
}

__global__ void by_variables()
{
    const int i = threadIdx.x;
    if (i < filter.n) held::buffer[i] = filter.scale * filter.in[i] + filter.weight[1] + nodes_of_the_file[1].more.y;
}

__global__ void by_variables_out_of_bounds() { held::buffer[threadIdx.x] = filter.in[threadIdx.x]; }  // FAULT
