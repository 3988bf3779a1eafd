"""The microscope never calls a kernel clean of what it did not see: a clean and a faulty kernel for each construct."""

import re
import signal
from pathlib import Path

import numpy as np
import pytest
from builders import product, trace, traced

from kernelscope import compile, faults
from kernelscope.compile import build_traced
from kernelscope.emulator import HOW, Emulator
from kernelscope.fault_kinds import FaultKind
from kernelscope.shared_memory import places_of
from kernelscope.tracer import Tracer
from tilewise import UserError
from tilewise.study import columns, points
from tilewise.study.kernel import Kernel, LaunchEntry

HEAD = "const T* A, const T* B, T* C, int n, int p, int m"


def kernel_of(folder, body, before="", template=True, dynamic=0, dtypes=("float",)):
    """A kernel with this body, one block of threads for all of C, and `before` above it."""
    head = "template <typename T>\n" if template else f"using T = {dtypes[0]};\n"
    (folder / "mine.cu").write_text(f"{before}\n{head}__global__ void mine({HEAD})\n{{\n{body}\n}}\n")
    launch = LaunchEntry(
        "mine", ("dtype",) if template else (), ("block_x", "block_y"), ("n", "m"), dynamic_shared_bytes=dynamic
    )
    return Kernel("mine", "mine", "cuda", dtypes, "mine.cu", parameters=("block",), launches=(launch,), folder=folder)


def kinds_of(folder, body, shape=(1, 4, 32), threads=32, **fields):
    """The kinds of the faults of such a kernel."""
    kernel = kernel_of(folder, body, **fields)
    _, faults = trace(kernel, kernel.dtypes[0], shape, block_x=threads, block_y=1)
    return {fault.kind for fault in faults}, [str(fault) for fault in faults]


# ---- What g++ must not do to an access: each body needs one of the flags of TRACED -----------------------------------

PASSES = [  # the flag without which it is missed or wrongly found, the body, the kind to be found or None
    (
        "-fno-tree-sink",
        """const T* from = A;
        if (threadIdx.x >= 16) from = A + 1000000;
        T v = *from;
        if (threadIdx.x < 16) C[threadIdx.x] = v; else C[threadIdx.x] = 0;""",
        "out_of_bounds",
    ),
    ("-fno-tree-dce", "T v = A[threadIdx.x + 1]; (void)v; C[threadIdx.x] = 0;", "out_of_bounds"),
    ("-fno-tree-dce", "T sum = 0; for (int k = 0; k <= p; ++k) sum += A[k]; C[threadIdx.x] = 0;", "out_of_bounds"),
    ("-fno-tree-dce", "T v = C[threadIdx.x]; (void)v; C[threadIdx.x] = A[0];", "uninitialised"),
    (
        "-fno-tree-dse",
        "__shared__ T s[64]; T* t = s; t[64] = 1; s[0] = t[64] = 2; C[threadIdx.x] = 0;",
        "out_of_bounds",
    ),
    (
        "-fno-tree-loop-im",
        """__shared__ T s;
        if (n > 5) { if (threadIdx.x == 0) s = A[0]; __syncthreads(); }
        T sum = 0;
        for (int k = 0; k < p; ++k) { if (k + n > 1000) sum += s * k; }
        C[threadIdx.x] = sum;""",
        None,
    ),
    (
        "-fno-hoist-adjacent-loads",
        """__shared__ float2 pairs[32];
        pairs[threadIdx.x].x = 1;
        const float2* own = pairs + threadIdx.x;
        T v;
        if (m > 5) v = own->x; else v = own->y;
        C[threadIdx.x] = v;""",
        None,
    ),
    (
        "-ftrivial-auto-var-init",
        "T s[4]; if (n > 5) s[2] = 0; for (int k = 0; k < 4; ++k) C[threadIdx.x] = s[k];",
        "wrong",
    ),
    ("-fno-strict-aliasing", "T r[4]; *(int4*)r = *(const int4*)A; C[threadIdx.x] = r[0] + r[1] + r[2] + r[3];", None),
]


@pytest.mark.parametrize("flag, body, kind", PASSES, ids=[f"{flag}-{i}" for i, (flag, *_) in enumerate(PASSES)])
def test_no_pass_of_the_compiler_hides_or_invents_an_access(tmp_path, flag, body, kind):
    kinds, faults = kinds_of(tmp_path, body)
    if kind == "wrong":
        assert faults == [fault for fault in faults if "-1.69" in fault] and kinds == {"incorrect"}, faults
    elif kind:
        assert kind in kinds, faults
    else:
        assert kinds <= {"incorrect"}, faults


WITHOUT_TEMPLATE = [  # g++ knows every use of a shared array of a function that is no template
    ("__shared__ float s[64]; C[threadIdx.x] = s[threadIdx.x];", "uninitialised"),
    ("__shared__ float s[64]; s[threadIdx.x / 2] = A[0]; C[threadIdx.x] = 0;", "race"),
    ("__shared__ float s; s = A[0]; C[threadIdx.x] = 0;", "race"),
    ("__shared__ float s[64]; s[threadIdx.x] = A[0]; C[threadIdx.x] = s[threadIdx.x];", None),
]


@pytest.mark.parametrize("body, kind", WITHOUT_TEMPLATE)
def test_a_shared_array_that_is_only_read_or_only_written(tmp_path, body, kind):
    kinds, faults = kinds_of(tmp_path, body, template=False)
    assert kinds - {"incorrect", "order"} == ({kind} if kind else set()), faults


def test_an_array_is_read_and_written_as_another_type(tmp_path):
    """Copies of int4 of an array of floats, in registers and in shared memory, as CUDA code has them everywhere."""
    body = """    __shared__ __align__(16) T s[128];
    reinterpret_cast<int4*>(s)[threadIdx.x] = reinterpret_cast<const int4*>(B)[threadIdx.x];
    T r[4];
    *reinterpret_cast<int4*>(r) = reinterpret_cast<const int4*>(s)[threadIdx.x];
    for (int k = 0; k < 4; ++k) C[4 * threadIdx.x + k] = A[0] * r[k];"""
    assert kinds_of(tmp_path, body, shape=(1, 1, 128)) == (set(), [])


# ---- Shared memory lies where the hardware has it --------------------------------------------------------------------

LAYOUT = """__shared__ T a[36]; __shared__ double b[8]; __shared__ char c[5]; __shared__ float4 d[3];
    __shared__ __align__(4096) T e[16]; __shared__ int z; extern __shared__ T dynamic[];
    a[n] = b[n] = c[n] = d[n].x = e[n] = z = dynamic[n] = A[0];
    C[0] = a[p] + b[p] + c[p] + d[p].x + e[p] + z + dynamic[p];"""


def test_arrays_lie_as_nvidias_linker_places_them(tmp_path):
    """As in the machine code that NVRTC 13.0 makes of these declarations for sm_90: in their order, 1,024 bytes in,
    each aligned relative to that, dynamic memory last."""
    kernel = kernel_of(tmp_path, LAYOUT)
    library = Emulator(build_traced(kernel, ["mine<float>"], tmp_path / "mine.so"))
    [launch] = kernel.plan(points.point("t", "mine", "float", 1, 1, 1, block_x=1, block_y=1)).launches
    arrays = library.shared_of(launch)
    places = dict(zip((array.name for array in arrays), (place - 1024 for place in places_of(arrays))))
    assert places == {"a": 0, "b": 144, "c": 208, "d": 224, "e": 4096, "z": 4160, "dynamic": 4176}
    assert library.static_shared_bytes == {"mine<float>": 4164}


SWITCHED = """    __shared__ T buffers[SIZE];
    T* now = buffers;
    for (int i = threadIdx.x; i < SIZE; i += 32) buffers[i] = A[0];
    __syncthreads();
    const auto at = reinterpret_cast<unsigned long long>(now + FIRST + threadIdx.x);
    const T* other = reinterpret_cast<const T*>(at ^ (SIZE * 2));
    C[threadIdx.x] = *other * B[threadIdx.x];"""


@pytest.mark.parametrize("first, clean", [(0, True), (736, True), (800, False)])
def test_two_buffers_switched_by_a_bit_of_the_address(tmp_path, first, clean):
    """The second of two buffers of 4,096 bytes by XOR: wrong on a GPU from the byte 4,096 of the window on, which is
    element 768; memcheck says 0 errors there."""
    kinds, faults = kinds_of(tmp_path, SWITCHED.replace("SIZE", "2048").replace("FIRST", str(first)), shape=(1, 1, 32))
    assert (kinds == set()) == clean, faults
    assert clean or "out_of_bounds" in kinds


ALIGNED = [
    ("__shared__ __align__(1024) T s[32];", None),
    ("__shared__ __align__(2048) T s[32];", 2048),
    ("extern __shared__ __align__(1024) T s[];", None),
    ("extern __align__(4096) __shared__ T s[];", 4096),
]


@pytest.mark.parametrize("declaration, alignment", ALIGNED)
def test_an_alignment_that_no_gpu_gives_is_reported(tmp_path, declaration, alignment):
    body = f"{declaration}\ns[threadIdx.x] = A[0]; C[threadIdx.x] = s[threadIdx.x] * B[threadIdx.x];"
    kinds, faults = kinds_of(tmp_path, body, shape=(1, 1, 32), dynamic=128)
    if alignment:
        assert kinds == {"misaligned"}
        assert (
            f"mine.cu:5: error: misaligned address: s asks for an address that is a multiple of {alignment}"
            in faults[0]
        )
    else:
        assert not faults


@pytest.mark.parametrize("declaration", ["extern __shared__ T s[];", "extern __align__(16) __shared__ T s[];",
                                         "__align__(16) extern __shared__ T s[];", "extern T __shared__ s[];",
                                         "extern __shared__ T s[32];", "extern __shared__ T s[][4];"])  # fmt: skip
def test_dynamic_memory_however_it_is_declared(tmp_path, declaration):
    body = f"{declaration}\nT* t = (T*)s; t[threadIdx.x] = A[0]; C[threadIdx.x] = t[threadIdx.x] * B[threadIdx.x];"
    assert kinds_of(tmp_path, body, shape=(1, 1, 32), dynamic=128) == (set(), [])
    kinds, faults = kinds_of(tmp_path, body, shape=(1, 1, 32), dynamic=124)
    assert kinds == {"out_of_bounds"} and "writes s[31], past its end" in faults[0]


# ---- Where an access belongs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("array, size", [("A", "1 x 34 = 34"), ("B", "34 x 1 = 34")])
def test_an_access_across_an_arrays_end_names_the_array_that_it_began_in(tmp_path, array, size):
    body = f"    const float4 v = *reinterpret_cast<const float4*>({array} + 32);\n    C[0] = v.x;"
    _, faults = kinds_of(tmp_path, body, shape=(1, 34, 1), threads=1)
    place = "[0, 32]" if array == "A" else "[32, 0]"
    said = f"thread (0, 0) of block (0, 0) reads {array}{place} as 16 bytes, past the end of {array}, which has {size}"
    assert any(said in fault for fault in faults), faults


# ---- Kernels that do not come to their end ---------------------------------------------------------------------------

DOWN = "__device__ float down(const float* A, int k) { return k == -1 ? 0 : A[0] + down(A, k + 1) * 0.5f; }"
STOPPED = [  # the body, the line of the mistake (a large frame: of the head), what is said of it, and the row's status
    ("while (n) { n |= 1; }\nC[0] = n;", 5, "has not come to its end after 0.5 s of computing", "timeout"),
    ("while (A[0] == A[0]) {}\nC[0] = n;", 5, "has not come to its end after 0.5 s of computing", "timeout"),
    ("for (;;) {\n__syncthreads(); }", 6, "has not come to its end after 0.5 s of computing", "timeout"),
    ("const int q =\np / (n - 1); C[0] = q;", 6, "divides by zero", "error"),
    ("C[0] =\ndown((const float*)A, 1);", 1, "needs more local memory than the 512 KiB", "error"),
    ("T large[900000];\nfor (int k = 0; k < 900000; ++k) large[k] = A[0];\nC[0] = large[m];", 3, "512 KiB", "error"),
]


@pytest.mark.parametrize("body, line, words, status", STOPPED)
def test_a_kernel_without_an_end_ends_with_its_place(tmp_path, body, line, words, status):
    kernel = kernel_of(tmp_path, body, before=DOWN)
    row, faults = trace(kernel, "float", (1, 1, 32), limit=0.5, block_x=32, block_y=1)
    [fault] = [fault for fault in faults if fault.kind == "stopped"]
    # Threads take turns at a barrier: any of them may run when the time is up.
    x, y = fault.thread
    assert words in fault.text and f"thread ({x}, {y}) of block (0, 0)" in fault.text
    assert (x, y) == (0, 0) or ("__syncthreads" in body and 0 < x < 32 and y == 0)
    assert fault.line in (line, line - 1) and fault.block == (0, 0)
    assert (row["status"], row["message"], row["stopped"]) == (status, str(fault), 1)
    assert "global_load_requests" not in row, "what was counted up to there says nothing"


def test_large_arrays_of_a_thread_are_legal(tmp_path):
    """A GPU gives a thread 512 KiB; 32 threads with 350 KiB each wait at a barrier together."""
    body = """    T large[90000];
    for (int k = 0; k < 90000; k += 1000) large[k] = A[0];
    __syncthreads();
    C[threadIdx.x] = large[n * 89000] * B[threadIdx.x];"""
    assert kinds_of(tmp_path, body, shape=(1, 1, 32)) == (set(), [])


def test_after_a_run_that_was_ended_the_next_one_is_whole(tmp_path):
    """Signals, stacks and the clock are as before; the time is for each point anew."""
    kernel = kernel_of(tmp_path, "    while (n == 2) { n |= 2; }\n    C[threadIdx.x] = A[0] * B[threadIdx.x];")
    asked = [points.point("t", "mine", "float", n, 1, 32, block_x=32, block_y=1) for n in (1, 2, 1)]
    before = [signal.getsignal(number) for number in (signal.SIGSEGV, signal.SIGPROF, signal.SIGFPE)]
    frame, _, faults = traced(asked, [], tmp_path, {"mine": kernel}, limit=0.3)
    assert list(frame.status) == ["ok", "timeout", "ok"] and len(faults) == 1
    assert frame.stopped.tolist() == [0, 1, 0] and frame.races[0] == frame.races[2] == 0
    assert before == [signal.getsignal(number) for number in (signal.SIGSEGV, signal.SIGPROF, signal.SIGFPE)]
    assert frame.global_load_requests.isna().tolist() == [False, True, False]


def test_a_run_that_nobody_watches_says_who_cannot_go_on(tmp_path):
    kernel = kernel_of(tmp_path, "    C[0] = p / (n - 1);")
    at = points.point("t", "mine", "float", 1, 1, 32, block_x=32, block_y=1)
    library = Emulator(compile.build(kernel, ["mine<float>"], tmp_path / "mine.so"))
    A, B, C = (np.ones(shape, np.float32) for shape in ((1, 1), (1, 32), (1, 32)))
    with pytest.raises(UserError, match=r"mine: mine<float>: thread \(0, 0, 0\) of block \(0, 0, 0\) divides by zero"):
        product(kernel, at, library, A, B, C)


def test_more_than_the_machines_memory_is_refused_before_it_is_taken(tmp_path):
    kernel = kernel_of(tmp_path, "    C[0] = 1;")
    with pytest.raises(UserError, match=r"mine float 900000x900000x1 .*: tracing it needs about .* GB of memory, and"):
        trace(kernel, "float", (900_000, 900_000, 1), block_x=1, block_y=1)


# ---- Races on variables, in small elements, and between lanes --------------------------------------------------------

VARIABLES = (
    "__device__ T total; static __device__ int counter = 3; __device__ T table[64]; __constant__ T scale[2] = {1, 2};"
)
RACES = [  # what each thread does, and what is said of the race; None: there is none
    (
        "total = A[0]; C[threadIdx.x] = A[0] * B[threadIdx.x];",
        "writes total of global memory, which thread (0, 0) writes",
    ),
    ("counter += 1; C[threadIdx.x] = A[0] * B[threadIdx.x];", "counter of global memory"),
    (
        "table[threadIdx.x] = 1; C[threadIdx.x] = table[threadIdx.x ^ 1];",
        "writes table[1] of global memory, which thread (0, 0) reads",
    ),
    ("table[threadIdx.x] = 1; __syncthreads(); C[threadIdx.x] = table[threadIdx.x ^ 1] * A[0] * B[threadIdx.x];", None),
    ("if (threadIdx.x == 0) counter += 1; C[threadIdx.x] = scale[0] * A[0] * B[threadIdx.x];", None),
    (
        "__shared__ char s[32]; s[threadIdx.x] = 1; C[threadIdx.x] = s[threadIdx.x ^ 1];",
        "writes s[1] of shared memory, which thread (0, 0) reads",
    ),
    ("__shared__ char s[32]; s[threadIdx.x] = 1; C[threadIdx.x] = s[threadIdx.x] * A[0] * B[threadIdx.x];", None),
    (
        "__shared__ bool s[32]; s[threadIdx.x] = true; __syncthreads(); C[threadIdx.x] = s[31 - threadIdx.x] * A[0] * "
        "B[threadIdx.x];",
        None,
    ),
    ("__shared__ short s[32]; s[threadIdx.x] = 1; C[threadIdx.x] = s[threadIdx.x ^ 1];", "of shared memory"),
    ("__shared__ short s[32]; s[threadIdx.x] = 1; C[threadIdx.x] = s[threadIdx.x] * A[0] * B[threadIdx.x];", None),
    ("reinterpret_cast<char*>(C)[threadIdx.x / 2] = n;", "writes C[0, 0] of global memory"),
    (
        "__shared__ T s[32]; s[threadIdx.x] = 1; __syncwarp(); C[threadIdx.x] = s[threadIdx.x ^ 1] * A[0] * "
        "B[threadIdx.x];",
        None,
    ),
    (
        """__shared__ T s[32]; s[threadIdx.x] = 1; __syncwarp(threadIdx.x < 16 ? 0xffff : 0xffff0000);
        C[threadIdx.x] = s[threadIdx.x ^ 1] * A[0] * B[threadIdx.x];""",
        None,
    ),
    (
        """__shared__ T s[32]; s[threadIdx.x] = 1; __syncwarp(threadIdx.x < 16 ? 0xffff : 0xffff0000);
        C[threadIdx.x] = s[threadIdx.x ^ 16] * A[0] * B[threadIdx.x];""",
        "of shared memory, which thread",
    ),
    (
        "__shared__ T s[32]; s[threadIdx.x] = 1; C[threadIdx.x] = s[threadIdx.x ^ 1];",
        "of shared memory, which thread (0, 0)",
    ),
    ("__shared__ T s; if (threadIdx.x < 16) s = 1; else s = 2; C[threadIdx.x] = 0;", "of shared memory, which thread"),
]


@pytest.mark.parametrize("body, words", RACES, ids=map(str, range(len(RACES))))
def test_races_in_any_memory_of_any_size_between_any_threads(tmp_path, body, words):
    kinds, faults = kinds_of(tmp_path, body, shape=(1, 1, 32), before=VARIABLES.replace("T ", "float "))
    if words is None:
        assert not faults
    else:
        assert "race" in kinds and any(words in fault for fault in faults), faults


def test_a_variable_is_kept_from_launch_to_launch_and_fresh_in_each_run(tmp_path):
    """Every schedule, and every point, begins with what the program gave it, but for a second launch."""
    body = """    if (threadIdx.x == 0) count += 1;
    __syncthreads();
    C[threadIdx.x] = A[0] * B[threadIdx.x] * count;"""
    kernel = kernel_of(tmp_path, body, before="__device__ int count = 0;")
    library = build_traced(kernel, ["mine<float>"], tmp_path / "mine.so")
    for _ in range(2):
        _, [fault] = trace(kernel, "float", (1, 1, 32), library=library, block_x=32, block_y=1)
        assert fault.kind == "incorrect" and "is launched a second time; the first time changed count" in fault.text


def test_a_variable_is_global_memory_and_a_constant_is_not_counted(tmp_path):
    body = "C[threadIdx.x] = table[threadIdx.x] + scale[1];"
    row, _ = trace(
        kernel_of(tmp_path, body, before=VARIABLES.replace("T ", "float ")), "float", (1, 1, 32), block_x=32, block_y=1
    )
    assert (row["global_load_requests"], row["global_load_sectors"]) == (1, 4)


def test_the_second_constant_of_a_declaration_is_not_counted(tmp_path):
    kernel = kernel_of(tmp_path, "C[threadIdx.x] = a * b[0];", before="__constant__ float a = 3, b[4] = {1, 2};")
    row, _ = trace(kernel, "float", (1, 1, 32), block_x=32, block_y=1)
    assert row["global_load_requests"] == 0


def test_python_has_words_for_all_that_the_tracer_names(tmp_path):
    """The tracer and the runtime have the lists of kinds, ways and ends; Python reads them."""
    kernel = kernel_of(tmp_path, "C[threadIdx.x] = 0;")
    tracer = Tracer(build_traced(kernel, ["mine<float>"], tmp_path / "mine.so"), kernel)
    assert {"race"} < set(tracer.kinds) < set(FaultKind)
    told_apart = re.findall(r'case\(fault\) == "(\w+)"', Path(faults.__file__).read_text())
    assert set(tracer.cases) == {"plain", *faults.LOST_UPDATES, *faults.REGISTERS, *told_apart}
    assert set(tracer.emulator.ends) == {"reached", *HOW}
    assert {kind.column for kind in FaultKind} == {*columns.FAULTS, "unused_reads", ""}
