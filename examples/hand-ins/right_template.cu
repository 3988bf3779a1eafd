// A template over type and tile.
template <typename T, int TILE>
__global__ void tiled(const T *a, const T *b, T *c, size_t rows, size_t inner, size_t cols)
{
    __shared__ T as[TILE][TILE], bs[TILE][TILE];
    size_t row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    T sum = T(0);
    for (size_t first = 0; first < inner; first += TILE) {
        size_t i = first + threadIdx.x, j = first + threadIdx.y;
        as[threadIdx.y][threadIdx.x] = row < rows && i < inner ? a[row * inner + i] : T(0);
        bs[threadIdx.y][threadIdx.x] = j < inner && col < cols ? b[j * cols + col] : T(0);
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < rows && col < cols) c[row * cols + col] = sum;
}
