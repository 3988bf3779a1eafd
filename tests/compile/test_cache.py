"""What the host's compiler made for every run is kept in the user's cache, and not for ever."""

import dataclasses
import errno
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from clones import copy_repository, snakemake, variables

from kernelscope import compile, cpp
from tilewise import UserError


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of this test's own; returns its folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cpp.cache_folder.cache_clear()
    yield tmp_path / "cache/kernelscope"
    cpp.cache_folder.cache_clear()


def make(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / "three.cpp").write_text(text)
    return cpp.compile_object("three", [folder / "three.cpp"]), cpp.precompile_header("own.h", text, cpp.FLAGS)


def age(path, days):
    then = time.time() - days * 24 * 3600
    os.utime(path, (then, then))


def test_what_is_in_use_is_kept_and_what_is_not_goes(cache, tmp_path):
    made = make(tmp_path / "a", "int three();\n")
    for path in made:
        age(path, days=40)
    assert make(tmp_path / "a", "int three();\n") == made, "the same sources need no compiler"
    other = make(tmp_path / "a", "int four();\n")
    assert sorted(cache.iterdir()) == sorted([*made, *other]), "they were used a moment ago"
    for path in made:
        age(path, days=40)
    last = make(tmp_path / "a", "int five();\n")
    assert sorted(cache.iterdir()) == sorted([*other, *last])


def test_several_sources_are_one_object_of_one_name(cache, tmp_path):
    (tmp_path / "three.cpp").write_text("int three() { return 3; }\n")
    (tmp_path / "six.cpp").write_text("int three();\nint six() { return 2 * three(); }\n")
    sources = [tmp_path / "three.cpp", tmp_path / "six.cpp"]
    made = cpp.compile_object("both", sources, [])
    assert cpp.compile_object("both", sources, ()) == made and list(cache.iterdir()) == [made]
    assert {"_Z3sixv", "_Z5threev"} <= set(subprocess.check_output(["nm", made], text=True).split())


def test_what_another_process_is_making_is_not_made_twice(cache):
    begun, go, made = threading.Event(), threading.Event(), []

    def slowly(path):
        begun.set()
        assert go.wait(60)
        path.write_text("whole")
        made.append("first")

    def again(path):
        made.append("second")

    with ThreadPoolExecutor() as pool:  # a file is locked by threads as by processes
        first = pool.submit(cpp.make_once, "three.o", slowly)
        assert begun.wait(60)
        second = pool.submit(cpp.make_once, "three.o", again)
        go.set()
        assert first.result(60) == second.result(60) == cache / "three.o"
    assert made == ["first"] and [path.name for path in cache.iterdir()] == ["three.o"], "nor is a lock left behind"


def test_what_fails_to_be_made_leaves_nothing_and_holds_nobody_up(cache):
    def fails(path):
        path.write_text("half")
        raise UserError("no")

    with pytest.raises(UserError):
        cpp.make_once("three.o", fails)
    assert not list(cache.iterdir())
    assert cpp.make_once("three.o", lambda path: path.write_text("whole")).read_text() == "whole"


def test_a_full_disk_is_named_with_the_remedy(cache, tmp_path, monkeypatch):
    def fails(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UserError, match=rf"{cache}: No space left on device; make room there, or .* XDG_CACHE_HOME"):
        cpp.make_once("three.o", fails)
    full = tmp_path / "g++"
    full.write_text("#!/bin/sh\necho 'as: three.o: No space left on device' >&2; exit 1\n")
    full.chmod(0o755)
    monkeypatch.setenv("CXX", str(full))
    with pytest.raises(UserError, match=rf"No space left on device; make room in {cache} .*XDG_CACHE_HOME and TMPDIR"):
        cpp.run_compiler(["-c", "three.cpp"])
    assert not list(cache.iterdir())


def test_a_home_that_is_read_only_keeps_the_cache_in_a_folder_of_the_user(cache, tmp_path, monkeypatch):
    nowhere = "/proc/nowhere"  # not even root can make it
    monkeypatch.setenv("HOME", nowhere)
    monkeypatch.setenv("XDG_CACHE_HOME", nowhere)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cpp.cache_folder.cache_clear()
    made = cpp.make_once("three.o", lambda path: path.write_text("three"))
    assert made == tmp_path / f"kernelscope-{os.getuid()}/kernelscope/three.o"


@pytest.mark.slow
def test_snakemake_starts_with_a_home_that_is_read_only(clone):
    done = snakemake(clone, "-n", "task3", HOME="/proc/nowhere", XDG_CACHE_HOME="")
    assert done.returncode == 0, done.stderr


BUILD = """
import sys
from kernelscope.compile import build_traced
from tilewise.traced.multiplication import trace_point
from tilewise.study import points, registry
kernel = registry.load()["without_barriers"]
library = build_traced(kernel, ["without_barriers<float, 16>"], sys.argv[1])
point = points.point("trace", "without_barriers", "float", 16, 16, 16, block_x=16, block_y=16)
_, faults = trace_point(kernel, point, library)
print(faults[0])
"""


def libraries(cache, clone, folder):
    """The libraries that are in the cache after a clone traced a kernel, and what it printed of its fault."""
    command = [sys.executable, "-c", BUILD, folder / "traced.so"]
    environment = variables(clone) | {"XDG_CACHE_HOME": str(cache.parent)}
    folder.mkdir()
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {path.name: path.stat().st_ino for path in cache.glob("*.so")}, done.stdout


@pytest.mark.slow
def test_all_clones_share_the_libraries_of_the_studys_kernels(cache, tmp_path):
    first, second = (copy_repository(tmp_path / name) for name in ("first", "second"))
    made, said = libraries(cache, first, tmp_path / "a")
    assert len(made) == 1 and said.startswith("kernels/textbook/without_barriers.cu:26: error: race")
    for path in (*cache.glob("*.so"), *cache.glob("*.o")):
        assert str(first).encode() not in path.read_bytes(), f"{path.name} knows where it was made"
    assert libraries(cache, second, tmp_path / "b") == (made, said), "found, not made, with its lines"
    kernel = second / "kernels/textbook/without_barriers.cu"
    kernel.write_text(f"// one line more\n{kernel.read_text()}")
    changed, said = libraries(cache, second, tmp_path / "c")
    assert len(changed) == 2 and changed.items() > made.items()
    assert said.startswith("kernels/textbook/without_barriers.cu:27: error: race")
    with open(second / "packages/microscope/src/kernelscope/cuda/include/warp.h", "a") as header:
        header.write("// nothing\n")
    assert len(libraries(cache, second, tmp_path / "d")[0]) == 3


def test_the_library_of_a_file_elsewhere_is_not_kept(cache, tmp_path, kernels):
    (tmp_path / "naive.cu").write_text(kernels["naive"].path.read_text())
    mine = dataclasses.replace(kernels["naive"], folder=tmp_path, source="naive.cu")
    assert compile.build(mine, ["naive<float>"], tmp_path / "own.so").is_file()
    assert not list(cache.glob("*.so"))
