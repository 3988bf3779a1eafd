"""What tests make first: builds of kernels, the Work of a task, a trace of points, a kernel of two launches, and arrays
that are played."""

from concurrent.futures import Executor, Future
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from kernelscope.emulator import Order, run
from tilewise.compile import build
from tilewise.measure.task import Work
from tilewise.study import points as study_points
from tilewise.study import registry
from tilewise.study.device import EMULATED
from tilewise.study.kernel import Kernel, LaunchEntry
from tilewise.traced.multiplication import trace_point
from tilewise.traced.traffic import trace_points

#: The study's registry, which takes a fifth of a second to read.
KERNELS = registry.load()


def built(points, kernels, device, folder, workers=1):
    """The Builds of the kernels of some points, in `folder`."""
    return build.build(build.instances(points, kernels), kernels, device, folder, workers)


def work_of(points, kernels, device, config, folder, builds=None):
    """The Work of a task with these points; what it leaves lies in `folder`, builds too if none are given."""
    folder = Path(folder)
    if builds is None:
        builds = built(points, kernels, device, folder / "build")
    task = points[0].task if points else "t"
    return Work(task, points, kernels, builds, device, config, folder / "samples", folder / "journal")


class Array(np.ndarray):
    """NumPy's arrays, with their address as CuPy's have it."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


class Here(Executor):
    """A pool that does everything at once, in this process."""

    def submit(self, function, /, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future


def traced(examined, counted, folder, kernels=None, limit=0):
    """`trace_points` in this process, as long as it takes if there is no limit."""
    return trace_points(examined, counted, kernels or KERNELS, folder, limit, Here())


def trace(kernel, dtype, shape, library=None, blocks=(), stop=False, limit=0, **parameters):
    """The row and the faults of a kernel at a shape (n, p, m), with its parameters."""
    point = study_points.point("trace", kernel.name, dtype, *shape, **parameters)
    return trace_point(kernel, point, library, blocks, stop, limit)


def product(kernel, point, library, A, B, C, device=EMULATED, **order):
    """The product of a point, by all launches of its kernel: `run` for the emulated device, or for `device`.

    Returns the workspaces by name.
    """
    plan, libraries = kernel.plan(point, device), dict.fromkeys(library.instances, library)
    return run(libraries, plan.launches, plan.workspaces, {"A": A, "B": B, "C": C}, device.limits, Order(**order))


TURN = "if (k < p && col < m) turned[col * p + k] = B[k * m + col];"
TWO = f"""
template <typename T>
__global__ void turn(const T* B, T* turned, int p, int m)
{{
    const int k = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    {TURN}
}}
template <typename T>
__global__ void mine(const T* A, const T* turned, T* C, int n, int p, int m)
{{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    T sum = 0;
    for (int k = 0; k < p; ++k) sum += A[row * p + k] * turned[col * p + k];
    C[row * m + col] = sum;
}}
"""


def two_launches(folder, text=TWO, dtypes=("float", "double"), **entry):
    """B transposed into a workspace, then multiplied by its rows."""
    (folder / "mine.cu").write_text(text)
    turn = {"block": ("16", "4"), "grid": ("ceil_div(m, 16)", "ceil_div(p, 4)"), **entry}
    launches = (
        LaunchEntry("turn", ("dtype",), arguments=("B", "turned", "p", "m"), **turn),
        LaunchEntry("mine", ("dtype",), ("8", "8"), ("8", "8"), arguments=("A", "turned", "C", "n", "p", "m")),
    )
    workspaces = {"turned": {"shape": ("m", "p"), "dtype": "dtype"}}
    return Kernel("mine", "mine", "cuda", dtypes, "mine.cu", launches=launches, workspaces=workspaces, folder=folder)


def kernel_of(folder, body, name="mine", **entry):
    """A kernel for float with this body and one block of (block_x, block_y) threads for all of C."""
    signature = f"__global__ void {name}(const T* A, const T* B, T* C, int n, int p, int m)"
    (folder / f"{name}.cu").write_text(f"template <typename T>\n{signature}\n{{\n{body}\n}}\n")
    launch = LaunchEntry(
        **{"function": name, "template": ("dtype",), "block": ("block_x", "block_y"), "covers": ("n", "m"), **entry}
    )
    return Kernel(
        name=name,
        title=name,
        kind="cuda",
        dtypes=("float", "double", "int32"),
        source=f"{name}.cu",
        parameters=("block",),
        launches=(launch,),
        folder=folder,
    )


def memory_faults(faults):
    """The faults except wrong products, which most of these little kernels compute."""
    return [fault for fault in faults if fault.kind not in ("incorrect", "order")]


def a_kernel(folder, text, *entries, dtypes=("float",), **fields):
    """A kernel of the file mine.cu in `folder`, with these launches."""
    (folder / "mine.cu").write_text(text)
    entries = entries or (LaunchEntry("mine", ("dtype",), ("block_x", "block_y"), ("block_y", "block_x")),)
    return Kernel("mine", "mine", "cuda", dtypes, "mine.cu", launches=entries, folder=folder, **fields)
