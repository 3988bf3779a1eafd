// One-line names for the warp-wide tensor-core instructions, mma.sync and ldmatrix. All 32 threads of a warp call
// together.
//
// Section numbers move with each release of the PTX ISA manual; the names below are those of "Warp-level matrix
// multiply-accumulate instructions". In all of them g = lane / 4 and t = lane % 4.
#pragma once

// ---- double: "Matrix Fragments for mma.m8n8k4 / m16n8k4 / m16n8k8 / m16n8k16 with .f64 floating point type" ----
//   A  a[2 i + h]  row g + 8 h, column t + 4 i        B  b[i]  row t + 4 i, column g
//   C  c[2 h + v]  row g + 8 h, column 2 t + v

/// sums += a b, one 8 x 8 x 4 product (DMMA.8x8x4). Only rows g: two numbers of C per thread.
__device__ __forceinline__ void mma_8x8x4(double& c0, double& c1, double a, double b)
{
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c0), "+d"(c1) : "d"(a), "d"(b));
}

/// sums += a b, one 16 x 8 x 4 product (DMMA.16x8x4).
__device__ __forceinline__ void mma_16x8x4(double (&c)[4], const double* a, const double* b)
{
    asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3]) : "d"(a[0]), "d"(a[1]), "d"(b[0]));
}

/// sums += a b, one 16 x 8 x 8 product (DMMA.16x8x8).
__device__ __forceinline__ void mma_16x8x8(double (&c)[4], const double* a, const double* b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}

/// sums += a b, one 16 x 8 x 16 product (DMMA.16x8x16).
__device__ __forceinline__ void mma_16x8x16(double (&c)[4], const double* a, const double* b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
          "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
}

// ---- short numbers, sums in float: "Matrix Fragments for mma.m16n8k16 with floating point type" (half, bfloat16) and
//      "Matrix Fragments for mma.m16n8k8" (tf32). A register of A or B is 4 bytes: two short numbers, or one float.
//      ----

/// sums += a b, bfloat16, 16 x 8 x 16 (HMMA.16816.F32.BF16).
__device__ __forceinline__ void mma_bfloat16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// sums += a b, half, 16 x 8 x 16 (HMMA.16816.F32).
__device__ __forceinline__ void mma_half(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// sums += a b, TF32, 16 x 8 x 8 (HMMA.1688.F32.TF32). The low 13 bits of each float of a and b are ignored: round
/// first.
__device__ __forceinline__ void mma_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Four 8 x 16-byte matrices: threads 8 i to 8 i + 7 give the addresses of the rows of matrix i; thread (g, t) gets
/// bytes 4 t to 4 t + 3 of row g of each ("Warp-level matrix load instruction: ldmatrix").
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

/// The same, each 8 x 8 matrix of 2-byte elements transposed on the way ("ldmatrix", .trans).
__device__ __forceinline__ void load_matrices_transposed(unsigned (&r)[4], unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

/// The other way: four 8 x 8 matrices of 2-byte elements from registers to shared memory ("stmatrix").
__device__ __forceinline__ void store_matrices(unsigned address, unsigned a, unsigned b, unsigned c, unsigned d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
