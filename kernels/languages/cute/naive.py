"""C = A B in CuTe DSL: one thread per element, which reads a row of A and a column of B.

After the first kernels of NVIDIA's notebooks for CuTe DSL ("Elementwise add"), which index tensors by a thread's
place; the manual begins its products with tensor cores.

A is n x p, B is p x m, C is n x m, all row-major.
"""

import cutlass
import cutlass.cute as cute


def naive(element, width, height):
    """The call of the kernel for elements of one type and blocks of one size."""

    @cute.kernel
    def kernel(A: cute.Tensor, B: cute.Tensor, C: cute.Tensor):
        x, y, _ = cute.arch.thread_idx()
        block_x, block_y, _ = cute.arch.block_idx()
        i, j = block_y * height + y, block_x * width + x
        if cute.elem_less((i, j), C.shape):
            total = element(0)
            for k in range(A.shape[1]):
                total += A[i, k] * B[k, j]
            C[i, j] = total

    @cute.jit
    def call(A: cute.Pointer, B: cute.Pointer, C: cute.Pointer, n: cutlass.Int32, p: cutlass.Int32, m: cutlass.Int32):
        tensors = (
            cute.make_tensor(A, cute.make_layout((n, p), stride=(p, 1))),
            cute.make_tensor(B, cute.make_layout((p, m), stride=(m, 1))),
            cute.make_tensor(C, cute.make_layout((n, m), stride=(m, 1))),
        )
        grid = (cute.ceil_div(m, width), cute.ceil_div(n, height), 1)
        kernel(*tensors).launch(grid=grid, block=(width, height, 1))

    return call
