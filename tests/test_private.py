"""Only public parts of Snakemake and of other packages are used, so that a new version of theirs breaks nothing; and a
name in capitals means one thing."""

import ast
import collections
import re

from tilewise import ROOT

#: Names with an underscore of what is not our own, and why they stay.
LEFT = {
    "_asdict": "documented, of a named tuple",
    "_replace": "documented, of a named tuple",
    "_value_": "documented, of an enumeration",
    "_exit": "documented, of os",
    "_fields_": "documented, of a structure of ctypes",
    "_handle": "ctypes has no other way to close a library, which the emulator does between kernels",
}
#: Lines that stay, with the reason.
LINES = {
    "sys.executable = shlex.quote(sys.executable)": "Snakemake does not quote it, so no clone could lie under a blank",
    "source=configfiles.settle(config, workflow.configfiles, workflow.config_settings),": "the words of --config: "
    "Snakemake hands them to the jobs of Slurm in a code of its own",
}
PLACES = (
    "Snakefile",
    "workflow/Snakefile",
    "workflow/**/*.py",
    "workflow/**/*.smk",
    "profiles/**/*.yaml",
    "slurm/*.yaml",
    "Makefile",
)
#: What no file names: Snakemake's folder and exceptions, its objects' inside, and code in a profile.
NEVER = (
    r"\.snakemake/\w|snakemake\.exceptions|sys\.executable =|__use_yte__|workflow\.(?!configfiles|cores|exec_mode)\w+"
)


def lines():
    for place in PLACES:
        for path in sorted(ROOT.glob(place)):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}", line


def test_no_private_name_of_another_package_is_used_but_those_with_a_reason():
    found = {
        name: place for place, line in lines() for name in re.findall(r"(?<!self)(?<!cls)(?<!\))\.(_[a-z]\w*)", line)
    }
    assert set(found) == set(LEFT), found


def test_nothing_reaches_into_snakemake():
    code = [(place, line.split("#")[0]) for place, line in lines()]
    found = [place for place, line in code if re.search(NEVER, re.sub(r"tilewise\.workflow", "", line))]
    assert [place for place in found if ": rm -rf " not in place and place.split(": ", 1)[1] not in LINES] == []


#: The packages through which NVIDIA's driver, libraries and tools are reached.
VENDORS_OWN = re.compile(r"(?:import|from) (?:cupy|pynvml|cuda)\b")
#: The programs of its toolkit and driver, as words of a command.
PROGRAMS = re.compile(r"""["'](?:ncu|nvdisasm|nvidia-smi|nvcc)["']""")


def test_only_the_vendors_package_speaks_to_its_gpus():
    """Nor does anything else import the package: it asks for a `Vendor`."""
    for place, line in lines():
        if not place.startswith("workflow/tilewise/nvidia/") and ".py:" in place:
            assert not VENDORS_OWN.search(line) and not PROGRAMS.search(line), place
            assert "tilewise.nvidia" not in line or place.startswith("workflow/tilewise/vendor.py"), place


#: Constants that several modules have, because they mean the same in each.
SHARED = {
    "LOG": "the module's logger",
    "FILE": "the file that goes with the module",
    "DATA": "what it holds",
    "OVERVIEW": "the tables, and the figures, that compare all kernels",
}


def constants(path):
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            found = [statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets
            for name in (each.id for target in found for each in ast.walk(target) if isinstance(each, ast.Name)):
                if name.strip("_").isupper():
                    yield name.strip("_")


def test_no_two_modules_have_a_constant_of_one_name():
    places = collections.defaultdict(list)
    for path in sorted(ROOT.glob("workflow/**/*.py")):
        for name in constants(path):
            places[name].append(str(path.relative_to(ROOT)))
    assert {name for name, found in places.items() if len(found) > 1} <= set(SHARED), places
