// Loads and stores of 16 bytes, and the same with a test of the edges.
#pragma once

/// As many neighbouring elements as 16 bytes hold: the widest load and store of a thread.
/// @tparam T  the element
template <typename T>
struct alignas(16) Vector {
    static constexpr int size = 16 / sizeof(T);
    T element[size];
};

/// One load of 16 bytes; `from` is a multiple of 16 bytes.
template <typename T>
__device__ __forceinline__ Vector<T> load_vector(const T* from)
{
    return *reinterpret_cast<const Vector<T>*>(from);
}

/// One store of 16 bytes; `to` is a multiple of 16 bytes.
template <typename T>
__device__ __forceinline__ void store_vector(T* to, const Vector<T>& vector)
{
    *reinterpret_cast<Vector<T>*>(to) = vector;
}

/// Whether every row of an array begins at a multiple of 16 bytes, if its first row does.
/// @param pitch  elements per row
template <typename T>
__device__ __forceinline__ bool rows_are_aligned(int pitch)
{
    return pitch % Vector<T>::size == 0;
}

/// The vector at (row, col) of a row-major array, zeros beyond its edges.
/// `aligned`: rows_are_aligned(cols); otherwise the elements come one by one.
template <typename T>
__device__ __forceinline__ Vector<T> load_within(const T* array, int row, int col, int rows, int cols, bool aligned)
{
    Vector<T> vector = {};
    if (row < rows) {
        const T* from = array + static_cast<long long>(row) * cols + col;
        if (aligned) {
            if (col < cols) vector = load_vector(from);  // aligned rows end with a whole vector
        } else {
            #pragma unroll
            for (int e = 0; e < Vector<T>::size; ++e)
                if (col + e < cols) vector.element[e] = from[e];
        }
    }
    return vector;
}

/// Stores what lies within the array; the counterpart of load_within.
template <typename T>
__device__ __forceinline__ void store_within(T* array, int row, int col, int rows, int cols, bool aligned,
                                             const Vector<T>& vector)
{
    if (row >= rows) return;
    T* to = array + static_cast<long long>(row) * cols + col;
    if (aligned) {
        if (col < cols) store_vector(to, vector);
    } else {
        #pragma unroll
        for (int e = 0; e < Vector<T>::size; ++e)
            if (col + e < cols) to[e] = vector.element[e];
    }
}
