"""Every kernel compiles for GPUs that are not here, or its entry says what it needs of a GPU."""

import json
import os
import subprocess

import pytest

from tilewise import ROOT
from tilewise.compile import architectures
from tilewise.study import registry
from tilewise.study.architectures import SHARED_BYTES

#: The environment with CUDA 12, which `make architectures` makes.
CUDA12 = ROOT / ".venv-cuda12/bin/python"
#: Compile for a GPU whose capability is the argument, by the NVRTC of whatever environment runs it.
COMPILE = """
import json, sys
from kernelscope.yaml_input import read_yaml
from tilewise import ROOT
from tilewise.compile import architectures
from tilewise.study import registry
kernels, config = registry.load(), read_yaml(ROOT / "config/config.yaml")
asked = architectures.points(config, kernels, sys.argv[1])
json.dump(architectures.compile_all(asked, kernels, sys.argv[1]), sys.stdout)
"""


def assert_whole(found, capability, unsupported):
    """All kernels compile but those that a GPU of this capability cannot run, within its shared memory."""
    assert architectures.undeclared(found) == []
    assert {each.kernel for each in found if each.unsupported} == unsupported
    for each in found:
        if not each.unsupported:
            assert 0 < each.registers <= 255
            fits = each.shared_bytes <= SHARED_BYTES[capability]
            assert fits or each.kernel.startswith("multi_tile"), f"{each.kernel} takes {each.shared_bytes} B"


@pytest.mark.slow
def test_blackwell_runs_all_but_wgmma(config, kernels):
    found = architectures.compile_all(architectures.points(config, kernels, "12.0"), kernels, "12.0")
    assert_whole(
        found, "12.0", {name for name, kernel in kernels.items() if kernel.kind == "cuda" and "wgmma" in kernel.needs}
    )
    spilled = {each.kernel: each.spill_bytes for each in found if each.spill_bytes}
    assert set(spilled) <= {"tma_ring", "transposing_ring", "stream_k", "batched_ring", "register_tile", "dmma_ring"}
    assert max(spilled.values()) <= 300, spilled


@pytest.mark.slow
def test_volta_runs_what_needs_nothing(kernels):
    if not CUDA12.exists():
        assert "cuda12" not in os.environ.get("TILEWISE_REQUIRE", "").split(","), f"{CUDA12} is missing"
        pytest.skip("no environment with CUDA 12 (make architectures)")
    done = subprocess.run([CUDA12, "-c", COMPILE, "7.0"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [architectures.Compiled(*each) for each in json.loads(done.stdout)]
    assert_whole(found, "7.0", {name for name, kernel in kernels.items() if kernel.kind == "cuda" and kernel.needs})
    assert not any(each.spill_bytes for each in found)


#: A kernel of the user's with an instruction of Hopper.
PLANTED = """
__global__ void planted(const float *A, const float *B, float *C, int n, int p, int m)
{
    asm volatile("wgmma.fence.sync.aligned;");
    C[0] = A[0] * B[0];
}
"""
ENTRY = "planted: {title: mine, kind: cuda, source: planted.cu, dtypes: [float], block: [32], grid: [1]"


def test_an_instruction_that_the_entry_does_not_name_is_found(tmp_path):
    (tmp_path / "planted.cu").write_text(PLANTED)
    config = {"tasks": {"mine": {"sweeps": [{"kernel": "planted", "dtype": "float", "shapes": "one"}]}}}
    config["shapes"] = {"one": [{"n": 32, "p": 32, "m": 32}]}

    def found(entry, capability):
        (tmp_path / "registry.yaml").write_text(entry)
        kernels = registry.load(tmp_path)
        return architectures.compile_all(architectures.points(config, kernels, capability), kernels, capability)

    for capability, target in (("8.0", "sm_80"), ("9.0", "sm_90"), ("12.0", "sm_120")):
        [line] = architectures.undeclared(found(ENTRY + "}", capability))
        assert f"planted.needs: float for {target}: " in line and "wgmma" in line
        assert "**error**" in architectures.section(found(ENTRY + "}", capability), "NVRTC")
        assert architectures.undeclared(found(ENTRY + ", needs: [wgmma]}", capability)) == []


def test_the_page_keeps_the_other_compilers_section(tmp_path):
    page, one = tmp_path / "page.md", architectures.Compiled("k", "float", "9.0", "sm_90", 40, 8, 0, "", "")
    page.write_text("# Head\nwords\n")
    for compiler, spills in (("NVRTC 13.0.88", 1), ("NVRTC 12.9.86", 2), ("NVRTC 13.1.5", 3)):
        architectures.write(architectures.section([one._replace(spill_bytes=spills)], compiler), page)
    text = page.read_text()
    assert text.startswith("# Head\nwords\n\n## NVRTC 12.9.86\n") and text.count("## ") == 2
    assert "| `k` | float | 40 + 2 B |" in text and "## NVRTC 13.1.5" in text and "40 + 3 B" in text
