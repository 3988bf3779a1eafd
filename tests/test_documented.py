"""Every command of the documentation is run by a test, or listed here with the reason why none runs it; every link of
it leads somewhere."""

import re

import pytest

from tilewise import ROOT

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "config/README.md")] + sorted(ROOT.glob("docs/*.md"))
PROGRAMS = re.compile(
    r"(\.|conda|eval|git|jupyter|make|pip|pytest|python3?|rm|sha256sum|snakemake|squeue|tail|tilewise|validator/\S+) "
)
#: The start of a command, and the test that runs it, what it calls, or the same with other files.
RUN = {
    ". .venv/bin/activate": "tests/test_stops.py::test_a_clone_may_lie_anywhere",
    "make .venv/test": "tests/test_environment.py::test_make_prints_a_line_for_each_step",
    "make clean": "tests/test_environment.py::test_make_clean_spares",
    "make help": "tests/test_environment.py::test_make_help_lists_every_target",
    "make quick": "tests/test_pipeline.py::test_the_quick_study_runs_end_to_end",
    "make report": "tests/test_stops.py::test_a_clone_may_lie_anywhere",
    "pip install --no-index": "tests/test_environment.py::test_the_recipe_for_nodes_without_a_network",
    "pip install -r": "tests/test_environment.py::test_the_recipe_for_nodes_without_a_network",
    "pip wheel": "tests/test_environment.py::test_the_recipe_for_nodes_without_a_network",
    "python -m tilewise.explain.ladder": "tests/explain/test_ladder.py::test_the_tables_of_the_ladders_page",
    "python -m tilewise.study.columns": "tests/study/test_columns.py::test_every_file_has_columns_that_are_described",
    "rm results/<platform>/": "tests/slurm/test_study.py::test_rerunning_a_task_submits_only_its_own_job",
    "sha256sum": "tests/recorded/test_record.py::test_samples_are_an_archive",
    "snakemake --cores 1 --profile slurm": "tests/slurm/test_study.py::test_the_quick_study_takes_a_job_per_task",
    "snakemake --cores 1 -n": "tests/test_reruns.py::test_a_key_of_the_config_runs_again_what_the_docs_say",
    "snakemake --cores 1 results/": "tests/explain/test_counters.py::test_each_kernel_is_built_once",
    "snakemake results/": "tests/explain/test_counters.py::test_each_kernel_is_built_once",
    "snakemake --cores 1 task3": "tests/test_pipeline.py::test_one_task_alone",
    "snakemake --cores 2": "tests/test_pipeline.py::test_one_task_alone",
    "snakemake --cores all": "tests/test_pipeline.py::test_the_quick_study_runs_end_to_end",
    "snakemake --cores all --forcerun probe": "tests/test_stops.py::test_what_a_killed_run_left_unfinished",
    "snakemake --cores all results/emulator/instructions.csv": "tests/explain/test_machine_code.py::test_the_table_has",
    "snakemake --cores all tune": "tests/test_pipeline.py::test_tuning_runs_if_it_is_named_and_only_then",
    "tilewise compare": "tests/recorded/test_compare.py::test_csv_json_and_picture",
    "tilewise list": "tests/test_inventory.py::test_the_list_has_every_task",
    "tilewise machine-code": "tests/explain/test_machine_code.py::test_the_command",
    "tilewise record": "tests/recorded/test_record.py::test_a_run_comes_back_as_it_was",
    "tilewise status": "tests/test_inventory.py::test_junit_has_a_case_per_point",
    "tilewise trace": "tests/microscope/test_any_kernel.py::test_",
    "tilewise tuned": "tests/measure/test_tune.py::test_the_choices_are_kept_in_the_registry",
    "eval": "tests/test_inventory.py::test_bash_completes_the_commands",
}
#: The start of a command that no test runs, and why.
NOT_RUN = {
    "$EDITOR": "a person does",
    "conda": "conda is on no machine of the tests; a test compares its file with pyproject.toml",
    "git": "git's own",
    "jupyter": "a server for a person; tests run the notebook's cells",
    "make lint": ".ci/run does",
    "make test": "this is it",
    "pip install --editable '.[gpu]'": "1.4 GB; a test resolves it without a download",
    "pip install --no-deps -e .": "make does so in .ci/run",
    "pytest": "this is it",
    "python tests/microscope/suites.py": "the suites are by others, and not in this repository",
    "python tests/microscope/suites_gpu.py": "they need a GPU, too",
    "python3 -m venv .venv": "make does so in .ci/run",
    "python3 -m venv validator": "the validator needs a network",
    "snakemake --cores 1 --report": "Snakemake's own",
    "squeue": "Slurm's own",
    "tail": "the system's own",
    "validator/": "the validator needs a network; tests/test_crate.py checks the crate's form",
}


BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands(text):
    """The commands of a page: lines of its blocks for a shell, and code of its sentences that begins like one."""
    for language, block in BLOCK.findall(text):
        for line in block.splitlines():
            command = line.removeprefix("$ ") if line.startswith("$ ") else line * (language == "bash")
            yield re.split(r"\s+#", command)[0].strip()
    for code in re.findall(r"`([^`]+)`", BLOCK.sub("", text)):
        if PROGRAMS.match(command := " ".join(code.split())):
            yield command


DOCUMENTED = sorted({command for page in PAGES for command in commands(page.read_text()) if command})


def test_every_command_is_run_by_a_test_or_listed_with_the_reason():
    """If one is not: add it to RUN or to NOT_RUN."""
    assert [each for each in DOCUMENTED if not any(each.startswith(start) for start in (*RUN, *NOT_RUN))] == []


def test_what_is_listed_is_documented_and_its_test_exists():
    for start in (*RUN, *NOT_RUN):
        assert any(command.startswith(start) for command in DOCUMENTED), start
    for place in RUN.values():
        file, _, name = place.partition("::")
        assert re.search(rf"^def {name}", (ROOT / file).read_text(), re.MULTILINE), place


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page):
    text = re.sub(r"`[^`]*`", "", BLOCK.sub("", page.read_text()))
    for target in re.findall(r"\]\(([^)#:]+)[)#]", text):
        assert (page.parent / target).exists(), target
