"""merge.py OUT PLATFORM TREE PART...: one run, OUT/PLATFORM, of the parts that several machines measured; later parts win.

Run with TREE/workflow and TREE/packages/microscope/src in PYTHONPATH; TREE is the clone of the commit that measured.
"""
import shutil, sys
from pathlib import Path
import pandas as pd
from kernelscope.yaml_input import read_yaml
from tilewise.files import write_csv, write_json
from tilewise.rules import Study
from tilewise.study import columns, registry
out, platform, tree, *parts = sys.argv[1:]
folder = Path(out) / platform
shutil.rmtree(folder, ignore_errors=True)
for part in map(Path, parts):
    source = part / platform
    for path in source.rglob("*"):
        there = folder / path.relative_to(source)
        if path.is_dir() or path.suffix in (".lock", ".owner") and "gpus" not in path.parts or "build" in path.parts:
            continue
        if there.name == "device.json" and there.exists():
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, there)
    for name in ("traffic.csv", "cache_lines.csv"):
        if (part / name).is_file():
            shutil.copyfile(part / name, folder / name)
config = read_yaml(Path(tree) / "config/config.yaml")
study = Study(config | {"platforms": {platform: {"backend": "gpu"}}}, checked=True)
parameters = registry.parameters(study.kernels)
def joined(name, paths):
    tables = [columns.read(path, name, parameters) for path in paths if path.is_file()]
    write_csv(pd.concat([columns.frame([], name, parameters), *tables], ignore_index=True), folder / f"{name}.csv")
joined("measurements", [folder / "tasks" / f"{task}.csv" for task in study.tasks])
joined("accuracy", [folder / "facts" / f"{task}.csv" for task in study.with_method("accuracy")])
class At(dict):
    __getattr__ = dict.get
write_json(study.resolved(At(platform=platform)), folder / "config.json")
done = {path.stem for path in (folder / "tasks").glob("*.csv")}
print("tasks without a file:", sorted(set(study.tasks) - done), "points:", sum(1 for _ in open(folder / "measurements.csv")) - 1)
