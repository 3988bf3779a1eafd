"""What runs again if a key of the config, the cluster's config or the registry changes."""

import collections
import copy
import ctypes.util
import re

import pytest
import yaml
from clones import Forks, copy_repository, snakemake, without_work

from kernelscope.yaml_input import read_yaml
from tilewise.study.registry import LAUNCH_KEYS
from tilewise.study.schema import SCHEMAS

pytestmark = pytest.mark.slow
PLATFORMS = {"gpu": "gpu", "emulated": "emulator"}
#: What draws, and what hands each platform the counts; it follows whatever is measured or counted.
DRAWN = {"collect", "draw", "instructions", "overview", "page", "traced"}
#: Kernels that have every key between them, added to the registry: of one launch, of two, and one not emulated.
ONE = {"kind": "cuda", "source": "own.cu", "dtypes": ["float"], "parameters": ["tile"], "block": ["tile", "tile"]}
OWN = {
    "plain": {"title": "one launch", **ONE, "template": ["dtype"], "covers": ["tile", "tile"]},
    "mine": {
        "title": "two launches",
        "kind": "cuda",
        "source": "own.cu",
        "dtypes": ["float"],
        "parameters": ["tile"],
        "least": {"tile": 2},
        "workspaces": {"turned": {"shape": ["m", "p"], "dtype": "dtype"}},
        "launches": [
            {"function": "turn", "block": [32], "grid": [32], "arguments": ["B", "turned", "p", "m"], "note": "turned"},
            {
                "template": ["dtype", "tile"],
                "block": ["tile", "tile"],
                "grid": [64],
                "arguments": ["A", "turned", "C", "n", "p", "m"],
            },
        ],
    },
    "precise": {"title": "as accurate as SGEMM", **ONE, "covers": ["tile", "tile"], "accuracy": {"claims": ["mixed"]}},
    "special": {"title": "not emulated", **ONE, "grid": [64], "emulated": False, "reason": "a test"},
    "calls": {"title": "a library", "kind": "library", "library": "cublas", "dtypes": ["float"]},
}
#: A kernel that only the tracer runs.
FAULTY = {
    "title": "wrong",
    "kind": "cuda",
    "source": "own.cu",
    "function": "other",
    "template": ["dtype"],
    "dtypes": ["float"],
    "block": [32],
    "grid": [64],
    "faulty": True,
}
#: Enough of their source for the registry; nothing is compiled.
SOURCE = 'asm("griddepcontrol.wait;");\n' + "".join(
    f"__global__ void {name}() {{}}\n" for name in ("plain", "other", "turn", "mine", "special", "precise")
)
TASKS = {
    "one": [
        {"kernel": "plain", "dtype": "float", "shapes": "square_1024", "tile": [16, 32]},
        {"kernel": "calls", "dtype": "float", "shapes": "square_1024"},
    ],
    "two": [{"kernel": "mine", "dtype": "float", "shapes": "square_4096", "tile": 16}],
    "three": [{"kernel": "special", "dtype": "float", "shapes": "square_4096", "tile": 16}],
    "loops": [{"kernel": "kij", "dtype": "float", "shapes": "in_cache"}],
    "blocks": [{"kernel": "naive", "dtype": "float", "shapes": "square_1100", "block": "32x8"}],
    "largest": [{"kernel": "naive", "dtype": "float", "block": "32x8"}],
    "watts": [{"kernel": "naive", "dtype": "float", "shapes": "square_1100", "block": "32x8"}],
    "gating": [{"kernel": "precise", "dtype": "float", "shapes": "square_1100", "tile": 16}],
    "limits": [{"kernel": "naive", "dtype": "float", "shapes": "square_64", "block": "16x16"}],
    "sized": [{"kernel": "naive", "dtype": "float", "shapes": "square_1100", "block": "32x8"}],
}
METHODS = {
    "sized": "sizes",
    "largest": "maximum_size",
    "watts": "energy",
    "gating": "accuracy",
    "limits": "launch_limits",
    "roof_lines": "bandwidth",
    "nothing": "overhead",
}
ON_EMULATOR = {"one", "two", "three", "blocks", "largest", "limits", "watts", "gating"}
ON_GPU = ON_EMULATOR | {"sized"}
ALL, EMULATED = ON_GPU | {"loops"}, ON_EMULATOR | {"loops"}
EVERY = ALL | {"roof_lines", "nothing"}
SHAPES = [{"n": 48, "p": 48, "m": 48}]
NONE: set[str] = set()


def put(*path, value):
    """An edit that sets the value at a path."""

    def edit(data):
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return edit


def sweep(**tasks):
    """An edit of the first sweep of some tasks."""

    def edit(config):
        for task, changes in tasks.items():
            config["tasks"][task]["sweeps"][0].update(changes)

    return edit


def swapped(config):
    config["platforms"] = {"gpu": {"backend": "emulator"}, "emulated": {"backend": "gpu"}}


#: What only a task that is timed in turns depends on.
DUEL = ("ratio_percent", "least_turns", "most_turns", "budget_s", "load_turns", "load_s", "load_from_ms")
#: What only a tuning depends on, which is no part of a run that nobody asks for it.
TUNING = ("runs", "give_up", "finalists", "limit_s")
#: The same of what ncu counts; one key of such a sweep stands for the others.
COUNTED = {"kernel": "tiled", "dtype": "float", "shapes": "square_4096", "tile": 16}
COUNTED_KEYS = {f"counters.sweeps.{key}" for key in ("dtype", "shapes", "tuned", "only_timed", "block", "*")}
#: For each key of the config: an edit, and the tasks that are measured again with a GPU and on the emulator.
CONFIG = {
    "seed": (put("seed", value=7), ALL, EMULATED),
    "platforms.*.backend": (swapped, EVERY, EVERY),
    "shapes.*": (
        lambda config: config["shapes"].update(square_1024=SHAPES, in_cache=SHAPES),
        {"one", "loops"},
        {"loops"},
    ),
    "tasks.*.title": (put("tasks", "one", "title", value="another"), NONE, NONE),
    "tasks.*.method": (put("tasks", "limits", "method", value="sweep"), {"limits"}, {"limits"}),
    "tasks.*.in_turns": (put("tasks", "one", "in_turns", value=True), {"one"}, NONE),
    **{f"duel.{key}": (put("duel", key, value=7), {"two"}, NONE) for key in DUEL},
    "duel.ratio_percent": (put("duel", "ratio_percent", value=7), {"two", "sized"}, NONE),
    "tasks.*.sweeps.kernel": (sweep(blocks={"kernel": "naive_transposed"}), {"blocks"}, {"blocks"}),
    "tasks.*.sweeps.dtype": (sweep(blocks={"dtype": "double"}), {"blocks"}, {"blocks"}),
    "tasks.*.sweeps.shapes": (
        sweep(blocks={"shapes": "square_64"}, loops={"shapes": "out_of_cache"}),
        {"blocks", "loops"},
        {"loops"},
    ),
    "tasks.*.sweeps.block": (sweep(blocks={"block": "16x16"}), {"blocks"}, {"blocks"}),
    "tasks.*.sweeps.*": (sweep(one={"tile": 8}, two={"tile": 8}), *[{"one", "two"}] * 2),
    "tasks.*.sweeps.only_timed": (sweep(blocks={"only_timed": True}), NONE, {"blocks"}),
    "timing.repeats": (put("timing", "repeats", value=2), {"one", "three", "blocks", "loops"}, NONE),
    "timing.agree_percent": (put("timing", "agree_percent", value=2), {"one", "three", "blocks", "loops"}, NONE),
    "timing.min_samples": (put("timing", "min_samples", value=9), ON_GPU | {"nothing"}, NONE),
    "timing.min_time_s": (put("timing", "min_time_s", value=7), ON_GPU | {"nothing"}, NONE),
    "timing.max_noise_percent": (put("timing", "max_noise_percent", value=7), ON_GPU | {"nothing"}, NONE),
    "timing.timeout_s": (put("timing", "timeout_s", value=7), ON_GPU | {"nothing"}, NONE),
    "timing.point_limit_s": (put("timing", "point_limit_s", value=7), ALL, EMULATED),
    "verification.full_limit_gflop.gpu": (put("verification", "full_limit_gflop", "gpu", value=7), ON_GPU, NONE),
    "verification.full_limit_gflop.cpu": (put("verification", "full_limit_gflop", "cpu", value=7), *[{"loops"}] * 2),
    "verification.rows": (put("verification", "rows", value=7), ALL, {"loops"}),
    "cpu.samples": (put("cpu", "samples", value=7), {"loops"}, {"loops"}),
    "cpu.repeat_s.gpu": (put("cpu", "repeat_s", "gpu", value=7), {"loops"}, NONE),
    "cpu.repeat_s.emulator": (put("cpu", "repeat_s", "emulator", value=7), NONE, {"loops"}),
    "cpu.budget_s.gpu": (put("cpu", "budget_s", "gpu", value=7), {"loops"}, NONE),
    "cpu.budget_s.emulator": (put("cpu", "budget_s", "emulator", value=7), NONE, {"loops"}),
    "maximum_size.also_n": (put("maximum_size", "also_n", value=[32]), {"largest"}, {"largest"}),
    "maximum_size.budget_s": (put("maximum_size", "budget_s", value=7), {"largest"}, {"largest"}),
    "energy.seconds": (put("energy", "seconds", value=7), {"watts"}, {"watts"}),
    "counters.sweeps.kernel": (put("counters", "sweeps", value=[COUNTED]), NONE, NONE),
    "machine_code.capability": (put("machine_code", "capability", value="10.0"), NONE, NONE),
    "trace.shapes": (put("trace", "shapes", value=SHAPES), NONE, NONE),
    "trace.limit_s": (put("trace", "limit_s", value=7), NONE, NONE),
    "trace.counted": (put("trace", "counted", value=SHAPES), NONE, NONE),
    "trace.cache_lines.largest_bytes": (put("trace", "cache_lines", "largest_bytes", value=7), NONE, NONE),
    "trace.cache_lines.multiply_adds": (put("trace", "cache_lines", "multiply_adds", value=7), NONE, NONE),
    "trace.cache_lines.l1.bytes": (put("trace", "cache_lines", "l1", "bytes", value=4096), NONE, NONE),
    "trace.cache_lines.l1.ways": (put("trace", "cache_lines", "l1", "ways", value=4), NONE, NONE),
    "trace.cache_lines.l2.bytes": (put("trace", "cache_lines", "l2", "bytes", value=65536), NONE, NONE),
    "trace.cache_lines.l2.ways": (put("trace", "cache_lines", "l2", "ways", value=4), NONE, NONE),
    **{f"tuning.{key}": (put("tuning", key, value=7), NONE, NONE) for key in TUNING},
    "emulator.shapes": (put("emulator", "shapes", value=SHAPES), NONE, {"one", "two", "three", "blocks"}),
    "emulator.memory_bytes": (put("emulator", "memory_bytes", value=70000), NONE, {"largest"}),
}
#: Slurm's settings, which are tried all at once.
SLURM = {"account": "us", "partition": "long", "qos": "high", "constraint": "h200", "gpu_model": "h200", "extra": "-v"}
SLURM |= {"max_minutes": 30, "exclusive": "node"}
SLURM_KEYS = {f"{place}slurm.{key}" for place in ("", "platforms.*.") for key in (*SLURM, "gres")}
PLAIN, MINE, LAST = ("plain",), ("mine",), ("mine", "launches", 1)
#: The same for each key of the registry.
REGISTRY = {
    "title": (put(*PLAIN, "title", value="another"), NONE, NONE),
    "kind": (put(*PLAIN, "kind", value="host"), {"one"}, {"one"}),
    "library": (put("calls", "library", value="numpy"), {"one"}, {"one"}),
    "emulation": (put("calls", "emulation", value=True), {"one"}, NONE),
    "searched": (put("calls", "searched", value=True), {"one"}, NONE),
    "source": (put(*PLAIN, "source", value="same.cu"), {"one"}, {"one"}),
    "dtypes": (put(*PLAIN, "dtypes", value=["float", "double"]), NONE, NONE),
    "parameters": (put(*PLAIN, "parameters", value=["tile", "tile_n"]), {"one"}, {"one"}),
    "least": (put(*MINE, "least", value={"tile": 1}), NONE, NONE),
    "requires": (put(*PLAIN, "requires", value=["tile < 32"]), {"one"}, {"one"}),
    "reads_c": (put(*PLAIN, "reads_c", value=True), {"one"}, {"one"}),
    "dependent": (put(*PLAIN, "dependent", value=True), {"one"}, {"one"}),
    "alpha": (put(*PLAIN, "alpha", value=2.0), {"one"}, {"one"}),
    "beta": (put(*PLAIN, "beta", value=0.5), {"one"}, {"one"}),
    "initial": (put(*PLAIN, "initial", value="zeros"), {"one"}, {"one"}),
    "column_major": (put(*PLAIN, "column_major", value=["A"]), {"one"}, {"one"}),
    "ld": (put(*PLAIN, "ld", value={"A": "p + 8"}), {"one"}, {"one"}),
    "batched": (put(*PLAIN, "batched", value=True), NONE, NONE),
    "needs": (put("special", "needs", value=["tma"]), {"three"}, NONE),
    "faulty": (lambda kernels: kernels.update(wrong=FAULTY), NONE, NONE),
    "emulated": (put("special", "emulated", value=True), NONE, {"three"}),
    "reason": (put("special", "reason", value="another"), NONE, {"three"}),
    "shares": (put(*MINE, "shares", value={"workspace": "turned", "of": ["one way", "another"]}), NONE, NONE),
    "accuracy": (put("precise", "accuracy", value={"claims": ["positive"]}), {"gating"}, {"gating"}),
    "workspaces": (put(*MINE, "workspaces", "turned", "dtype", value="double"), {"two"}, {"two"}),
    "launches": (lambda kernels: kernels["mine"]["launches"].reverse(), {"two"}, {"two"}),
    "function": (put(*PLAIN, "function", value="other"), {"one"}, {"one"}),
    "template": (put(*PLAIN, "template", value=["dtype", "tile"]), {"one"}, {"one"}),
    "block": (put(*PLAIN, "block", value=["tile", 1]), {"one"}, {"one"}),
    "covers": (put(*PLAIN, "covers", value=["tile", 1]), {"one"}, {"one"}),
    "grid": (put(*LAST, "grid", value=[128]), {"two"}, {"two"}),
    "cluster": (put(*LAST, "cluster", value=[2]), {"two"}, {"two"}),
    "cooperative": (put(*LAST, "cooperative", value=True), {"two"}, {"two"}),
    "dynamic_shared_bytes": (put(*LAST, "dynamic_shared_bytes", value=64), {"two"}, {"two"}),
    "arguments": (put(*LAST, "arguments", value=["A", "turned", "C", "n", "p", "m + 1"]), {"two"}, {"two"}),
    "when": (put("mine", "launches", 0, "when", value="m < 0"), {"two"}, {"two"}),
    "space": (put(*PLAIN, "space", value={"tile": [8, 16]}), NONE, NONE),
    "note": (put("mine", "launches", 0, "note", value="another"), NONE, NONE),
}
#: The rules that run again beside `measure`, with a GPU and on the emulator, by key of the config or of the registry.
TRACED, COMPILED = ({"trace"}, {"trace"}), ({"occupancy", "trace"}, {"trace"})
BESIDE = {
    "platforms.*.backend": ({"probe", "occupancy"}, {"probe", "occupancy"}),
    "needs": ({"occupancy"}, NONE),
    **dict.fromkeys(
        [f"tasks.*.{key}" for key in ("method", *(f"sweeps.{k}" for k in ("kernel", "dtype", "block", "*")))], COMPILED
    ),
    **dict.fromkeys("kind source parameters requires function template block dynamic_shared_bytes".split(), COMPILED),
    **dict.fromkeys(
        ["shapes.*", "counters.sweeps.kernel", *(f"tasks.*.sweeps.{key}" for key in ("shapes", "only_timed"))], TRACED
    ),
    **dict.fromkeys([key for key in CONFIG if key.startswith("trace.")], TRACED),
    **dict.fromkeys("reads_c dependent faulty emulated reason workspaces launches covers grid cluster".split(), TRACED),
    **dict.fromkeys("cooperative arguments when alpha beta initial column_major ld".split(), TRACED),
}
#: What a registry's edit needs of the config.
WITH = {"parameters": sweep(one={"tile_n": 8})}


def leaves(schema, root, place=""):
    """The keys of a schema's data that hold values, as `tasks.*.title`; a shape is one value."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]] | schema
    inside = dict(schema.get("properties", {}))
    if isinstance(schema.get("additionalProperties"), dict):
        inside["*"] = schema["additionalProperties"]
    if set(inside) - {"batch"} == {"n", "p", "m"}:
        return {place}
    parts = [schema[key] for key in ("items", "else") if key in schema] or schema.get("anyOf", ())
    below = {key for name, part in inside.items() for key in leaves(part, root, f"{place}.{name}".strip("."))}
    below |= {key for part in parts for key in leaves(part, root, place)} - {place}
    return below or {place}


def test_every_key_of_the_schemas_has_its_edit():
    schema = read_yaml(SCHEMAS / "config.schema.yaml")
    # These need a cluster, a kernel with choices in tuned.yaml, and what is not right.
    others = {"platforms.*.nodes", "platforms.*.capability", "tasks.*.sweeps.tuned", "strict"} | COUNTED_KEYS
    assert leaves(schema, schema) == set(CONFIG) | SLURM_KEYS | others
    entry = read_yaml(SCHEMAS / "registry.schema.yaml")
    keys = set(entry["additionalProperties"]["properties"])
    assert keys == set(REGISTRY)
    assert set(entry["$defs"]["launch"]["properties"]) == set(LAUNCH_KEYS) <= keys


def nothing(data):
    """No edit."""


class Plans:
    """A clone in which everything is done, and what would run there after an edit."""

    def __init__(self, clone):
        self.clone = clone
        self.config = yaml.safe_load((clone / "config/config.yaml").read_text())
        self.registry = (clone / "kernels/registry.yaml").read_text()
        self.run = None

    def write(self, of_config=nothing, of_registry=nothing):
        config, kernels = copy.deepcopy(self.config), copy.deepcopy(OWN)
        of_config(config)
        of_registry(kernels)
        (self.clone / "config/config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        (self.clone / "kernels/registry.yaml").write_text(self.registry + yaml.safe_dump(kernels))

    def __call__(self, **edits):
        """The jobs of a dry run by platform: (rule, task) of each; those of the whole run have no platform."""
        self.write(**edits)
        status, said = self.run("snakemake --cores 2 --dry-run")
        assert status == 0, said
        return self.jobs(said)

    @staticmethod
    def jobs(said):
        """The jobs that a dry run names, by platform."""
        found = collections.defaultdict(set, {name: set() for name in (*PLATFORMS, None)})
        for rule, details in re.findall(r"^ *(?:local)?rule (\w+):\n((?: +\w+: .*\n)+)", said, re.MULTILINE):
            wildcards = dict(re.findall(r"(\w+)=([^\s,]+)", (re.search("wildcards: (.*)", details) or [""])[0]))
            found[wildcards.get("platform")].add((rule, wildcards.get("task")))
        assert any(found.values()) or "Nothing to be done" in said, said
        return found


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    clone = copy_repository(tmp_path_factory.mktemp("reruns") / "clone", recorded=False)
    for name in ("own", "same"):
        (clone / f"kernels/{name}.cu").write_text(SOURCE)
    plans = Plans(clone)
    plans.config["tasks"] = {name: {"title": name, "sweeps": sweeps} for name, sweeps in TASKS.items()}
    for task in ("roof_lines", "nothing"):  # their methods have no sweeps
        plans.config["tasks"][task] = {"title": task}
    plans.config["tasks"]["two"]["in_turns"] = True
    for name, method in METHODS.items():
        plans.config["tasks"][name]["method"] = method
    plans.config |= {"platforms": {name: {"backend": backend} for name, backend in PLATFORMS.items()}, "slurm": None}
    plans.write()
    without_work(clone, "touch {output}")
    done = snakemake(clone)
    assert done.returncode == 0, done.stderr
    with Forks(clone) as plans.run:
        assert not any(plans().values()), "all is done"
        yield plans


def check(jobs, once, tasks, rules):
    """A plan measures these tasks, runs these rules beside, and draws what follows; `once` are jobs of no platform."""
    seen = {rule for rule, _ in jobs} - {"config"}
    assert {task for rule, task in jobs if rule == "measure"} == tasks
    assert seen - DRAWN - {"measure"} == rules - {"trace"}
    assert (("trace", None) in once) == ("traced" in seen) == ("trace" in rules)
    assert "instructions" not in seen or tasks or "probe" in rules, "the same instances have the same code"
    assert {task for rule, task in jobs if rule == "draw"} >= tasks
    assert "overview" in seen


@pytest.mark.parametrize("key", CONFIG)
def test_a_key_of_the_config_runs_again_what_depends_on_it(plans, key):
    edit, *measured = CONFIG[key]
    jobs = plans(of_config=edit)
    for platform, tasks, rules in zip(PLATFORMS, measured, BESIDE.get(key, (NONE, NONE))):
        check(jobs[platform], jobs[None], tasks, rules)
    assert ("page", None) in jobs[None], "it shows the config"


@pytest.mark.parametrize("key", REGISTRY)
def test_a_key_of_the_registry_runs_again_what_depends_on_it(plans, key):
    edit, *measured = REGISTRY[key]
    jobs = plans(of_config=WITH.get(key, nothing), of_registry=edit)
    for platform, tasks, rules in zip(PLATFORMS, measured, BESIDE.get(key, (NONE, NONE))):
        check(jobs[platform], jobs[None], tasks, rules)


def test_another_library_for_an_installed_one_is_looked_for_and_measured(plans):
    """As docs/experiments.md has it for another cuBLAS."""
    plans.write()
    planned = snakemake(plans.clone, "--dry-run", LD_PRELOAD=ctypes.util.find_library("m"))
    assert planned.returncode == 0, planned.stderr
    jobs = plans.jobs(planned.stdout)
    for name in PLATFORMS:
        check(jobs[name], jobs[None], EVERY, {"probe", "occupancy"})
    assert not any(plans().values())


def test_a_platform_of_nodes_is_a_new_platform_per_node(plans):
    jobs = plans(of_config=put("platforms", "gpu", "nodes", value=["n1", "n2"]))
    assert set(jobs) == {"gpu-n1", "gpu-n2", *PLATFORMS, None}
    assert not jobs["emulated"] and not jobs["gpu"], "what it was before stays as it is"
    assert ("trace", None) not in jobs[None]
    for name in ("gpu-n1", "gpu-n2"):
        assert {rule for rule, _ in jobs[name]} >= {"probe", "occupancy", "traced"}
        assert {task for rule, task in jobs[name] if rule == "measure"} == EVERY


@pytest.mark.parametrize("gpu", [{}, {"gres": "gpu:1"}])
def test_no_setting_of_slurm_runs_anything_again(plans, gpu):
    settings = SLURM | gpu
    if gpu:
        del settings["gpu_model"]

    def edit(config):
        config["slurm"] = settings
        for platform in config["platforms"].values():
            platform["slurm"] = settings

    assert not any(plans(of_config=edit).values())
