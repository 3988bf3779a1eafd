// Copies of tiles of one of many matrices by TMA: the maps have three dimensions, the matrix before row and column. So
// what lies beyond a matrix's last row is zero and is not written, although the next matrix lies there.
// PTX ISA: Data Movement and Conversion Instructions: cp.async.bulk.tensor.
#pragma once
#include "tensor_copy.cuh"

/// Starts the copy of the box of a matrix whose first element is (row, column) into shared memory, zeros beyond the
/// matrix's edges; the mbarrier counts the bytes.
__device__ __forceinline__ void load_box_of(int matrix, unsigned to, const TensorMap& map, int row, int column,
                                            unsigned barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(matrix) : "memory");
}

/// Starts the copy of a box from shared memory to (row, column) of a matrix; elements outside it are not written.
__device__ __forceinline__ void store_box_of(int matrix, const TensorMap& map, int row, int column, unsigned from)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
                 ::"l"(&map), "r"(from), "r"(column), "r"(row), "r"(matrix) : "memory");
}
