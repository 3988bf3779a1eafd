"""`tilewise grade` on kernels of many styles: none that is right fails, and each mistake has its hint."""

import csv
from pathlib import Path

import pytest

from tilewise.__main__ import main

LOOP = "float s = 0; for (int k = 0; k < N; ++k) s += A[i * N + k] * B[k * N + j]; C[i * N + j] = s;"
MEMBER_OF_DIM3 = f"""#define N 2048
__global__ void mm(const float *A, const float *B, float *C) {{
    int i = threadIdx.y + blockIdx.y * blockDim.y, j = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < N && j < N) {{ {LOOP} }}
}}
int main() {{ dim3 block(16, 16); dim3 grid(N / block.x, N / block.y); mm<<<grid, block>>>(0, 0, 0); }}
"""
ROW_PER_BLOCK = f"""
__global__ void mm(const float *A, const float *B, float *C, int N) {{
    int i = blockIdx.x;
    for (int j = threadIdx.x; j < N; j += blockDim.x) {{ {LOOP} }}
}}
int main() {{ int n = 500; mm<<<n, 256>>>(0, 0, 0, n); }}
"""
ENUMERATORS = f"""
enum {{ BX = 32, BY = 8 }};
__global__ void mm(const float *A, const float *B, float *C, int N) {{
    int i = blockIdx.y * BY + threadIdx.y, j = blockIdx.x * BX + threadIdx.x;
    if (i >= N || j >= N) return;
    {LOOP}
}}
int main() {{
    const dim3 block(BX, BY), grid((900 + BX - 1) / BX, (900 + BY - 1) / BY);
    mm<<<grid, block>>>(0, 0, 0, 900);
}}
"""
DOWN_A_COLUMN = f"""
#define ROW (blockIdx.x * blockDim.x + threadIdx.x)
#define COLUMN (blockIdx.y * blockDim.y + threadIdx.y)
__global__ void mm(const float *A, const float *B, float *C, int N) {{
    unsigned i = ROW, j = COLUMN;
    if (i < N && j < N) {{ {LOOP} }}
}}
"""
IN_SQUARES = f"""
__global__ void mm(const float *A, const float *B, float *C, int N) {{
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N && j < N) {{ {LOOP} }}
}}
void run(const float *A, const float *B, float *C, int N) {{
    int side = SIDE;
    dim3 block(side, side);
    int blocks = BLOCKS;
    mm<<<dim3(blocks, blocks), block>>>(A, B, C, N);
}}
"""
ONE_BLOCK = f"""#define N 64
__global__ void mm(const int *A, const int *B, int *C) {{
    for (int i = threadIdx.y; i < N; i += blockDim.y)
        for (int j = threadIdx.x; j < N; j += blockDim.x) {{ {LOOP.replace("float", "int")} }}
}}
int main() {{ mm<<<1, dim3(16, 16)>>>(0, 0, 0); }}
"""
NAMES = """
__global__ void mm(const float *X, const float *Y, float *Z, int num_rows_X, int num_cols_X, int num_rows_Y,
                   int num_cols_Y, int num_rows_Z, int num_cols_Z) {
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= num_rows_Z || j >= num_cols_Z) return;
    float s = 0;
    for (int k = 0; k < num_cols_X; ++k) s += X[i * num_cols_X + k] * Y[k * num_cols_Y + j];
    Z[i * num_cols_Z + j] = s;
}
"""
SMALL_CONSTANTS = """
#define ROWS 10
#define INNER 20
#define COLUMNS 15
__global__ void mm(int *C, int *A, int *B) {
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < ROWS && j < COLUMNS) {
        int s = 0;
        for (int k = 0; k < INNER; ++k) s += A[i * INNER + k] * B[k * COLUMNS + j];
        C[i * COLUMNS + j] = s;
    }
}
"""
BROKEN = """
__global__ void mm(float *__restrict__ A, float *__restrict__ B, float *__restrict__ C, int N) {
    auto at = [&N](int y, int x) { return y * N + x; };
    for (int y = 0; y < N; ++y) {
        float s;
        for (i = 0; i < N < i ++) { s += A[at(y, i)] * B[at(i, threadIdx.x)] }
        C[at(y, threadIdx.x)] = s;
    }

}"""
NAIVE = {
    "does_not_compile": BROKEN,
    "right_small_constants": SMALL_CONSTANTS,
    "right_one_block_of_integers": ONE_BLOCK,
    "right_names_of_sizes": NAMES,
    "right_member_of_dim3": MEMBER_OF_DIM3,
    "right_row_per_block": ROW_PER_BLOCK,
    "right_enumerators": ENUMERATORS,
    "column_index": DOWN_A_COLUMN,
    "launch_refused": IN_SQUARES.replace("SIDE", "64").replace("BLOCKS", "(N + side - 1) / side"),
    "grid_division": IN_SQUARES.replace("SIDE", "16").replace("BLOCKS", "N / side"),
}

DYNAMIC = """
__global__ void mm(float *A, float *B, float *C, int N, unsigned a_sz, unsigned b_sz) {
    extern __shared__ char memory[];
    float *a = (float *)memory, *b = (float *)(memory + a_sz);
    int w = blockDim.x, tx = threadIdx.x, ty = threadIdx.y, i = blockIdx.y * w + ty, j = blockIdx.x * w + tx;
    float s = 0;
    for (int t = 0; t < N; t += w) {
        a[ty * w + tx] = i < N && t + tx < N ? A[i * N + t + tx] : 0;
        b[ty * w + tx] = j < N && t + ty < N ? B[(t + ty) * N + j] : 0;
        __syncthreads();
        for (int k = 0; k < w; ++k) s += a[ty * w + k] * b[k * w + tx];
        __syncthreads();
    }
    if (i < N && j < N) C[i * N + j] = s;
}
"""
BUFFERS = """#define T 16
__global__ void mm(const float *A, const float *B, float *C, int n, int p, int m) {
    __shared__ float a[2][T][T], b[2][T][T];
    int ty = threadIdx.y, tx = threadIdx.x, i = blockIdx.y * T + ty, j = blockIdx.x * T + tx;
    a[0][ty][tx] = i < n && tx < p ? A[i * p + tx] : 0;
    b[0][ty][tx] = ty < p && j < m ? B[ty * m + j] : 0;
    __syncthreads();
    float s = 0;
    for (int t = 0, now = 0; t < p; t += T, now ^= 1) {
        a[now ^ 1][ty][tx] = i < n && t + T + tx < p ? A[i * p + t + T + tx] : 0;
        b[now ^ 1][ty][tx] = t + T + ty < p && j < m ? B[(t + T + ty) * m + j] : 0;
        for (int k = 0; k < T; ++k) s += a[now][ty][k] * b[now][k][tx];
        __syncthreads();
    }
    if (i < n && j < m) C[i * m + j] = s;
}
"""
IN_CONDITION = """#define T 16
__global__ void mm(const float *A, const float *B, float *C, int n, int p, int m) {
    __shared__ float a[T][T], b[T][T];
    int ty = threadIdx.y, tx = threadIdx.x, i = blockIdx.y * T + ty, j = blockIdx.x * T + tx;
    float s = 0;
    if (i < n && j < m) {
        for (int t = 0; t < p; t += T) {
            a[ty][tx] = t + tx < p ? A[i * p + t + tx] : 0;
            b[ty][tx] = t + ty < p ? B[(t + ty) * m + j] : 0;
            __syncthreads();
            for (int k = 0; k < T; ++k) s += a[ty][k] * b[k][tx];
            __syncthreads();
        }
        C[i * m + j] = s;
    }
}
"""
NO_EDGE = """
template <int W> __global__ void mm(float *C, float *A, float *B, int wA, int wB) {
    __shared__ float a[W][W], b[W][W];
    int ty = threadIdx.y, tx = threadIdx.x, i = blockIdx.y * W + ty, j = blockIdx.x * W + tx;
    float s = 0;
    for (int t = 0; t < wA; t += W) {
        a[ty][tx] = A[i * wA + t + tx];
        b[ty][tx] = B[(t + ty) * wB + j];
        __syncthreads();
        for (int k = 0; k < W; ++k) s += a[ty][k] * b[k][tx];
        __syncthreads();
    }
    C[i * wB + j] = s;
}
void run(int width, dim3 threads, dim3 grid) { mm<32><<<grid, threads>>>(0, 0, 0, width, width); }
"""
TWO_IN_NAMESPACES = f"""
namespace tiled {{
namespace {{ {BUFFERS.replace("void mm", "void tiled_mm").removeprefix("#define T 16")} }}
}}
namespace other {{
{BUFFERS.replace("void mm", "void coarsened_tiled_mm").removeprefix("#define T 16").replace("s += a", "s -= a")}
}}
"""
TILED = {
    "right_one_of_two_in_namespaces": "#define T 16" + TWO_IN_NAMESPACES,
    "right_bytes_of_shared_memory": DYNAMIC,
    "right_two_buffers": BUFFERS,
    "barrier_in_condition": IN_CONDITION,
    "edge_not_tested": NO_EDGE,
}

COLUMNS_PER_THREAD = """#define T 16
#define FACTOR 4
__global__ void mm(float *A, float *B, float *C, int N) {
    __shared__ float a[T][T], b[T][T];
    int ty = threadIdx.y, tx = threadIdx.x, i = blockIdx.y * T + ty, first = blockIdx.x * T * FACTOR + tx;
    float s[FACTOR]BEGIN;
    for (int t = 0; t < N; t += T) {
        a[ty][tx] = i < N && t + tx < N ? A[i * N + t + tx] : 0;
        for (int c = 0; c < FACTOR; ++c) {
            b[ty][tx] = first + c * T < N && t + ty < N ? B[(t + ty) * N + first + c * T] : 0;
            __syncthreads();
            for (int k = 0; k < T; ++k) s[c] += a[ty][k] * b[k][tx];
            __syncthreads();
        }
    }
    for (int c = 0; c < FACTOR; ++c)
        if (i < N && first + c * T < N) C[i * N + first + c * T] = s[c];
}
"""
ROWS_PER_THREAD = """#define DIVIDED(a, b) (((a) + (b) - 1) / (b))
template <int BM, int BN, int BK, int TM>
__global__ void mm(int M, int N, int K, const float *A, const float *B, float *C) {
    __shared__ float a[BM * BK], b[BK * BN];
    const int column = threadIdx.x % BN, row = threadIdx.x / BN;
    float s[TM] = {0};
    for (int t = 0; t < K; t += BK) {
        const int i = blockIdx.y * BM + threadIdx.x / BK, k = t + threadIdx.x % BK, j = blockIdx.x * BN + column;
        a[threadIdx.x] = i < M && k < K ? A[i * K + k] : 0;
        b[threadIdx.x] = t + row < K && j < N ? B[(t + row) * N + j] : 0;
        __syncthreads();
        for (int q = 0; q < BK; ++q)
            for (int r = 0; r < TM; ++r) s[r] += a[(row * TM + r) * BK + q] * b[q * BN + column];
        __syncthreads();
    }
    for (int r = 0; r < TM; ++r) {
        const int i = blockIdx.y * BM + row * TM + r, j = blockIdx.x * BN + column;
        if (i < M && j < N) C[i * N + j] = s[r];
    }
}
void run(int M, int N, int K, const float *A, const float *B, float *C) {
    const unsigned BM = 64, BN = 64, BK = 8, TM = 8;
    dim3 grid(DIVIDED(N, BN), DIVIDED(M, BM)), block(BM * BN / TM);
    mm<BM, BN, BK, TM><<<grid, block>>>(M, N, K, A, B, C);
}
"""
MULTI_TILE = {
    "right_columns_per_thread": COLUMNS_PER_THREAD.replace("BEGIN", " = {}"),
    "right_rows_per_thread": ROWS_PER_THREAD,
    "uninitialised_sum": COLUMNS_PER_THREAD.replace("BEGIN", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize(("task", "texts"), [("naive", NAIVE), ("tiled", TILED), ("multi_tile", MULTI_TILE)])
def test_styles(tmp_path: Path, monkeypatch, task: str, texts: dict[str, str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "in").mkdir()
    for name, text in texts.items():
        (tmp_path / "in" / f"{name}.cu").write_text(text, encoding="utf-8")
    assert main(["grade", str(tmp_path / "in"), "--task", task, "--output", str(tmp_path / "out")]) == 1
    with (tmp_path / "out/grades.csv").open(encoding="utf-8") as file:
        found = {row["student"]: row["mistakes"] for row in csv.DictReader(file)}
    assert found == {name: "" if name.startswith("right") else name for name in texts}
