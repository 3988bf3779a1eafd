"""The README.md of a recorded run, made of its data by README.md.j2, and the names of the files beside them."""

import hashlib
from pathlib import Path

import jinja2

from tilewise.evidence import Platform
from tilewise.explain.runs import by_card

README, WORKFLOW, ARCHIVE, DIGEST = "README.md", "Snakefile", "samples.tar.xz", "samples.sha256"


def entry(folder: Path, platform: Platform) -> str:
    """The README.md of the recorded run in a folder, from the data that `platform` was read from."""
    rows, facts = platform.measurements, platform.facts
    tasks = {task for table in (rows, *facts.values()) if "task" in table for task in table["task"]}
    digest = folder / DIGEST
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(Path(__file__).with_name("README.md.j2").read_text())
    return template.render(
        folder=folder.name,
        device=platform.device,
        gpu={"power_limit_w": None, **platform.device.gpu},
        commits=[f"`{state}`" for state in platform.commits],
        tuner_commits=[f"`{state}`" for state in platform.tuner_commits],
        tasks=len(tasks),
        points=len(rows),
        statuses=[f"{count} {status}" for status, count in rows["status"].value_counts().items()],
        repeats=platform.config["timing"].get("repeats", 1),
        minutes=facts["sweep"]["wall_s"].sum() / 60,
        cards=by_card([platform]).to_dict("records"),  # a run resumed on another card has several
        counters=len(facts["counters"]),
        variants=len(facts["tune"]),
        sha256=digest.read_text(errors="replace").split()[0] if digest.is_file() else "",
    )


def sha256(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
