"""Compilers other than the default one: those that can do it work, and the others are refused in one line."""

import ctypes
import shlex
import shutil

import pytest
from builders import trace

import kernelscope
from kernelscope import compile, cpp
from kernelscope.errors import NotEmulated
from tilewise import UserError
from tilewise.__main__ import main

OWN = shlex.join(cpp.compiler())
KERNEL = "kernels/textbook/without_barriers.cu"


def wrapper(path, text):
    """A compiler that is a shell script of this text; returns its path."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def faults_with(compiler, monkeypatch, tmp_path, kernels):
    """What the tracer finds in the kernel without barriers, as text."""
    monkeypatch.setenv("CXX", compiler)
    cpp.check()
    kernel = kernels["without_barriers"]
    library = compile.build_traced(kernel, ["without_barriers<float, 16>"], tmp_path / "traced.so")
    return [str(fault) for fault in trace(kernel, "float", (16, 16, 16), library, block_x=16, block_y=16)[1]]


#: What Ubuntu and others build into their compilers; a fused multiply-add would change the last digits of a message.
#: The unique symbols of a static libstdc++, if they were seen, would keep the first library loaded.
ADDED = "-march=native -ffp-contract=off -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fcf-protection"
ADDED += " -Wl,-z,now -Wl,--as-needed -static-libstdc++ -static-libgcc"


@pytest.fixture(scope="module")
def wrapped(tmp_path_factory):
    """A compiler in a folder with a blank that adds flags, as CXX names it."""
    script = wrapper(tmp_path_factory.mktemp("a folder") / "c++", f'exec {OWN} "$@" {ADDED}')
    return f"{shlex.quote(script)} -DWRAPPED"


@pytest.mark.slow
def test_a_wrapper_in_a_folder_with_a_blank_that_adds_flags_changes_nothing(monkeypatch, tmp_path, kernels, wrapped):
    expected = faults_with(OWN, monkeypatch, tmp_path, kernels)
    assert expected and expected[0].startswith(f"{KERNEL}:26: error: race")
    assert faults_with(wrapped, monkeypatch, tmp_path, kernels) == expected


@pytest.mark.slow
def test_a_library_with_a_static_libstdcxx_can_be_built_again(monkeypatch, tmp_path, kernels, wrapped):
    monkeypatch.setenv("CXX", wrapped)
    for tile in (8, 16):
        library = compile.build_traced(kernels["tiled"], [f"tiled<float, {tile}>"], tmp_path / "tiled.so")
        row, _ = trace(kernels["tiled"], "float", (16, 16, 16), library, tile=tile)
        assert row["shared_load_wavefronts"] > 0


@pytest.mark.slow
def test_ptx_that_the_emulator_does_not_know_is_refused_with_a_static_libstdcxx(monkeypatch, tmp_path, wrapped):
    """The library throws an exception before its first launch; what libstdc++ keeps of it is thread-local."""
    monkeypatch.setenv("CXX", wrapped)
    path = tmp_path / "unknown.cu"
    path.write_text('__global__ void unknown() {\n    asm volatile("no.such;");\n}\n')
    with pytest.raises(NotEmulated, match=r"unknown\.cu:2: .*no\.such"):
        kernelscope.trace(path, kernelscope.Call("unknown", 1, 32))


@pytest.mark.slow
def test_a_flag_that_the_compiler_lacks_is_left_out_and_said(monkeypatch, tmp_path, kernels, capsys):
    script = wrapper(
        tmp_path / "g++",
        'for flag; do case $flag in -ftrivial*) echo "g++: error: unrecognized option $flag" >&2; exit 1;; esac; done\n'
        f'exec {OWN} "$@"',
    )
    monkeypatch.setenv("CXX", script)
    assert main(["trace", str(kernels["tiled"].path), "--tile", "8"]) == 0
    said = capsys.readouterr().out
    assert "lacks -ftrivial-auto-var-init=pattern: a read of an uninitialised variable may be missed" in said
    (tmp_path / "mine.cu").write_text(kernels["naive"].path.read_text().replace("T sum = 0;", "volatile T sum;"))
    assert main(["trace", str(tmp_path / "mine.cu"), "--block", "8x8"]) == 1
    assert "wrong product" in capsys.readouterr().out, "the stack of a thread is marked for every compiler"


REFUSED = {
    "clang": ("clang++", "clang version .* is not g\\+\\+ 11 or newer; install one .*set CXX"),
    "old": (f"{OWN} -U__GNUC__ -D__GNUC__=10", "is not g\\+\\+ 11 or newer"),
    "none": ("no-such-compiler", "there is no C\\+\\+ compiler 'no-such-compiler'; install one"),
    "no headers": (f"{OWN} --sysroot=/nonexistent", "cannot make a library: .*No such file.*install it whole"),
    "no linker": (f"{OWN} -fuse-ld=lld -B/nonexistent", "cannot make a library: .*ld.*install it whole"),
    "no crt": (f"{OWN} -nostdlib -lno-such-library", "cannot make a library: .*cannot find -lno-such-library"),
}


@pytest.mark.parametrize("compiler, message", REFUSED.values(), ids=REFUSED)
def test_a_compiler_that_cannot_do_is_refused_in_one_line(monkeypatch, capsys, compiler, message):
    if compiler == "clang++" and not shutil.which("clang++"):
        pytest.skip("clang++ is not installed")
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(UserError, match=message):
        cpp.check()
    assert main(["trace", KERNEL]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_what_cannot_be_loaded_here_is_refused(monkeypatch):
    def refuses(path):
        raise OSError("probe.so: version `GLIBCXX_3.4.99' not found")

    monkeypatch.setenv("CXX", f"{OWN} -DOTHER")
    monkeypatch.setattr(ctypes, "CDLL", refuses)
    with pytest.raises(UserError, match=r"cannot load: .*GLIBCXX_3.4.99.*add -static-libstdc\+\+ to CXX"):
        cpp.check()
