"""A point made concrete for one machine: what to launch, from which build, and what is known of its row before."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.build.build import row_sha256
from tilewise.files import digest
from tilewise.study import columns
from tilewise.study.launch import Launch, Workspace
from tilewise.study.points import Point
from tilewise.study.registry import Kernel

#: Columns of measurements.csv by name; a value is text, a number, or None for what does not apply.
Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What a worker needs to run a point. `backend` is cuda, emulator or host.

    `files` maps a template instance to its binary and the symbol in it. `key` names everything that the row depends on:
    the point, its build and launches, the machine, and how it is measured; the journal knows rows by it.
    """

    key: str
    backend: str
    kernel: Kernel
    point: Point
    row: Row
    launches: tuple[Launch, ...]
    workspaces: tuple[Workspace, ...]
    files: Mapping[str, tuple[str, str]]


def prepare(
    point: Point,
    kernel: Kernel,
    manifests: Mapping[str, Mapping],
    builds: Mapping[str, Path | str],
    device: Mapping[str, Any],
    config: Mapping[str, Any],
) -> Job:
    """A point as a Job. Its row has the status `error` until it is run, or already the reason why it cannot be."""
    backend = _backend(kernel, device)
    launches, product = kernel.at(point, device), kernel.product(point, device)
    row: Row = dict.fromkeys(columns.of("measurements", kernel.columns)) | point.columns()
    row |= {"platform": device["platform"], "status": "error", "message": "", "samples": 0}
    if product:
        row |= dict(zip(("block_x", "block_y", "grid_x", "grid_y"), (*product.block[:2], *product.grid[:2])))
    files: dict[str, tuple[str, str]] = {}
    if kernel.source:
        row["build_sha256"] = row_sha256(kernel, point, device)
        manifest, folder = manifests[kernel.name], Path(builds[kernel.name])
        entries = {name: manifest["instances"][name] for name in kernel.instances(point)}
        broken = next((entry["error"] for entry in entries.values() if "error" in entry), None)
        if manifest["unsupported"]:
            row |= {"status": "unsupported", "message": manifest["unsupported"]}
        elif broken:
            row |= {"status": "compile_error", "message": broken}
        else:
            files = {name: (str(folder / entry["file"]), entry["symbol"]) for name, entry in entries.items()}
        own = entries[product.instance] if product else {}
        launches = tuple(  # Triton's compiler alone knows how much shared memory it uses
            dataclasses.replace(launch, dynamic_shared_bytes=entries[launch.instance]["dynamic_shared_bytes"])
            if "dynamic_shared_bytes" in entries[launch.instance]
            else launch
            for launch in launches
        )
        if product and "registers" in own:
            row["registers"] = own["registers"]
            row["shared_bytes"] = own["shared_bytes"] + product.dynamic_shared_bytes
    else:
        row["build_sha256"] = digest([kernel.name, device["versions"].get(str(kernel.library))])
    key = digest(
        [
            point.columns(),
            row["build_sha256"],
            [dataclasses.asdict(launch) | {"note": ""} for launch in launches],
            _circumstances(backend, kernel, device),
            {name: config[name] for name in _SETTINGS[backend]},
        ]
    )
    return Job(key, backend, kernel, point, row, launches, kernel.workspaces_at(point, device), files)


#: The keys of the config that a row depends on, by what measures it.
_SETTINGS = {
    "cuda": ("seed", "timing", "verification"),
    "emulator": ("seed",),
    "host": ("seed", "cpu", "verification"),
}


def _backend(kernel: Kernel, device: Mapping[str, Any]) -> str:
    if kernel.on_gpu:
        return "cuda" if device["backend"] == "gpu" else "emulator"
    return "host"


def _circumstances(backend: str, kernel: Kernel, device: Mapping[str, Any]) -> dict[str, Any]:
    """What of the machine and its software a row depends on: a package that plays no part changes no row.

    Not which of several GPUs of one model measured it: the row says that.
    """
    versions = device["versions"]
    if backend == "cuda":
        compiler = ["cublas", "cuda_runtime"] if kernel.library else ["triton" if kernel.kind == "triton" else "nvrtc"]
        used = ["cuda_driver", "cuda-bench", *compiler]
        gpu = {name: device["gpu"].get(name) for name in ("name", "driver")}
        return gpu | {name: versions.get(name) for name in used}
    if backend == "host":
        return {"cpu": device["cpu"], "backend": device["backend"]} | (
            {"numpy": versions.get("numpy")} if kernel.library else {}
        )
    return {"limits": device["limits"]}
