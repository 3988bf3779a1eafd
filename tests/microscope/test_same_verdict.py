"""Same code, same verdict: what NVRTC refuses the emulator refuses, and what NVRTC takes it takes, or says that it is
the emulator that lacks it. docs/microscope.md has these rows as a table."""

import pytest
from builders import traced

from kernelscope.compile import build_traced, functions
from tilewise import UserError
from tilewise.nvidia.nvrtc import compile_cubin
from tilewise.study import points
from tilewise.study.kernel import Kernel, LaunchEntry

TAKEN, REFUSED, LACKING = "takes it", "refuses it", "lacks it, and says so"
VARIABLES, ONE = "__device__ float d; __constant__ float c[2];", "int f() { return 1; }"
VIRTUAL = """struct One { __device__ virtual int f() { return 1; } };
struct Two : One { int x; __device__ Two(int n) : x(n) {} __device__ int f() override { return x; } };""".replace(
    "\n", " "
)
LIMITS = "C[0] = INT_MAX + FLT_MAX; C[1] = INT_MIN + DBL_EPSILON;"
HALVES = "C[0] = (float)hexp(half(1)) + __low2float(__hgt2(half2(1, 2), __hmax2(half2(3, 4), half2(5, 6))));"
ROUNDED = "C[0] = __fadd_rz(__dmul_ru(1, 2), __int2float_rd(n));"
PARTS = "C[0] = __vadd4(1, __funnelshift_lc(1, __vmaxs2(1, 2), 3));"
MANAGED = "__managed__ int x; __global__ void __maxnreg__(32) f() {}"
CONSTANTS = "#include <device_launch_parameters.h>\n#include <math_constants.h>"
COPIES = "<cooperative_groups/memcpy_async.h>"
#: What a kernel's file may say of a tensor map, and what takes one.
TENSOR_MAP = "typedef struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; } CUtensorMap;"
FRAGMENTS = """using namespace nvcuda::wmma; fragment<accumulator, 16, 16, 16, half> c;
    fragment<matrix_a, 16, 16, 16, half, row_major> a; fragment<matrix_b, 16, 16, 16, half, row_major> b;
    fill_fragment(c, half(0)); fill_fragment(a, half(1)); fill_fragment(b, half(1)); mma_sync(c, a, b, c);
    C[0] = c.x[0];"""
INSTANCES = """template <typename T> __global__ void g(T* c) { extern __shared__ T x[]; x[0] = 1; c[0] = x[0]; }
template __global__ void g<float>(float*); template __global__ void g<double>(double*);""".replace("\n", " ")
STANDARD = """C[0] = cuda::std::numeric_limits<float>::max() + cuda::std::array<float, 4>{}[n % 4];
    C[0] += cuda::std::sqrt(2.0f);
    cuda::std::uint32_t a = 1, b = cuda::std::is_same_v<int, float>; cuda::std::swap(a, b);
    cuda::std::size_t c = cuda::std::move(a); C[0] += c + cuda::std::get<0>(cuda::std::make_tuple(1, 2));"""
STANDARD_NAMES = "array", "limits", "cmath", "type_traits", "tuple", "utility"
STANDARD_HEADERS = "\n".join(f"#include <cuda/std/{name}>" for name in STANDARD_NAMES)
CLUSTER = (
    "__shared__ float s; __cluster_barrier_arrive(); __cluster_barrier_wait(); "
    "C[0] = *(float*)__cluster_map_shared_rank(&s, __clusterRelativeBlockRank()) + __clusterDim().x;"
)
ATOMIC = """cuda::atomic_ref<float, cuda::thread_scope_block> x(C[0]); x.fetch_add(n, cuda::std::memory_order_relaxed);
    __shared__ cuda::atomic<int, cuda::thread_scope_block> s; s.store(1); s += 2; ++s; s++; s |= 1; int old = s.load();
    while (!s.compare_exchange_weak(old, 5, cuda::memory_order_acq_rel, cuda::memory_order_relaxed)) {}
    cuda::atomic_thread_fence(cuda::memory_order_release, cuda::thread_scope_device); C[1] = s;"""
GROUPS = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;"
TILES = "C[0] = cg::tiled_partition<64>(cg::this_thread_block()).size();"
SPLIT = """auto block = cg::this_thread_block(); block.barrier_wait(block.barrier_arrive());
    auto grid = cg::this_grid(); auto token = grid.barrier_arrive(); C[0] = 1;
    grid.barrier_wait(static_cast<cg::grid_group::arrival_token&&>(token));"""
COMPLETION = "#include <cuda/barrier>\nstruct F { int x; __device__ void operator()() const noexcept {} };"
COMPLETED = """__shared__ cuda::barrier<cuda::thread_scope_block, F> b;
    if (threadIdx.x == 0) init(&b, 32, F{n}); __syncthreads(); b.arrive_and_wait();"""
LENGTHS = "C[0] = normf(3, A) + rnorm4d(1, 2, 3, 4) + cyl_bessel_i0f(n) + llmax(1, n);"
OF_FLOAT = "float s, c; sincos(A[0], &s, &c); static_assert(sizeof(sinpi(s)) == 4); C[0] = c;"
NAMED_OPERAND = 'unsigned x; asm("mov.u32 %[to], 1;" : [to] "=r"(x)); C[0] = x;'
RUNTIME, DEPENDS = "<cuda_device_runtime_api.h>", "cudaGridDependencySynchronize();"
ROWS = [  # the construct in words, what stands before the kernel, what in it, what NVRTC and what the emulator does
    ("`uint`, `ushort`", "", "uint x = n; ushort y = x; C[0] = y;", TAKEN, TAKEN),
    ("`uint64_t` after `#include <cstdint>`", "#include <cstdint>", "uint64_t x = n; C[0] = x;", TAKEN, TAKEN),
    ("`uint64_t` without it", "", "uint64_t x = n; C[0] = x;", REFUSED, REFUSED),
    ("`int8_t`, `uintptr_t` without it", "", "int8_t x = n; uintptr_t y = x; C[0] = y;", REFUSED, REFUSED),
    ("`std::max`, `std::swap`", "#include <algorithm>", "C[0] = std::max(n, p);", REFUSED, REFUSED),
    ("`std::uint32_t`", "#include <cstdint>", "std::uint32_t x = n; C[0] = x;", REFUSED, REFUSED),
    ("`INFINITY`, `NAN`", "#include <cmath>", "C[0] = INFINITY;", REFUSED, REFUSED),
    ("`FLT_MAX`, `INT_MAX` without their headers", "", "C[0] = FLT_MAX + INT_MAX;", REFUSED, REFUSED),
    ("`M_PI`", "#include <math.h>", "C[0] = M_PI;", REFUSED, REFUSED),
    ("`<type_traits>`", "#include <type_traits>", "C[0] = 1;", REFUSED, REFUSED),
    ("`<climits>`, `<cfloat>`, `<float.h>`", "#include <climits>\n#include <cfloat>", LIMITS, TAKEN, TAKEN),
    ("`<limits>`", "#include <limits>", "C[0] = 1;", REFUSED, REFUSED),
    ("`<string>`, `<map>`", "#include <string>", "C[0] = 1;", REFUSED, REFUSED),
    ("`<cstdio>`, `<vector>`, `<iostream>`: empty", "#include <cstdio>\n#include <vector>", "C[0] = 1;", TAKEN, TAKEN),
    ("`<cuda_runtime.h>`", "#include <cuda_runtime.h>", "C[0] = 1;", TAKEN, TAKEN),
    ("`<cuda_fp16.h>`", "#include <cuda_fp16.h>", "C[0] = __half2float(__float2half(n));", TAKEN, TAKEN),
    ("`half` without it", "", "half x; C[0] = 1;", REFUSED, REFUSED),
    ("`<mma.h>`", "#include <mma.h>", "C[0] = 1;", TAKEN, TAKEN),
    ("`<cooperative_groups.h>`", "#include <cooperative_groups.h>", "C[0] = 1;", TAKEN, TAKEN),
    ("`<cuda_pipeline.h>`", "#include <cuda_pipeline.h>", "C[0] = 1;", TAKEN, TAKEN),
    ("`<cuComplex.h>`", "#include <cuComplex.h>", "C[0] = cuCabsf(make_cuComplex(n, p));", TAKEN, TAKEN),
    ("`<cub/cub.cuh>`", "#include <cub/cub.cuh>", "C[0] = 1;", REFUSED, LACKING),
    ("`<cuda/barrier>`, `<cuda/pipeline>`", "#include <cuda/pipeline>", "C[0] = 1;", TAKEN, TAKEN),
    ("`<cuda/ptx>`, the functions of Hopper", "#include <cuda/ptx>", "C[0] = 1;", TAKEN, TAKEN),
    ("`<cooperative_groups/memcpy_async.h>`", f"#include {COPIES}", "C[0] = 1;", TAKEN, TAKEN),
    ("`<cuda/atomic>`: `atomic`, `atomic_ref`", "#include <cuda/atomic>", ATOMIC, TAKEN, TAKEN),
    ("`<cuda/std/complex>`", "#include <cuda/std/complex>", "C[0] = 1;", TAKEN, LACKING),
    (f"`<cuda/std/...>`: {', '.join(STANDARD_NAMES)}", STANDARD_HEADERS, STANDARD, TAKEN, TAKEN),
    ("`<cuda/std/atomic>`", "#include <cuda/std/atomic>", "C[0] = cuda::std::atomic_ref<int>(n)++;", TAKEN, TAKEN),
    ("`<cuda/std/span>`", "#include <cuda/std/span>", "C[0] = cuda::std::span<const float>(A, n)[0];", TAKEN, TAKEN),
    ("`uint32_t` after one of them", "#include <cuda/std/array>", "uint32_t x = n; C[0] = x;", TAKEN, TAKEN),
    ("`std::move` after one of them", "#include <cuda/std/cstdint>", "C[0] = std::move(n);", TAKEN, TAKEN),
    ("`<cstddef>`, `<stddef.h>`", "#include <cstddef>", "C[0] = 1;", REFUSED, REFUSED),
    ("`std::size_t`", "", "std::size_t x = 1; C[0] = x;", REFUSED, REFUSED),
    ("`__builtin_memcpy`", "", "__builtin_memcpy(C, A, 4 * n);", REFUSED, REFUSED),
    ("`memmove`, `memcmp`", "", "memmove(C, A, 4);", REFUSED, REFUSED),
    ("`assert` after `#define NDEBUG`: it asserts", "#define NDEBUG\n#include <cassert>", "assert(n);", TAKEN, TAKEN),
    ("`<cuda.h>`: `CUtensorMap`", "#include <cuda.h>", "C[0] = sizeof(CUtensorMap);", TAKEN, TAKEN),
    ("`CUtensorMap` without a declaration", "", "CUtensorMap* map; C[0] = 1;", REFUSED, REFUSED),
    ("a typedef of `CUtensorMap` before `<cuda/barrier>`", f"{TENSOR_MAP}\n#include <cuda/barrier>", "", TAKEN, TAKEN),
    ("the same after it", f"#include <cuda/barrier>\n{TENSOR_MAP}", "", TAKEN, TAKEN),
    ("WMMA with accumulators of half", "#include <mma.h>", FRAGMENTS, TAKEN, TAKEN),
    ("`rand`, `strlen`, `exit`", "", "C[0] = rand();", REFUSED, REFUSED),
    ("an array of variable length", "", "float x[n]; x[0] = 1; C[0] = x[0];", REFUSED, REFUSED),
    ("`asm` with names of operands", "", NAMED_OPERAND, REFUSED, REFUSED),
    ("`__shared__` with an initial value", "", "__shared__ float x = 1; C[0] = x;", REFUSED, REFUSED),
    ("`alignas` after `__shared__`", "", "__shared__ alignas(16) float x[4]; x[0] = 1; C[0] = x[0];", TAKEN, TAKEN),
    ("`extern __shared__ alignas(16)`", "", "extern __shared__ alignas(16) float x[]; C[0] = x[0];", REFUSED, REFUSED),
    ("`alignas(16) extern __shared__`", "", "alignas(16) extern __shared__ float x[]; C[0] = x[0];", TAKEN, TAKEN),
    ("`extern __shared__ __align__(16)`", "", "extern __shared__ __align__(16) float x[]; C[0] = x[0];", TAKEN, TAKEN),
    ("one `extern __shared__` of two types, by two instances at once", INSTANCES, "C[0] = 1;", REFUSED, REFUSED),
    ("`alignas` of a type", "struct alignas(float4) Four { float x[4]; };", "Four f; C[0] = sizeof f;", TAKEN, TAKEN),
    ("`extern __shared__` with a size", "", "extern __shared__ float x[4]; x[0] = 1; C[0] = x[0];", TAKEN, TAKEN),
    ("`throw`, `try`", "", "if (n) throw 1; C[0] = 1;", REFUSED, REFUSED),
    ("`min` and `max` of one type", "", "C[0] = min(n, p) + max(1.0f, 2.0f) + min(1u, 2u);", TAKEN, TAKEN),
    ("`min(int, unsigned)`", "", "C[0] = min(n, 2u);", TAKEN, TAKEN),
    ("`max(long long, int)`, `max(float, int)`", "", "C[0] = max(1LL, n);", REFUSED, REFUSED),
    ("`NULL`, `ptrdiff_t`, `size_t`", "", "size_t s = 1; ptrdiff_t d = s; C[0] = NULL == A ? d : s;", TAKEN, TAKEN),
    ("`printf`, `assert`, `memcpy`", "", 'assert(n); printf("x"); memcpy(C, A, 4);', TAKEN, TAKEN),
    ("`__device__` of a lambda", "", "auto f = [] __device__ (int x) { return x; }; C[0] = f(n);", REFUSED, REFUSED),
    ("lambdas", "", "auto f = [](int x) { return x; }; C[0] = f(n);", TAKEN, TAKEN),
    ("virtual functions", VIRTUAL, "Two s(n); One* one = &s; C[0] = one->f();", TAKEN, TAKEN),
    ("`__device__` and `__constant__` variables", VARIABLES, "C[0] = d + c[1];", TAKEN, TAKEN),
    ("`__forceinline__`", f"__device__ __forceinline__ {ONE}", "C[0] = f();", TAKEN, TAKEN),
    ("`__inline_hint__`", f"__device__ __inline_hint__ {ONE}", "C[0] = f();", TAKEN, TAKEN),
    ("`__noinline__`", f"__device__ __noinline__ {ONE}", "C[0] = f();", TAKEN, TAKEN),
    ("`__int_as_float`, `__brev`, `__popc`", "", "C[0] = __int_as_float(__popc(n)) + __brev(1);", TAKEN, TAKEN),
    ("`__shfl_xor_sync`, `__any_sync`", "", "C[0] = __shfl_xor_sync(~0u, n, 1) + __any_sync(1, n);", TAKEN, TAKEN),
    ("`__cluster_dims__`", "__global__ void __cluster_dims__(2, 1, 1) f() {}", "C[0] = 1;", TAKEN, TAKEN),
    ("`__clusterRelativeBlockRank`, `__cluster_map_shared_rank`", "", CLUSTER, TAKEN, TAKEN),
    ("`atomicAdd`, `atomicCAS`", "", "atomicAdd(C, 1.0f); atomicCAS((int*)C, 1, 2);", TAKEN, TAKEN),
    ("`atomicAdd` of `half2`", "#include <cuda_fp16.h>", "atomicAdd((half2*)C, half2(1, 1));", TAKEN, TAKEN),
    ("`atomicAdd` of `float4`", "", "atomicAdd((float4*)C, make_float4(1, 2, 3, 4));", TAKEN, TAKEN),
    ("a function without `__device__`", "int f() { return 1; }", "C[0] = 1;", REFUSED, REFUSED),
    ("a `constexpr` function without it", "constexpr int f() { return 1; }", "C[0] = 1;", REFUSED, REFUSED),
    ("a member without it", "struct S { int x; int f() { return x; } };", "C[0] = 1;", REFUSED, REFUSED),
    ("a variable of the file without it", "int x;", "C[0] = 1;", REFUSED, REFUSED),
    ("a constant of the file without it", "const int x = 1; constexpr int y[] = {1};", "C[0] = x + *y;", TAKEN, TAKEN),
    ("a `__device__` function that is nowhere defined", "__device__ float f(float);", "C[0] = f(1);", REFUSED, REFUSED),
    ("the same of a variable: no GPU loads it", "extern __device__ float d;", "C[0] = d;", TAKEN, REFUSED),
    ("a byte order mark", "\ufeff// It is invisible.", "C[0] = 1;", REFUSED, REFUSED),
    ("`__managed__`, `__maxnreg__`", MANAGED, "C[0] = x;", TAKEN, TAKEN),
    ("`int1`, `ulong2`", "", "int1 x{1}; ulong2 y{1, 2}; C[0] = x.x + y.y;", TAKEN, TAKEN),
    ("`isnan`, `sinpif`, `rhypotf`, `normcdff`", "", "C[0] = isnan(sinpif(rhypotf(1, normcdff(1))));", TAKEN, TAKEN),
    ("`normf`, `rnorm4d`, `cyl_bessel_i0f`, `llmax`", "", LENGTHS, TAKEN, TAKEN),
    ("`sincos`, `sinpi` of float", "", OF_FLOAT, TAKEN, TAKEN),
    ("`sinpi`, `rsqrt` of int", "", "C[0] = sinpi(n);", REFUSED, REFUSED),
    ("`__fadd_rz`, `__dmul_ru`, `__int2float_rd`", "", ROUNDED, TAKEN, TAKEN),
    ("`__vadd4`, `__vmaxs2`, `__funnelshift_lc`", "", PARTS, TAKEN, TAKEN),
    ("`__vavgu4`, `__vabs2`", "", "C[0] = __vabs2(n);", TAKEN, LACKING),
    ("`hexp`, `__hmax2`, `__hgt2`", "#include <cuda_bf16.h>\n#include <cuda_fp16.h>", HALVES, TAKEN, TAKEN),
    ("`malloc`, `new`", "", "float* x = new float[4]; x[0] = n; C[0] = x[p];", TAKEN, LACKING),
    ("`new` at a place", "", "C[0] = *new (C + n) float(p);", TAKEN, TAKEN),
    ("`cudaGridDependencySynchronize`", f"#include {RUNTIME}", f"{DEPENDS} C[0] = 2;", TAKEN, TAKEN),
    ("the same without `<cuda_device_runtime_api.h>`", "", DEPENDS, REFUSED, REFUSED),
    ("textures", "", "C[0] = tex1Dfetch<float>(0ull, n);", TAKEN, LACKING),
    ("`<cuda_fp8.h>`", "#include <cuda_fp8.h>", "C[0] = float(__nv_fp8_e4m3(A[0]));", TAKEN, TAKEN),
    ("`<device_launch_parameters.h>`, `<math_constants.h>`", CONSTANTS, "C[0] = CUDART_PI_F;", TAKEN, TAKEN),
    ("`<cooperative_groups/scan.h>`", "#include <cooperative_groups/scan.h>", "C[0] = 1;", TAKEN, TAKEN),
    ("`barrier_arrive` of a `thread_block`, of a `grid_group`", GROUPS, SPLIT, TAKEN, TAKEN),
    ("a `thread_block_tile` of more than 32 threads", GROUPS, TILES, TAKEN, TAKEN),
    ("`cuda::barrier` with a function at the end of a phase", COMPLETION, COMPLETED, TAKEN, TAKEN),
]  # fmt: skip
HEAD = "(const float* A, const float* B, float* C, int n, int p, int m)"


def kernel_of(folder, before, body):
    (folder / "mine.cu").write_text(f"{before}\n__global__ void mine{HEAD}\n{{\n{body}\n}}\n")
    return Kernel("mine", "mine", "cuda", ("float",), "mine.cu", launches=(LaunchEntry("mine"),), folder=folder)


@pytest.mark.slow
@pytest.mark.parametrize("construct, before, body, verdict, _", ROWS, ids=[row[0] for row in ROWS])
def test_verdict_of_nvrtc(tmp_path, construct, before, body, verdict, _):
    kernel = kernel_of(tmp_path, before, body)
    assert bool(message(lambda: compile_cubin(kernel, "mine", "9.0"))) == (verdict == REFUSED)


@pytest.mark.slow
@pytest.mark.parametrize("construct, before, body, _, verdict", ROWS, ids=[row[0] for row in ROWS])
def test_verdict_of_the_emulator(tmp_path, construct, before, body, _, verdict):
    """As the command does it."""
    kernel = kernel_of(tmp_path, before, body)
    found = message(lambda: (functions(kernel), build_traced(kernel, ["mine"], tmp_path / "mine.so")))
    if verdict == TAKEN:
        assert not found
    else:
        line = 1 if before and body == "C[0] = 1;" else 4 + before.count("\n")
        assert f"{tmp_path}/mine.cu:{line}: " in found, found
        assert ("the emulator has no" in found) == (verdict == LACKING), found


def message(call):
    """What a compiler says; "" if it is content."""
    try:
        call()
    except UserError as error:
        return str(error)
    return ""


DYNAMIC = "struct S {{ int n; float x = 2; }}; {} S s;"


@pytest.mark.parametrize("space", ["__constant__", "__device__"])
def test_nvrtc_refuses_a_variable_whose_value_code_makes(tmp_path, space):
    kernel = kernel_of(tmp_path, DYNAMIC.format(space), "C[0] = s.x;")
    assert "dynamic initialization" in message(lambda: compile_cubin(kernel, "mine", "9.0"))


@pytest.mark.parametrize("space", ["__constant__", "__device__"])
def test_a_variable_whose_value_code_makes_before_any_kernel_runs(tmp_path, space):
    kernel = kernel_of(tmp_path, DYNAMIC.format(space), "C[0] = s.x;")
    found = message(lambda: build_traced(kernel, ["mine"], tmp_path / "mine.so"))
    assert found == (
        f"{tmp_path}/mine.cu: a variable of the file gets its value by code that runs before any kernel, which CUDA "
        "refuses; give it a constant one"
    )


def test_an_extern_array_of_two_types_in_a_study(tmp_path):
    """For a GPU each instance is compiled by itself."""
    (tmp_path / "mine.cu").write_text(
        "template <typename T> __global__ void mine(const T* A, const T* B, T* C, int n, int p, int m)\n"
        "{ extern __shared__ T s[]; s[threadIdx.x] = A[0]; C[threadIdx.x] = s[threadIdx.x] * B[threadIdx.x]; }\n"
    )
    launch = LaunchEntry("mine", ("dtype",), ("m",), ("m",), ("n",), dynamic_shared_bytes=256)
    kernel = Kernel("mine", "mine", "cuda", ("float", "double"), "mine.cu", launches=(launch,), folder=tmp_path)
    at = [points.point("t", "mine", dtype, 1, 1, 32) for dtype in kernel.dtypes]
    frame, _, faults = traced(at, [], tmp_path, {"mine": kernel})
    assert (list(frame.status), faults) == (["ok", "ok"], [])
