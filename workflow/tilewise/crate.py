"""A run as an RO-Crate: `ro-crate-metadata.json` says which workflow made which files on which machine, from what.

It follows the profile Workflow Run Crate 0.5, https://w3id.org/ro/wfrun/workflow, and is valid by `rocrate-validator`.
"""

import csv
import hashlib
import mimetypes
import shutil
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilewise import ROOT
from tilewise.files import write_json
from tilewise.study import device
from tilewise.study.schema import read_yaml

METADATA, WORKFLOW = "ro-crate-metadata.json", "Snakefile"
#: The versions of the profiles, the basic ones first.
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
BIOSCHEMAS = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
#: What goes into a run and comes out of it, by the file's name.
PARAMETERS = {"config.json": "#config", "measurements.csv": "#measurements"}
SNAKEMAKE = "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"
MIT = "https://spdx.org/licenses/MIT"
#: What the crate's own words lack.
TERMS = {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}
#: What of a run is described: not its builds, journals, samples, locks and the parts of measurements.csv.
DESCRIBED = ("*", "facts/*", "tables/*", "figures/*", "tune/*")
ENDINGS = (".csv", ".html", ".json", ".md", ".svg")

Entity = dict[str, Any]


def write(folder: Path, platforms: Sequence[str] = ("",)) -> None:
    """Write the crate of a run into its folder, with the workflow, which a crate has to hold.

    `platforms` are the run's folders in it, each with device.json, config.json and measurements.csv; by default the
    folder itself.
    """
    shutil.copyfile(ROOT / "workflow" / "Snakefile", folder / WORKFLOW)
    write_json(described(folder, platforms), folder / METADATA)


def described(folder: Path, platforms: Sequence[str]) -> Entity:
    """The crate, as JSON-LD: files with size and sha256; per platform a CreateAction, with its GPUs and commits."""
    places = dict.fromkeys([folder, *(folder / name for name in platforms)])
    found = sorted({path for place in places for pattern in DESCRIBED for path in place.glob(pattern)})
    files = [path for path in found if path.suffix in ENDINGS and path.name != METADATA]
    runs = [
        _run(folder, name, [path for path in files if _belongs(path, folder, platforms, name)]) for name in platforms
    ]
    actions = [entities[0] for entities in runs]
    citation = read_yaml(ROOT / "CITATION.cff")
    ours = [
        {
            "@id": METADATA,
            "@type": "CreativeWork",
            "about": {"@id": "./"},
            "conformsTo": [{"@id": "https://w3id.org/ro/crate/1.1"}, {"@id": list(PROFILES)[-1]}],
        },
        {
            "@id": "./",
            "@type": "Dataset",
            "name": f"A run of Tilewise on {', '.join(name or folder.name for name in platforms)}",
            "description": " ".join(citation["abstract"].split()),
            "datePublished": max(action["startTime"] for action in actions),
            "license": {"@id": MIT},
            "conformsTo": _ids(PROFILES),
            "mainEntity": {"@id": WORKFLOW},
            "mentions": _ids(action["@id"] for action in actions),
            "hasPart": _ids([WORKFLOW, *(_id(path, folder) for path in files)]),
        },
        *(
            {"@id": uri, "@type": "CreativeWork", "name": name, "version": uri.rpartition("/")[2]}
            for uri, name in PROFILES.items()
        ),
        {"@id": MIT, "@type": "CreativeWork", "name": "MIT License", "description": "use, change and share it"},
        {"@id": SNAKEMAKE, "@type": "ComputerLanguage", "name": "Snakemake", "url": "https://snakemake.github.io"},
        _file(folder / WORKFLOW, folder)
        | {
            "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
            "name": citation["title"],
            "version": citation["version"],
            "license": {"@id": MIT},
            "programmingLanguage": {"@id": SNAKEMAKE},
            "conformsTo": {"@id": BIOSCHEMAS},
            "input": {"@id": "#config"},
            "output": {"@id": "#measurements"},
        },
        *(_parameter(name, [_id(folder / platform / name, folder) for platform in platforms]) for name in PARAMETERS),
        *(_file(path, folder) for path in files),
    ]
    unique = {each["@id"]: each for each in [*ours, *(each for entities in runs for each in entities)]}
    return {"@context": ["https://w3id.org/ro/crate/1.1/context", TERMS], "@graph": list(unique.values())}


def _run(folder: Path, platform: str, files: Sequence[Path]) -> list[Entity]:
    """The action that made the files of a platform, then what else it names: software, GPUs, commits."""
    place = folder / platform
    machine = device.read(place / "device.json")
    with (place / "measurements.csv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    given = [place / "config.json", place / "device.json"]
    facts = [_value("processor", machine.cpu.get("name", "")), _value("host compiler", machine.host_compiler)]
    facts += [_value(f"version of {name}", version) for name, version in machine.versions.items()]
    facts += [_value("commit", commit) for commit in _seen(rows, "commit")]
    cards = [*_seen(rows, "gpu_uuid")] or [""] * bool(machine.gpu)  # rows of old runs do not name theirs
    facts += [_value("GPU", f"{machine.gpu.get('name', '')} {uuid}".strip()) for uuid in cards]
    action = {
        "@id": f"#run-{machine.platform}",
        "@type": "CreateAction",
        "name": f"Tilewise measured {machine.platform}",
        "description": f"The study on {machine.gpu.get('name') or 'a CPU, which emulates a GPU'}",
        "instrument": {"@id": WORKFLOW},
        "startTime": machine.captured,
        "endTime": datetime.fromtimestamp((place / "measurements.csv").stat().st_mtime, UTC).isoformat(
            timespec="seconds"
        ),
        "object": _ids([*(_id(path, folder) for path in given), *(fact["@id"] for fact in facts)]),
        "result": _ids(_id(path, folder) for path in files if path not in given),
    }
    return [action, *facts]


def _belongs(path: Path, folder: Path, platforms: Sequence[str], name: str) -> bool:
    """Whether a platform has a file: its own, or one of the folder, which all platforms have."""
    first = path.relative_to(folder).parts[0]
    return first == name or first not in platforms


def _seen(rows: Iterable[dict[str, str]], name: str) -> Iterator[str]:
    yield from dict.fromkeys(row[name] for row in rows if row.get(name))


def _value(name: str, value: str) -> Entity:
    return {"@id": f"#{name}={value}".replace(" ", "-"), "@type": "PropertyValue", "name": name, "value": value}


def _parameter(name: str, examples: Sequence[str]) -> Entity:
    names = {"@id": PARAMETERS[name], "@type": "FormalParameter", "name": name}
    return names | {"additionalType": "File", "workExample": _ids(examples)}


def _file(path: Path, folder: Path) -> Entity:
    data = path.read_bytes()
    found = {"@id": _id(path, folder), "@type": "File", "name": path.name, "contentSize": str(len(data))}
    kind = mimetypes.guess_type(path.name)[0] or "text/plain"
    found |= {"encodingFormat": kind, "sha256": hashlib.sha256(data).hexdigest()}
    return found | ({"exampleOfWork": {"@id": PARAMETERS[path.name]}} if path.name in PARAMETERS else {})


def _id(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _ids(names: Iterable[str]) -> list[Entity] | Entity:
    """References to entities; JSON-LD wants a single one without a list around it."""
    found = [{"@id": name} for name in names]
    return found[0] if len(found) == 1 else found
