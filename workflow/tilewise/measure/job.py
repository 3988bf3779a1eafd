"""A point bound to a machine: its launches, its build, and the columns of its row that are known before it is run."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from kernelscope.files import digest
from kernelscope.launch import Plan, TensorMap
from tilewise.compile.build import Builds
from tilewise.study import columns
from tilewise.study.builds import library_sha256, sha256_of
from tilewise.study.device import Device
from tilewise.study.jobs import Job, Row
from tilewise.study.kernel import LANGUAGES, Kernel, Kind
from tilewise.study.points import Point
from tilewise.study.precision import ON_TENSOR_CORES
from tilewise.study.status import Status


def prepare(
    point: Point,
    kernel: Kernel,
    builds: Builds,
    device: Device,
    config: Mapping[str, Any],
) -> Job:
    """A point as a Job. Its row has the status `error` until it is run, or already the reason why it cannot be."""
    backend = backend_of(kernel, device.backend)
    plan = kernel.plan(point, device)
    product = plan.product
    row: Row = dict.fromkeys(columns.column_names("measurements", kernel.columns)) | point.columns()
    row |= {"platform": device.platform, "status": Status.ERROR, "message": "", "samples": 0}
    row |= plan_columns(kernel, point, plan, device)
    files: dict[str, tuple[str, str]] = {}
    if kernel.source:
        row["build_sha256"] = sha256_of(kernel, plan.instances, device)
        built = builds[kernel.name]
        entries = {name: built["instances"][name] for name in plan.instances}
        broken = next((entry["error"] for entry in entries.values() if "error" in entry), None)
        if built["unsupported"]:
            row |= {"status": Status.UNSUPPORTED, "message": built["unsupported"]}
        elif broken:
            row |= {"status": Status.COMPILE_ERROR, "message": broken}
        else:
            files = {name: (entry["file"], entry["symbol"]) for name, entry in entries.items()}
        own = entries[product.instance] if product else {}
        launches = tuple(  # some compilers alone know how much shared memory they use
            dataclasses.replace(launch, dynamic_shared_bytes=entries[launch.instance]["dynamic_shared_bytes"])
            if "dynamic_shared_bytes" in entries[launch.instance]
            else launch
            for launch in plan.launches
        )
        plan = dataclasses.replace(plan, launches=launches)
        row["compile_s"] = own.get("compile_s")
        if product and "registers" in own:
            row["registers"] = own["registers"]
            row["shared_bytes"] = own["shared_bytes"] + product.dynamic_shared_bytes
    else:
        row["build_sha256"] = library_sha256(kernel, device)
    asked = conditions(point, kernel, plan, device.backend, config)
    key = digest([asked, row["build_sha256"], _circumstances(backend, kernel, device)])
    return Job(key, backend, kernel, point, row, plan.launches, product, plan.workspaces, files)


def plan_columns(kernel: Kernel, point: Point, plan: Plan, device: Device) -> Row:
    """The columns that follow from a point's plan: what was launched, compiled for what, and what its blocks compute.

    A reader of the row then needs no registry. Raises UserError if an expression of the registry cannot be evaluated.
    """
    product = plan.product
    row: Row = {"instances": columns.BETWEEN_INSTANCES.join(plan.instances) if kernel.source else ""}
    if kernel.on_gpu:
        dtype, products = kernel.short_products(point.columns())
        # Some GPUs multiply doubles on either units: the machine code has which (instructions.csv).
        unit = "tensor core" if dtype in ON_TENSOR_CORES else "" if dtype == "double" else "fma"
        row |= {"unit": unit, "unit_dtype": dtype, "unit_products": None if math.isnan(products) else products}
    if product is None:
        return row
    row |= dict(zip(("block_x", "block_y", "grid_x", "grid_y"), (*product.block[:2], *product.grid[:2])))
    row |= {"instance": product.instance, "threads": product.threads, "blocks": math.prod(product.grid)}
    row |= {"cluster_size": math.prod(product.cluster), "padded_multiply_adds": kernel.padded_multiply_adds(point)}
    if device.backend == "gpu":
        row["architecture"] = kernel.target(device.gpu["compute_capability"])
    if kernel.kind == Kind.CUDA:
        # A kernel whose tiles TMA fetches may have the rows and the depth of A's in its tensor map only.
        rows, depth = next((each.box for each in product.arguments if isinstance(each, TensorMap)), (0, 0))[:2]
        chosen = dict(point.parameters)
        covered = [*(kernel.covered(point) or [chosen.get("tile_n", rows), chosen.get("tile_m", 0)]), 0][:2]
        row |= {name: size or None for name, size in zip(("covers_n", "covers_m"), covered)}
        row["covers_k"] = chosen.get("tile_k", chosen.get("tile", depth)) or None
    return row


def conditions(
    point: Point,
    kernel: Kernel,
    plan: Plan,
    where: str,
    config: Mapping[str, Any],
) -> list[Any]:
    """All that a row depends on except its build and the machine, on a platform whose backend is `where`."""
    return [
        point.columns(),
        [kernel.kind, kernel.library, kernel.emulation, kernel.searched, kernel.reads_c, plan.instances],
        [kernel.alpha, kernel.beta, kernel.initial, kernel.wanted.scheme],
        [vars(each) for each in kernel.lying(point).values()],
        [vars(each) | {"note": "", "arguments": [*map(vars, each.arguments)]} for each in plan.launches],
        [vars(each) for each in plan.workspaces],
        settings(backend_of(kernel, where), where, config),
    ]


def settings(backend: str, where: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Config values on which a finished row depends, by backend of the job and of the platform.

    Not the limits: a longer one does not change a row that was done in time. Nor what is about further runs, each of
    which has its own row.
    """
    found = {"seed": config["seed"]}
    if backend == "cuda":
        without = ("point_limit_s", "repeats", "agree_percent")
        found |= {name: config["timing"][name] for name in config["timing"] if name not in without}
    if backend == "host":
        found |= {"samples": config["cpu"]["samples"], "repeat_s": config["cpu"]["repeat_s"][where]}
    if backend != "emulator":
        limit = config["verification"]["full_limit_gflop"]["gpu" if backend == "cuda" else "cpu"]
        found |= {"full_limit_gflop": limit, "rows": config["verification"]["rows"]}
    return found


def limits(backend: str, where: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Config values that decide whether a point ends as `timeout`; such a point is measured again."""
    found = {"point_limit_s": config["timing"]["point_limit_s"]}
    return found | ({"budget_s": config["cpu"]["budget_s"][where]} if backend == "host" else {})


def case_of(job: Job) -> tuple:
    """What the jobs of a case share: the type, the shape, and how the matrices lie."""
    point = job.point
    lying = (dataclasses.astuple(each) for each in job.kernel.lying(point).values())
    return point.multiply_adds, point.dtype, point.n, point.p, point.m, point.batch, *lying


def backend_of(kernel: Kernel, where: str) -> str:
    """The backend of a kernel on a platform whose backend is `where`: cuda, emulator or host."""
    if kernel.on_gpu:
        return "cuda" if where == "gpu" else "emulator"
    return "host"


def _circumstances(backend: str, kernel: Kernel, device: Device) -> dict[str, Any]:
    """The properties of the machine and its software that a row depends on, without packages that play no part.

    Not which of several GPUs of one model measured it: the row says that.
    """
    versions = device.versions
    if backend == "cuda":
        language = LANGUAGES.get(kernel.kind)
        compiler = [language.package if language else "nvrtc"]
        library = ("cublas", "cuda_runtime", *["nvmath-python"] * kernel.searched)
        used = ["cuda_driver", "cuda-bench", *(library if kernel.library else compiler)]
        gpu = {name: device.gpu.get(name) for name in ("name", "driver")}
        return gpu | {name: versions.get(name) for name in used}
    if backend == "host":
        return {"cpu": device.cpu, "backend": device.backend} | (
            {"numpy": versions.get("numpy")} if kernel.library else {}
        )
    return {"limits": device.limits}
