"""A real Slurm for the tests, which starts in seconds with its own state and ports, and clones of the study for it."""

import contextlib
import getpass
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import yaml
from cluster import Cluster, Run

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
ACCOUNTING = ("slurmdbd", "mariadbd")


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slurm)


def need(programs):
    """Skip the test, or let it fail if Slurm is required, unless some programs are installed."""
    missing = [name for name in programs if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    if missing:
        message = f"no {', '.join(missing)}: apt-get install munge slurmctld slurmd slurm-client"
        message += " slurmdbd mariadb-server-core" if programs != PROGRAMS else ""
        if "slurm" in os.environ.get("TILEWISE_REQUIRE", "").split(","):
            pytest.fail(message)
        pytest.skip(message)


@contextlib.contextmanager
def running(programs=PROGRAMS, **options):
    """A private Slurm, for the block."""
    need(programs)
    # Not in pytest's own folder, because munge wants a socket that every user can reach.
    folder = Path(tempfile.mkdtemp(prefix="tilewise-slurm-"))
    cluster = Cluster(folder, **options)
    try:
        cluster.script("start")
        yield cluster
    finally:
        cluster.script("stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def installed():
    """Slurm's programs are here."""
    need(PROGRAMS)


@pytest.fixture(scope="session")
def cluster():
    """A private Slurm of one node."""
    with running() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def accounting():
    """A private Slurm of two nodes whose accounting refuses what is not in its database."""
    with running((*PROGRAMS, *ACCOUNTING), ACCOUNTING="yes", SECOND="other") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def emulated(new_clone):
    """A function that makes a clone whose cluster.yaml names emulated platforms: their Slurm settings by name."""

    def make(folder, platforms, **config):
        clone = new_clone(folder, recorded=False)
        platforms = {name: {"backend": "emulator", "slurm": slurm} for name, slurm in platforms.items()}
        (clone / "config/cluster.yaml").write_text(yaml.safe_dump({"slurm": None, "platforms": platforms} | config))
        return clone

    return make


@pytest.fixture
def start(request):
    """A function that starts the study in a clone; if it still runs when the test ends, it is ended."""
    runs = []

    def start(clone, *arguments, on=None, **options):
        runs.append(Run(on or request.getfixturevalue("cluster"), clone, *arguments, **options))
        return runs[-1]

    yield start
    for run in runs:
        run.stop()
    for cluster in {id(run.cluster): run.cluster for run in runs}.values():
        cluster("scancel", f"--user={getpass.getuser()}")
