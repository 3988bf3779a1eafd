"""A run as an RO-Crate. docs/recording.md shows its validator, which needs a network and another `rich`."""

import hashlib
import json
import os

import pytest
import synthetic

from tilewise import crate

#: What is described on the web: the standards, and the pages about Snakemake that rocrate names.
ELSEWHERE = tuple(f"https://{place}" for place in ("w3id.org/ro/crate/", "bioschemas.org/", "doi.org/", "snakemake."))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The results of two platforms, with what no archive wants, and their crate."""
    folder = tmp_path_factory.mktemp("results")
    for name in ("nvidia-h200", "emulator"):
        synthetic.write(folder / name, *([name] if name == "emulator" else []))
        (folder / name / "journal").mkdir()
        (folder / name / "journal/task1a.jsonl").write_text("{}")
        (folder / name / "config.json").write_text("{}")
    (folder / "report.html").write_text("<p>the page</p>")
    crate.write(folder, ["nvidia-h200", "emulator"])
    return folder


@pytest.fixture
def entities(results):
    data = json.loads((results / crate.METADATA).read_text())
    return {entity["@id"]: entity for entity in data["@graph"]}


def references(value):
    """Every @id that a value refers to."""
    if isinstance(value, dict):
        return [value["@id"]]
    return [name for each in value for name in references(each)] if isinstance(value, list) else []


def test_every_file_of_the_run_is_described_as_it_is(results, entities):
    there = {
        path.relative_to(results).as_posix()
        for path in results.rglob("*")
        if path.parent.name not in ("journal", "tasks")
    }
    there = {name for name in there if (results / name).is_file()} - {crate.METADATA}
    files = {name: entity for name, entity in entities.items() if "File" in entity["@type"]}
    assert set(files) == there == set(references(entities["./"]["hasPart"]))
    for name, entity in files.items():
        data = (results / name).read_bytes()
        assert entity["sha256"] == hashlib.sha256(data).hexdigest() and entity["contentSize"] == str(len(data))


def test_nothing_is_named_that_is_not_described(entities):
    for entity in entities.values():
        for name in (name for value in entity.values() for name in references(value)):
            assert name in entities or name.startswith(ELSEWHERE), name


def test_each_platform_is_a_run_of_the_workflow_with_its_cards_and_commits(results, entities):
    assert entities["./"]["mainEntity"] == {"@id": "Snakefile"}
    assert "rule all" in (results / "Snakefile").read_text()
    for platform in ("nvidia-h200", "emulator"):
        run = entities[f"#run-{platform}"]
        assert run["@type"] == "CreateAction" and run["instrument"] == {"@id": "Snakefile"}
        given, made = references(run["object"]), references(run["result"])
        assert {f"{platform}/config.json", f"{platform}/device.json"} <= set(given)
        assert f"{platform}/measurements.csv" in made and "report.html" in made
        other = {"nvidia-h200": "emulator", "emulator": "nvidia-h200"}[platform]
        assert not [name for name in (*given, *made) if name.startswith(f"{other}/")]
        names = {entities[name].get("name") for name in given}
        assert "version of python" in names and ("GPU" in names) == (platform != "emulator")


def test_a_file_that_comes_later_is_described_and_the_times_of_the_run_stay(tmp_path):
    run = synthetic.write(tmp_path / "nvidia-h200")
    crate.write(run)

    def described():
        return {each["@id"]: each for each in json.loads((run / crate.METADATA).read_text())["@graph"]}

    before = described()
    os.utime(run / "measurements.csv", (0, 0))  # as a clone has other times
    for content in ("a\n", "a\nb\n"):
        (run / "cards.csv").write_text(content)
        crate.describe(run / "cards.csv")
        after = described()
        file, action = after.pop("cards.csv"), after["#run-nvidia-h200"]
        assert file["contentSize"] == str(len(content)) and {"@id": "cards.csv"} in action["result"]
        assert set(after) == set(before)
        for name in ("startTime", "endTime"):
            assert action[name] == before["#run-nvidia-h200"][name]
