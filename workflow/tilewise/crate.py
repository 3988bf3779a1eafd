"""A run as an RO-Crate: `ro-crate-metadata.json` describes the workflow, its inputs, the machine, and all results.

It follows the profile Workflow Run Crate 0.5, https://w3id.org/ro/wfrun/workflow, and is valid by `rocrate-validator`.
Loading rocrate takes a fifth of a second, so commands import this module where they need it.
"""

import csv
import mimetypes
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rocrate.model import ContextEntity
from rocrate.rocrate import ROCrate

from kernelscope.yaml_input import read_yaml
from tilewise import ROOT
from tilewise.checksums import METADATA, sha256
from tilewise.study import device

#: The versions of the profiles, the basic ones first.
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
BIOSCHEMAS = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
MIT = "https://spdx.org/licenses/MIT"
#: The terms that the context of RO-Crate lacks.
TERMS = {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}
#: The inputs and outputs of a run by file name, with the formal parameters that they are examples of.
PARAMETERS = {"config.json": "#config", "measurements.csv": "#measurements"}
#: The files that are described: all but builds, journals, samples, locks and the parts of measurements.csv.
DESCRIBED = ("*", "facts/*", "tables/*", "figures/*", "tune/*")
ENDINGS = (".csv", ".html", ".json", ".md", ".svg")


def write(folder: Path, platforms: Sequence[str] = ("",), workflow: Path = ROOT / "workflow" / "Snakefile") -> None:
    """Write the crate of a run into its folder, with a copy of the workflow, which a crate has to hold.

    `platforms` are the run's folders in it, each with device.json, config.json and measurements.csv; by default the
    folder itself.
    """
    citation = read_yaml(ROOT / "CITATION.cff")
    crate = ROCrate(version="1.1")
    crate.metadata.extra_terms |= TERMS
    crate.name = f"A run of Tilewise on {', '.join(name or folder.name for name in platforms)}"
    crate.description = " ".join(citation["abstract"].split())
    words = {"@type": "CreativeWork", "name": "MIT License", "description": "use, change and share it"}
    crate.license = crate.add(ContextEntity(crate, MIT, properties=words))
    main = crate.add_workflow(workflow, "Snakefile", main=True, lang="snakemake", properties=_facts_of(workflow))
    main["name"], main["version"], main["license"] = citation["title"], citation["version"], crate.license
    main["conformsTo"] = {"@id": BIOSCHEMAS}
    crate.root_dataset["conformsTo"] = [
        crate.add(ContextEntity(crate, uri, properties=_profile(uri, name))) for uri, name in PROFILES.items()
    ]
    parameters = {name: crate.add_formal_parameter(name, "File", identifier) for name, identifier in PARAMETERS.items()}
    main["input"], main["output"] = parameters["config.json"], parameters["measurements.csv"]
    places = dict.fromkeys([folder, *(folder / name for name in platforms)])
    found = sorted({path for place in places for pattern in DESCRIBED for path in place.glob(pattern)})
    files = {
        path: crate.add_file(path, path.relative_to(folder).as_posix(), properties=_facts_of(path))
        for path in found
        if path.suffix in ENDINGS and path.name != METADATA
    }
    for path, file in files.items():
        if path.name in parameters:
            file["exampleOfWork"] = parameters[path.name]
            parameters[path.name].append_to("workExample", file, compact=True)
    starts = []
    for name in platforms:
        given = [folder / name / "config.json", folder / name / "device.json"]
        other = [folder / each for each in platforms if each != name]
        made = [path for path in files if path not in given and not any(path.is_relative_to(each) for each in other)]
        inputs = [*(files[path] for path in given), *(crate.add(fact) for fact in _machine(crate, folder / name))]
        action = _action(crate, folder / name, inputs, [files[path] for path in made])
        crate.root_dataset.append_to("mentions", action, compact=True)
        starts.append(action["startTime"])
    crate.datePublished = max(starts)
    crate.write(folder)


def describe(path: Path) -> None:
    """Describe a file in the crate of its run, which has one, as it is now; all else stays."""
    crate = ROCrate(path.parent)
    crate.metadata.extra_terms |= TERMS
    file = crate.get(path.name)
    if file is None:
        file = crate.add_file(path, path.name)
        for action in crate.get_by_type("CreateAction"):
            action.append_to("result", file)
    for name, fact in _facts_of(path).items():
        file[name] = fact
    crate.write(path.parent)


def _profile(uri: str, name: str) -> dict[str, str]:
    return {"@type": "CreativeWork", "name": name, "version": uri.rpartition("/")[2]}


def _facts_of(path: Path) -> dict[str, str]:
    """Name, size, format and sha256 of a file."""
    kind, size = mimetypes.guess_type(path.name)[0] or "text/plain", path.stat().st_size
    return {"name": path.name, "contentSize": str(size), "encodingFormat": kind, "sha256": sha256(path)}


def _machine(crate: ROCrate, folder: Path) -> list[ContextEntity]:
    """The processor, compiler, versions, commits and GPUs of a platform."""
    machine = device.read(folder / "device.json")
    facts = [("processor", machine.cpu.get("name", "")), ("host compiler", machine.host_compiler)]
    facts += [(f"version of {name}", version) for name, version in machine.versions.items()]
    with (folder / "measurements.csv").open(newline="") as table:
        rows = list(csv.DictReader(table))
    commits, cards = (dict.fromkeys(row.get(name) for row in rows) for name in ("commit", "gpu_uuid"))
    facts += [("commit", commit) for commit in commits if commit]
    named = [card for card in cards if card] or [""] * bool(machine.gpu)  # invented rows do not name theirs
    facts += [("GPU", f"{machine.gpu.get('name', '')} {card}".strip()) for card in named]
    return [
        ContextEntity(
            crate,
            f"#{name}={value}".replace(" ", "-"),
            properties={"@type": "PropertyValue", "name": name, "value": value},
        )
        for name, value in facts
    ]


def _action(crate: ROCrate, folder: Path, inputs: list[Any], results: list[Any]) -> ContextEntity:
    """The action that made the files of a platform."""
    machine = device.read(folder / "device.json")
    ended = datetime.fromtimestamp((folder / "measurements.csv").stat().st_mtime, UTC)
    words = {
        "name": f"Tilewise measured {machine.platform}",
        "description": f"The study on {machine.gpu.get('name') or 'a CPU, which emulates a GPU'}",
        "startTime": machine.captured,
        "endTime": ended.isoformat(timespec="seconds"),
    }
    return crate.add_action(crate.mainEntity, f"#run-{machine.platform}", inputs, results, properties=words)
