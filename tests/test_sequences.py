"""Commands in any order, with events between them: what a target promises is there and up to date, and the last words
are true.

No job does its work. Each writes a digest of its params and of the contents of its inputs: that shows whether a file is
as new as what it is made from, and whether a fresh clone has the same. `TILEWISE_SEQUENCES=2000` tries as many random
sequences; by default they are the same 20 each time, or 200 in `make test-all`.
"""

import contextlib
import hashlib
import os
import re
import shutil

import hypothesis
import pytest
import yaml
from clones import Forks, copy_repository, without_work
from hypothesis import stateful, strategies

from kernelscope.yaml_input import read_yaml

pytestmark = pytest.mark.slow
TRIED = int(os.environ.get("TILEWISE_SEQUENCES", 0))
#: What every job does, in bash: `job RULE PARAMS OUTPUTS INPUT...`. A file `kill` names the rule that kills its run.
JOB = """
rule=$1 params=$2 outputs=$3; shift 3
# Few processes: a sequence has a hundred jobs.
made=$([ $# = 0 ] || sha256sum "$@" | sed 's/  / /')
key=$(sha256sum <<<"$rule $params
$made") key=${key%% *} kill=$(cat kill 2>/dev/null)
status=ok; if grep -qs ,incorrect, /dev/null "$@"; then status=incorrect; fi
case $rule in
  outcome_of_task) status=ok
    for file in "$@"; do
      if grep -qs ,incorrect, "${file%/*/*}/tasks/${params% *}.csv"; then status=incorrect; fi
    done;;
esac
case "$rule $params" in outcome*True) [ $status = ok ] || exit 1;; esac
mkdir -p results/.made
for output in $outputs; do
  if [ "$kill" = $rule ]; then rm kill; echo half >$output; kill -9 $(cat run.pid); exit 1; fi
  content=$key
  case $output in
    *.csv) printf -v content 'kernel,dtype,n,p,m,status,message\\nplain,float,8,8,8,%s,%s' $status $key;;
    *notes.json) content='[]';;
    *.json) content="{\\"key\\": \\"$key\\", \\"tasks\\": {}}";;
  esac
  echo "$content" >$output
  own=$(sha256sum <$output)
  printf '%s\\n' "${own%% *}" "$made" >results/.made/${output//\\//:}
done
own=$(sha256sum <"${outputs%% *}")
echo "$rule ${own%% *} $outputs" >>jobs
"""
SHAPES = [{"n": 48, "p": 48, "m": 48}]
KERNEL = {
    "kind": "cuda",
    "source": "own.cu",
    "dtypes": ["float", "double"],
    "parameters": ["tile"],
    "template": ["dtype", "tile"],
    "block": ["tile", "tile"],
    "covers": ["tile", "tile"],
}
REGISTRY = {"plain": {"title": "own", **KERNEL}, "tuned": {"title": "tuned", **KERNEL, "space": {"tile": [8, 16]}}}
SOURCE = """#include "own.cuh"
// kernel: ,right,
template <typename T, int TILE> __global__ void plain(const T* A, const T* B, T* C, int n, int p, int m) {}
template <typename T, int TILE> __global__ void tuned(const T* A, const T* B, T* C, int n, int p, int m) {}
"""
TWO = "two: {title: second, sweeps: [{kernel: plain, dtype: double, shapes: small, tile: [16]}]}"
TASKS = f"""tasks:
  one: {{title: first, sweeps: [{{kernel: plain, dtype: float, shapes: small, tile: [16]}}]}}
  {TWO}
  loops: {{title: loops, sweeps: [{{kernel: kij, dtype: float, shapes: small}}]}}
  tune: {{title: tuning, method: tune, sweeps: [{{kernel: tuned, dtype: float, shapes: small}}]}}
"""
EXTRA = "  extra: {title: new, sweeps: [{kernel: plain, dtype: float, shapes: small, tile: [8]}]}\n"
QUICK = """seed: 7
tasks:
  one: {sweeps: [{kernel: plain, dtype: float, shapes: small, tile: [32]}]}
  two: null
"""
CONFIG = "config/config.yaml"
#: Edits by name: a file, a text in it, and what replaces it.
EDITS = {
    "a key": (CONFIG, "seed: 524", "seed: 1"),
    "what only draws": (CONFIG, "max_noise_percent: 1", "max_noise_percent: 2"),
    "a title": (CONFIG, "title: first", "title: renamed"),
    "a sweep": (CONFIG, "float, shapes: small, tile: [16]", "float, shapes: small, tile: [16, 32]"),
    "a new task": (CONFIG, "  loops:", f"{EXTRA}  loops:"),
    "a task set to null": (CONFIG, TWO, "two: null"),
    "a second platform": (CONFIG, "{here: {backend: gpu}}", "{here: {backend: gpu}, there: {backend: emulator}}"),
    "strict": (CONFIG, "strict: false", "strict: true"),
    "a kernel": ("kernels/own.cu", "// kernel:", "// the kernel:"),
    "a fault": ("kernels/own.cu", ",right,", ",incorrect,"),
    "a header": ("kernels/own.cuh", "// header", "// the header"),
    "a section": ("report/sections/01-threads.md", "## ", "{# edited #}## "),
    "an upgrade": ("workflow/tilewise/explain/number_format.py", "digits", "figures"),
    "a claim": ("report/claims.yaml", "# The claims", "# All claims"),
}
DELETED = [f"here/{kind}/{task}" for kind in ("tables", "tasks", "facts", "figures") for task in ("one", "loops")]
DELETED = [f"{path}.{'svg' if 'figures' in path else 'csv'}" for path in DELETED]
DELETED += [
    "here/config.json",
    "here/measurements.csv",
    "here/device.json",
    "traffic.csv",
    "report.html",
    "story.html",
]
DELETED += ["notes.json", "outcome.txt", "outcomes/one.txt", "figures", "here/tune/tuned.csv", "here/counters.csv"]


def make_clone(folder):
    """A clone of a study of a few tasks, whose jobs are JOB."""
    clone = copy_repository(folder)
    shutil.rmtree(clone / "report/recorded")  # nobody looks at the page
    (clone / "report/recorded").mkdir()
    kernels = read_yaml(clone / "kernels/registry.yaml")
    (clone / "kernels/registry.yaml").write_text(yaml.safe_dump({"kij": kernels["kij"]} | REGISTRY, sort_keys=False))
    (clone / "kernels/tuned.yaml").write_text("{}")
    (clone / "kernels/own.cu").write_text(SOURCE)
    (clone / "kernels/own.cuh").write_text("// header")
    config = read_yaml(clone / CONFIG) | {"shapes": {"small": SHAPES}}
    del config["tasks"], config["platforms"]
    config["emulator"]["shapes"] = config["trace"]["shapes"] = config["trace"]["counted"] = SHAPES
    config["counters"]["sweeps"] = [{"kernel": "plain", "dtype": "float", "shapes": "small", "tile": [16]}]
    text = f"platforms: {{here: {{backend: gpu}}}}\nstrict: false\n{yaml.safe_dump(config)}{TASKS}"
    (clone / CONFIG).write_text(text)
    (clone / "config/quick.yaml").write_text(QUICK)
    (clone / "job").write_text(JOB)
    without_work(clone, 'bash job {rule} "{params}" "{output}" {input}')
    return clone


KEPT = ("results", ".snakemake", "logs", "jobs", "kill")


class Place:
    """A clone with a server of its runs."""

    def __init__(self, folder, stack):
        self.clone = make_clone(folder)
        self.texts = {name: (self.clone / name).read_text() for name, _, _ in EDITS.values()}
        self.run = stack.enter_context(Forks(self.clone))

    def edit(self, edits):
        """Write the sources as some edits leave them; those that are the same keep their times."""
        for name, text in self.texts.items():
            for old, new in (EDITS[edit][1:] for edit in EDITS if edit in edits and EDITS[edit][0] == name):
                assert old in text, f"{name} lacks {old!r}"
                text = text.replace(old, new)
            if (self.clone / name).read_text() != text:
                (self.clone / name).write_text(text)

    def clear(self):
        """Remove what runs have left."""
        for name in KEPT:
            path = self.clone / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def jobs(self):
        """The jobs that were done: the rule, the digest of its first output, and its outputs."""
        path = self.clone / "jobs"
        return [line.split(" ", 2) for line in path.read_text().splitlines()] if path.exists() else []


def digest(path):
    """The digest of a file as JOB writes it; empty if it is missing."""
    path = path / "all.svg" if path.is_dir() else path
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def stale(clone, names):
    """The first of some results that is missing, or older in content than what it is made from; None if there is
    none."""
    seen, todo = set(), [(name, True) for name in names]
    while todo:
        name, wanted = todo.pop()
        found = digest(clone / name)
        if not found and wanted:
            return f"{name} is missing"
        if not found or name in seen or not name.startswith("results/"):
            continue
        seen.add(name)
        record = clone / "results/.made" / name.replace("/", ":")
        copied = [found, f"{found} results/{record.name.rpartition(':')[2]}"]  # by the rule `traced`
        own, *inputs = record.read_text().splitlines() if record.exists() else copied
        if own != found:
            return f"{name} is not what its job wrote"
        for line in filter(None, inputs):
            at_the_time, source = line.split(" ", 1)
            now = digest(clone / source)
            if now not in (at_the_time, ""):  # an intermediate result may have been deleted
                return f"{name} is older than {source}"
            todo.append((source, False))
    return None


TARGETS = ["all", "all", "one", "two", "loops", "extra", "tune", "one two", "results/here/counters.csv"]
TARGETS += ["results/here/measurements.csv"]
WITH = ["", "", "--configfile config/quick.yaml"]


class Sequences(stateful.RuleBasedStateMachine):
    """A user between two clones: the one with the results, and the one that they move to."""

    places, fresh, snapshots, files = (), None, {}, {}

    def __init__(self):
        super().__init__()
        self.edits, self.place = frozenset(), self.places[0]
        for place in self.places:
            place.edit(())
            place.clear()

    # ---- What a user has at the beginning ----

    @stateful.initialize(state=strategies.sampled_from(["nothing", "quick", "report"]))
    def begin(self, state):
        for name in KEPT if state != "nothing" else ():
            source, target = self.snapshots[state] / name, self.place.clone / name
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True)
            elif source.exists():
                shutil.copy2(source, target)

    # ---- Events ----

    @stateful.rule(name=strategies.sampled_from(sorted(EDITS)))
    def edit_or_restore(self, name):
        self.edits = self.edits ^ {name}
        for place in self.places:
            place.edit(self.edits)

    @stateful.rule(name=strategies.sampled_from(DELETED))
    def delete(self, name):
        path = self.place.clone / "results" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    @stateful.rule()
    def move(self):
        other = self.places[self.place is self.places[0]]
        for name in KEPT:
            if (self.place.clone / name).exists():
                (self.place.clone / name).rename(other.clone / name)
        self.place = other

    @stateful.rule(rule=strategies.sampled_from(["measure", "draw", "page", "measure_tune", "overview", "crate"]))
    def kill_the_next_run_in(self, rule):
        (self.place.clone / "kill").write_text(rule)

    # ---- Commands ----

    @stateful.rule(goal=strategies.sampled_from(TARGETS), options=strategies.sampled_from(WITH))
    def snakemake(self, goal, options):
        target = goal  # Hypothesis has a `target` of its own
        clone, run = self.place.clone, self.place.run
        config = self.config(quick=bool(options))
        measured = {output: digest(clone / output) for output in self.measured()}
        before, armed = len(self.place.jobs()), (clone / "kill").exists()
        command = f"snakemake --cores {1 if armed else 2} {options} -- {target}"
        status, said = run(command)
        jobs = self.place.jobs()[before:]
        if armed and not (clone / "kill").exists():
            return
        (clone / "kill").unlink(missing_ok=True)
        what = f"{command}\n{said}"
        assert "Traceback" not in said and said.strip(), what
        # After another probe the tasks' jobs run, and take the rows from their journals, which these jobs lack.
        probed = any(rule == "probe" for rule, _, _ in jobs)
        for rule, made, outputs in jobs:
            if rule in ("measure", "measure_tune") and not probed:
                output = outputs.split()[0]
                finished = all(map(measured.get, outputs.split()))
                assert not (finished and measured[output] == made), f"{output} is measured again: {what}"
        tasks = [task for task in target.split() if "/" not in task and task != "all"]
        unknown = [task for task in tasks if task not in config["tasks"]]
        if unknown:
            assert status and f"there is no target {unknown[0]}" in said, what
            return
        fails = config["strict"] and "a fault" in self.edits and ({"all", "one", "two", "extra"} & set(target.split()))
        assert bool(status) == bool(fails), what
        self.check_words(config, target, tasks, jobs, said, what, fails)
        if not fails:
            older = stale(clone, self.promised(config, target))
            assert older is None, f"{older}: {what}"
            _, again = run(f"snakemake -n {options} --cores 2 -- {target}")
            assert "Nothing to be done" in again, f"{what}{again}"
            self.compare_with_a_fresh_clone(config, target, bool(options), what)

    @stateful.rule()
    def status(self):
        status, said = self.place.run("tilewise status")
        assert "Traceback" not in said, said
        folder = self.place.clone / "results"
        assert (status == 2) == (not list(folder.glob("*/device.json"))), said
        if status != 2:
            assert ("there is no report yet" in said) == (not (folder / "report.html").exists()), said

    @stateful.rule(command=strategies.sampled_from(["compare results/here results/here", "record results/here"]))
    def look(self, command):
        recorded = sorted((self.place.clone / "report").rglob("*"))
        status, said = self.place.run(f"tilewise {command}")
        assert status in (1, 2) and "Traceback" not in said and said.strip(), said  # it is no measurement
        assert sorted((self.place.clone / "report").rglob("*")) == recorded, "what is refused leaves nothing"

    # ---- What must be true ----

    def config(self, quick):
        """The config of a run, as Snakemake merges it."""
        config = yaml.safe_load((self.place.clone / CONFIG).read_text())
        tasks = dict(config["tasks"])
        if quick:
            tasks["two"] = None
        return config | {"tasks": {name: task for name, task in tasks.items() if task is not None}}

    def measured(self):
        folder = self.place.clone / "results"
        paths = [path for kind in ("tasks", "facts", "tune") for path in folder.glob(f"*/{kind}/*.csv")]
        return [str(path.relative_to(self.place.clone)) for path in paths]

    def promised(self, config, target):
        """The files that a target promises."""
        tasks = [name for name, task in config["tasks"].items() if task.get("method") != "tune"]
        found = []
        for name in target.split():
            if "/" in name:
                found.append(name)
            for platform in config["platforms"]:
                shown = tasks if name == "all" else [name] if "/" not in name else []
                found += [f"results/{platform}/{kind}/{task}.{end}" for task in shown for kind, end in SHOWN.items()]
                if name in tasks:
                    found.append(f"results/{platform}/facts/{name}.csv")
                if name == "tune":
                    found.append(f"results/{platform}/tune/tuned.csv")
            if name == "all":
                found += [f"results/{name}" for name in WHOLE]
        return found

    def check_words(self, config, target, tasks, jobs, said, what, fails):
        """The last words name what was made, and the page only if the run is about it."""
        page = self.place.clone / "results/report.html"
        last = said.splitlines()[-1]
        if target == "all":
            assert last.startswith("done in" if jobs or fails else "nothing to be done"), what
            assert f"; the report is {page}, with" in last, what
            assert bool(re.search("points (is|are) not right", said)) == ("a fault" in self.edits), what
            return
        assert "the report is" not in said, what
        drawn = {output for rule, _, outputs in jobs if rule == "draw" for output in outputs.split()}
        for task in tasks:
            for platform in config["platforms"]:
                table = f"results/{platform}/tables/{task}.csv"
                state = "wrote" if table in drawn else "is up to date:"
                points = r"( \([\w, ]+\))?"
                assert re.search(f"{task}, {config['tasks'][task]['title']}{points}, {state} {table} and ", said), what
        if "/" in target:
            assert (f"wrote {target}" in said) == any(target in outputs.split() for _, _, outputs in jobs), what
        record = self.place.clone / "results/.made/results:report.html"
        if page.exists() and record.exists():  # a kill may leave a page without one
            _, *inputs = record.read_text().splitlines()
            of_page = {path: made for made, path in (line.split(" ", 1) for line in inputs)}
            named = {output for _, _, outputs in jobs for output in outputs.split()}
            if any(digest(self.place.clone / path) != of_page[path] for path in named & set(of_page)):
                assert "was made before these results" in said, what

    def compare_with_a_fresh_clone(self, config, target, quick, what):
        """The tables are those of a fresh clone with the same sources and config."""
        key = self.edits, quick
        if key not in self.files:
            self.fresh.clear()
            self.fresh.edit(self.edits)
            status, said = self.fresh.run(f"snakemake --cores 2 {WITH[-1] if quick else ''} -- all")
            assert not status or {"a fault", "strict"} <= self.edits, said
            paths = (self.fresh.clone / "results").rglob("*.csv")
            self.files[key] = {str(path.relative_to(self.fresh.clone)): digest(path) for path in paths}
        for name in self.promised(config, target):
            other = f"{name} is another than a fresh clone's: {what}"
            assert digest(self.place.clone / name) == self.files[key].get(name, digest(self.place.clone / name)), other


SHOWN = {"tables": "csv", "figures": "svg"}
WHOLE = ["report.html", "story.html", "assignment.html", "outcome.txt", "ro-crate-metadata.json", "notes.json"]


@pytest.fixture(scope="module")
def sequences(tmp_path_factory):
    """The state machine with its clones, and with the results of a short and of a whole run."""
    folder = tmp_path_factory.mktemp("sequences")
    with contextlib.ExitStack() as stack:
        *places, fresh = [Place(folder / name, stack) for name in ("here", "there", "fresh")]
        for name, options in (("report", ""), ("quick", WITH[-1])):
            fresh.clear()
            status, said = fresh.run(f"snakemake --cores 2 {options} -- all")
            assert status == 0, said
            shutil.copytree(fresh.clone, folder / f"{name} run", symlinks=True)
        snapshots = {name: folder / f"{name} run" for name in ("quick", "report")}
        yield type("Sequences", (Sequences,), {"places": places, "fresh": fresh, "snapshots": snapshots, "files": {}})


@pytest.mark.parametrize("tried", [20, pytest.param(200, marks=pytest.mark.exhaustive)])
def test_any_sequence_of_commands_keeps_its_promises(sequences, tried):
    settings = hypothesis.settings(
        max_examples=TRIED or tried,
        derandomize=not TRIED,
        stateful_step_count=8,
        print_blob=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    stateful.run_state_machine_as_test(sequences, settings=settings)


def test_the_last_words_of_a_task_name_what_it_wrote_and_mention_an_older_page(sequences):
    state = sequences()
    state.begin("report")
    run = state.place.run
    _, said = run("snakemake --cores 2 one")
    assert (
        "one, first (1 ok), is up to date: results/here/tables/one.csv" in said
        and "page" not in said
        and "report" not in said
    )
    state.edit_or_restore("a title")
    _, said = run("snakemake --cores 2 one")
    assert "one, renamed (1 ok), wrote results/here/tables/one.csv and results/here/figures/one.svg" in said
    assert said.splitlines()[-1].endswith(
        "html was made before these results: `make report`, or the command of your last whole run, makes it again"
    )
    assert {rule for rule, _, _ in state.place.jobs()[-2:]} == {"draw", "outcome_of_task"}, "nothing is measured again"


def test_a_single_task_that_is_not_right_is_named_and_fails_a_strict_run_until_it_is_mended(sequences):
    state = sequences()
    state.begin("quick")
    state.edit_or_restore("a fault")
    status, said = state.place.run("snakemake --cores 2 one")
    assert status == 0 and "not right: plain float 8x8x8: incorrect" in said
    status, said = state.place.run("snakemake --cores 2 --config strict=True -- one")
    assert status == 1 and "not right: plain float 8x8x8: incorrect" in said
    state.edit_or_restore("a fault")
    status, said = state.place.run("snakemake --cores 2 --config strict=True -- one")
    assert status == 0 and "not right" not in said


def test_a_task_that_a_short_run_left_out_is_made_by_its_name(sequences):
    state = sequences()
    state.begin("quick")
    status, said = state.place.run("snakemake --cores 2 two")
    assert status == 0 and "two, second (1 ok), wrote results/here/tables/two.csv" in said
    assert stale(state.place.clone, [f"results/here/{kind}/two.csv" for kind in ("tables", "facts")]) is None
    state.edit_or_restore("a new task")
    status, said = state.place.run("snakemake --cores 2 extra")
    assert status == 0 and "extra, new (1 ok), wrote results/here/tables/extra.csv" in said


def test_no_reason_of_a_dry_run_is_long(sequences):
    state = sequences()
    state.begin("report")
    state.edit_or_restore("what only draws")
    _, said = state.place.run("snakemake --cores 2 -n all")
    reasons = [part for line in said.splitlines() if "Params have changed" in line for part in line.split("'")]
    assert "rule draw" in said and 64 <= max(map(len, reasons)) <= 200


def test_a_task_set_to_null_in_the_config_is_no_target_and_its_results_stay(sequences):
    state = sequences()
    state.begin("report")
    state.edit_or_restore("a task set to null")
    status, said = state.place.run("snakemake --cores 2 two")
    assert status == 1 and "there is no target two\nThe tasks are one, loops;" in said
    status, said = state.place.run("snakemake --cores 2 all")
    assert status == 0 and (state.place.clone / "results/here/tasks/two.csv").exists()
    state.edit_or_restore("a task set to null")
    jobs = len(state.place.jobs())
    status, said = state.place.run("snakemake --cores 2 two")
    assert status == 0 and not any(rule == "measure" for rule, _, _ in state.place.jobs()[jobs:])
