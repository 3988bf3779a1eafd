"""What tests of the measurements make first: builds of kernels, and the Work of a task."""

from pathlib import Path

from tilewise.build import build
from tilewise.measure.task import Work


def built(points, kernels, device, folder):
    """Build the kernels of some points into `folder`; returns the build folders by kernel."""
    builds = {}
    for name in sorted({point.kernel for point in points if kernels[point.kernel].source}):
        instances = {instance for p in points if p.kernel == name for instance in kernels[name].instances(p)}
        builds[name] = Path(folder) / name
        build.build(kernels[name], sorted(instances), device, builds[name])
    return builds


def work_of(points, kernels, device, config, folder, builds=None):
    """The Work of a task with these points; what it leaves lies in `folder`, builds too if none are given."""
    folder = Path(folder)
    if builds is None:
        builds = built(points, kernels, device, folder / "build")
    task = points[0].task if points else "t"
    return Work(task, points, kernels, builds, device, config, folder / "samples", folder / "journal")
