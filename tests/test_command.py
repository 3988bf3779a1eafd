"""The command `tilewise`: what it says of itself, and `tilewise trace` on products."""

import pytest
from builders import KERNELS

from tilewise import ROOT
from tilewise.__main__ import main


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--version", ["tilewise 1."]),
        ("--help", ["study of CUDA matrix multiplication", "make report", "trace", "docs/"]),
    ],
)
def test_version_and_help(option, words, capsys):
    with pytest.raises(SystemExit) as ended:
        main([option])
    said = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0 and all(word in said for word in words), said


def test_command_on_a_clean_kernel(capsys):
    assert main(["trace", str(KERNELS["tiled"].path), "--shape", "64x64x64", "--tile", "16"]) == 0
    output = capsys.readouterr().out
    assert "sectors per request                           4.00" in output
    assert "no faults in forward, reverse, random order" in output


def test_command_on_a_kernel_of_ones_own(tmp_path, capsys):
    text = KERNELS["tiled"].path.read_text().replace("void tiled(", "void mine(")
    (tmp_path / "mine.cu").write_text(text)
    assert main(["trace", str(tmp_path / "mine.cu"), "--tile", "8", "--dtype", "int32"]) == 0
    line = 1 + text[: text.index("__syncthreads();  // every")].count("\n")
    (tmp_path / "mine.cu").write_text(text.replace("__syncthreads();  // every", "// every"))
    assert main(["trace", str(tmp_path / "mine.cu"), "--tile", "8"]) == 1
    first = capsys.readouterr().out.split("no faults")[1].splitlines()[1]
    assert first.startswith(
        f"{tmp_path}/mine.cu:{line - 1}: error: race: thread (1, 0) of block (0, 0) reads tile_a[0]"
    )


def test_command_takes_the_parameters_of_the_template(tmp_path, capsys):
    """Any integer of the template is an option, with its default if it has one; grid and arguments are options too."""
    text = """
    // A __global__ function that nobody calls; it must not confuse.
    template <const int TILE_K, int STAGES = 2, bool TWICE = false>
    __global__ void __launch_bounds__(TILE_K * 4, STAGES)
    mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C)
    {
        const int row = blockIdx.x, col = blockIdx.y * TILE_K + threadIdx.x;
        if (col >= N || threadIdx.x >= TILE_K) return;
        float sum = 0;
        for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
        C[row * N + col] = TWICE ? 2 * sum : STAGES == 3 ? alpha * sum : 0;
    }"""
    (tmp_path / "mine.cu").write_text(text)
    words = ["trace", str(tmp_path / "mine.cu"), "--shape", "5x6x40", "--block", "32x1"]
    words += ["--arguments", "n,m,p,float:1.0,A,B,float:0.0,C", "--grid", "n,ceil_div(m,tile_k)", "--tile_k", "16"]
    assert main([*words, "--stages", "3"]) == 0
    assert "mine float 5x6x40, blocks of 32x1 threads" in capsys.readouterr().out
    assert main(words) == 1, "the default of STAGES multiplies by 0"
    assert main([*words, "--stages=3", "--twice", "1"]) == 1
    assert main([*words, "--template", "stages,3,0", "--stages", "8"]) == 2
    assert "--tile_k: mine does not take it; it takes --stages" in capsys.readouterr().err
    assert main([*words, "--template", "tile_k,stages + 1,0", "--stages", "2"]) == 0


MISUSE = [
    ("{naive}", "naive needs --block, for example --block 32x8"),
    ("{naive} --block 64x32", "--block: 64x32 is more than 1024 threads"),
    ("{naive} --block 32y8", "argument --block: invalid size (wanted: 64x64) value: '32y8'"),
    ("{tiled} --shape 0x1x1 --tile 8", "argument --shape"),
    ("{tiled} --tile 64", "kernels/textbook/tiled.cu:19: static assertion failed: a block has at most 1024 threads"),
    ("{tiled}x --tile 8", "did you mean"),
    ("naive", "there is no file naive; the kernel of this name is in kernels/textbook/naive.cu"),
    ("a" * 300, "File name too long"),
    ("{mine} --name other --block 8x8", "there is no __global__ function 'other'; it has mine; name one with --name"),
    ("{mine} --block 8x8", "mine.cu: mine needs --width, for example --width 16"),
    ("{mine} --block 8x8 --widht 4", "--widht: mine does not take it; it takes --width"),
    ("{mode}", "what is the template argument 'width' of mode? Say it with --template"),
    ("{mine} --block 8x8 --width x", "argument --width: 'x' is not a whole number; an unknown option is a kernel"),
    ("{mine} --block 8x8 --width 4 --grid wide", "--grid: 'wide': 'wide' is undefined; there are"),
    ("{mine} --block 8x8 --width 4 --arguments A,B,C", "mine<float, 4>: the function has 6 parameters, but the launch"),
    ("{naive} --block 32x8 --grid 4,4", "--grid: naive has it from kernels/registry.yaml; change it there"),
    ("{tiled} --tile 8 --block 8x8", "--block: tiled does not take it; its block follows from its other parameters"),
]


@pytest.mark.parametrize("arguments, message", MISUSE)
def test_misuse(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(ROOT)
    mine = tmp_path / "mine.cu"
    mine.write_text(
        "template <typename T, int WIDTH>\n__global__ void mine(const T* A, const T* B, T* C, int n, int p, int m) {}"
    )
    mode = tmp_path / "mode.cu"
    mode.write_text("enum Mode { A }; " + mine.read_text().replace("int WIDTH", "Mode WIDTH").replace("mine", "mode"))
    words = arguments.format(
        mine=mine, mode=mode, **{name: f"kernels/textbook/{name}.cu" for name in ("naive", "tiled")}
    ).split()
    try:
        status = main(["trace", *words])
    except SystemExit as end:  # argparse exits in this way
        status = end.code
    assert status == 2
    assert message in capsys.readouterr().err
