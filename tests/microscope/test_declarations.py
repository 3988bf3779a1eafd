"""The functions and variables of a CUDA file are what the compiler sees, however they are written."""

import pytest

from kernelscope.compile import build_traced, declarations_of, functions
from kernelscope.emulator import Emulator
from kernelscope.sources import Source
from tilewise import UserError
from tilewise.__main__ import main
from tilewise.nvidia.nvrtc import compile_cubin
from tilewise.study.kernel import Kernel, LaunchEntry

BODY = """{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    T sum = 0;
    for (int k = 0; k < p; ++k) sum += A[row * p + k] * B[k * m + col];
    C[row * m + col] = sum;
}"""
HEAD = "(const T* A, const T* B, T* C, int n, int p, int m)"
WAYS = [  # a way to write the head of `mine`
    f"template <typename T> __global__ __launch_bounds__(64, 2) void mine{HEAD}",
    f"template <typename T> __global__ void __launch_bounds__((32) * 2, 2) mine{HEAD}",
    f"template <typename T> static __global__ void mine{HEAD}",
    f"template <class T>\nvoid __global__\nmine\n{HEAD}",
    f"#define KERNEL(name) template <typename T> __global__ void name{HEAD}\nKERNEL(mine)",
    f"template <typename T> __global__ __attribute__((unused)) void mine{HEAD}",
    f"/* template <int NO> __global__ void mine(int); */ template <typename T> __global__ void mine{HEAD}",
    f"#if 0\n__global__ void mine(int);\n#endif\ntemplate <typename T> __global__ void mine{HEAD}",
    f'const char text[] = "__global__ void mine(";\ntemplate <typename T> __global__ void mine{HEAD}',
    f"template <typename T> __global__ void mine{HEAD};\ntemplate <typename T> __global__ void mine{HEAD}",
    f"using T = float; __global__ void mine{HEAD}",
    f'using T = float; extern "C" __global__ void mine{HEAD}',
    f"namespace outer {{ namespace inner {{ template <typename T> __global__ void mine{HEAD} BODY }} }}",
]


@pytest.mark.parametrize("way", WAYS, ids=map(str, range(len(WAYS))))
def test_a_kernel_is_found_and_runs_however_its_head_is_written(tmp_path, capsys, way):
    text = way.replace("BODY", BODY) if "BODY" in way else f"{way}\n{BODY}"
    (tmp_path / "mine.cu").write_text(text + "\n")
    assert main(["trace", str(tmp_path / "mine.cu"), "--block", "8x8", "--shape", "9x5x11"]) == 0, capsys.readouterr()


def test_template_and_parameters(tmp_path):
    (tmp_path / "mine.cu").write_text(
        """#define WIDTH 32
        template <typename T, int TILE = WIDTH, bool WIDE = (WIDTH > 16), unsigned long N = 2u, typename U = int>
        __global__ void mine(const T* __restrict__ A, const float (*rows)[4], U out[], int n = 3);
        __global__ void other();"""
    )
    found = functions(Source(tmp_path / "mine.cu"))
    assert list(found) == ["mine", "other"] and not found["other"].parameters
    template = [(p.type, p.name, p.default) for p in found["mine"].template]
    assert template == [
        ("typename", "T", ""),
        ("int", "TILE", "32"),
        ("bool", "WIDE", "(32 > 16)"),
        ("unsigned long", "N", "2u"),
        ("typename", "U", "int"),
    ]
    assert found["mine"].parameters[0].name == "A"
    assert (found["mine"].parameters[-1].name, found["mine"].parameters[-1].default) == ("n", "3")


def test_a_header_of_the_file_counts_and_a_header_of_the_system_does_not(tmp_path):
    (tmp_path / "own.cuh").write_text("template <int N> __global__ void theirs(float* C);")
    (tmp_path / "mine.cu").write_text('#include "own.cuh"\n#include <cuda_fp16.h>\n__global__ void mine(__half* C);')
    assert list(functions(Source(tmp_path / "mine.cu"))) == ["theirs", "mine"]


@pytest.mark.parametrize(
    "head, cluster",
    [
        ("__global__ void __cluster_dims__(2, 1, 1) mine(float* C);", ("2", "1", "1")),
        ("__device__ int x; template <int N> __cluster_dims__(2 * N) __global__ void mine(float* C);", ("2 * N",)),
        ("__global__ void __cluster_dims__(8) other(float*); __global__ void mine(float* C);", ()),
    ],
)
def test_clusters(tmp_path, head, cluster):
    (tmp_path / "mine.cu").write_text(head)
    assert functions(Source(tmp_path / "mine.cu"))["mine"].cluster == cluster


NAMES = ["my kernel.cu", "9.cu", "a+b.cu", "größe.cu", "%s.cu", "-mine.cu", "mine.cu.cu", "a'b.cu", "a\\b.cu"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name(tmp_path, capsys, name):
    """The only kernel of a file need not be named."""
    (tmp_path / name).write_text(f"template <typename T> __global__ void mine{HEAD}\n{BODY}")
    assert main(["trace", str(tmp_path / name), "--block", "8x8", "--shape", "3x5x7"]) == 0, capsys.readouterr()


@pytest.mark.parametrize(
    "content, words",
    [
        (b"\x00\xff\xd8binary", "this is not text in UTF-8"),
        (b"// caf\xe9", "this is not text in UTF-8"),
        (b"", "there is no __global__ function in it"),
        (
            b"__global__ void a(int*); __global__ void b(int*);",
            "there is no __global__ function 'mine'; it has a, b; name",
        ),
        (b'#include "nothing.cuh"', 'mine.cu:1: #include "nothing.cuh": there is no such file here'),
        (b"#error wrong\n__global__ void mine(float* C);", "mine.cu:1: #error wrong"),
        (b"__global__ void mine(float* C) {", "mine.cu: expected unqualified-id before string constant; a bracket"),
    ],
)
def test_what_is_no_kernel_ends_in_one_message(tmp_path, capsys, content, words):
    (tmp_path / "mine.cu").write_bytes(content)
    assert main(["trace", str(tmp_path / "mine.cu"), "--block", "8x8"]) == 2
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said


def test_a_kernel_that_is_no_product_is_referred_to_the_microscope(tmp_path, capsys):
    (tmp_path / "mine.cu").write_text("__global__ void mine(float* x, int n) { x[n] = 1; }")
    assert main(["trace", str(tmp_path / "mine.cu")]) == 2
    said = capsys.readouterr().err
    assert f"kernelscope {tmp_path / 'mine.cu'}" in said and "--block" not in said


def test_a_name_that_no_compiler_takes(tmp_path, capsys):
    (tmp_path / 'a"b.cu').write_text(f"template <typename T> __global__ void mine{HEAD}\n{BODY}")
    assert main(["trace", str(tmp_path / 'a"b.cu'), "--block", "8x8"]) == 2
    assert "no compiler takes a file of that name" in capsys.readouterr().err


@pytest.mark.parametrize(
    "own, dtype", [("float", "double"), ("double", "float"), ("float", "int32"), ("float", "half")]
)
def test_a_kernel_of_another_type_says_so(tmp_path, capsys, own, dtype):
    (tmp_path / "mine.cu").write_text(f"using T = {own};\n__global__ void mine{HEAD}\n{BODY}")
    words = ["trace", str(tmp_path / "mine.cu"), "--block", "8x8", "--shape", "3x5x7", "--dtype"]
    assert main([*words, dtype]) == 2
    said = capsys.readouterr().err
    assert (
        "argument 1 is the array A of " in said
        and f"takes a pointer to {own}; choose that element type (--dtype {own}" in said
    )
    assert main([*words, own]) == 0


def test_variables_are_read_from_their_declarations(tmp_path):
    """Several in one declaration, in a comment, of a struct without a name, aligned before or behind the word."""
    (tmp_path / "mine.cu").write_text("""// __shared__ int no;
extern __shared__ alignas(128) float4 dynamic[];
__constant__ float a = 3, b[4] = {1, 2}; static __constant__ const int c{5};
template <typename T> __global__ void mine(T* x) {
    __shared__ float* s, t[4]; /* __shared__ int
    u; */ __shared__ struct { int a; } w;
    alignas(16) __shared__ std::array<int, 3> z; __shared__ int v[N == 2 ? 1 : 2];
    extern __shared__ __align__(1024) unsigned char raw[];
}""")
    read = declarations_of(Source(tmp_path / "mine.cu")).variables

    def found(space):
        return [(v.name, v.line, v.has_value, v.alignment) for v in read if v.space == space]

    assert found("__constant__") == [("a", 3, True, 0), ("b", 3, True, 0), ("c", 3, True, 0)]
    assert found("__shared__") == [
        ("dynamic", 2, False, 128),
        ("s", 5, False, 0),
        ("t", 5, False, 0),
        ("w", 6, False, 0),
        ("z", 7, False, 16),
        ("v", 7, False, 0),
        ("raw", 8, False, 1024),
    ]


@pytest.mark.parametrize(
    "text, found",
    [  # odd, but what CUDA takes: name, space, line and alignment of each variable
        ("__constant__ float (*rows)[4], (&row)[4] = *rows;", [("rows", 1, 0), ("row", 1, 0)]),
        ("#define OF(type, name) __constant__ type name\nOF(float, table)[4];", [("table", 2, 0)]),
        ("#if 0\n__constant__ int no;\n#endif\n__constant__ int yes;", [("yes", 4, 0)]),
        ("#define MINE __shared__ __align__(64)\nextern MINE char raw[];", [("raw", 2, 64)]),
        ("constexpr int BYTES = 2 * 64;\nextern __shared__ __align__(BYTES) char raw[];", [("raw", 2, 128)]),
        ("struct alignas(64) Tile { float x[16]; };\nextern __shared__ Tile tiles[];", [("tiles", 2, 64)]),
        ("extern __shared__ float raw[] __attribute__((aligned(32)));", [("raw", 1, 32)]),
        ('const char no[] = R"(__shared__ int no;)"; __shared__ int yes[1 < 2 ? 3 : 4];', [("yes", 1, 0)]),
    ],
)
def test_odd_variables(tmp_path, text, found):
    (tmp_path / "mine.cu").write_text(f"{text}\n__global__ void mine(float* C);\n")
    assert [(v.name, v.line, v.alignment) for v in declarations_of(Source(tmp_path / "mine.cu")).variables] == found


@pytest.mark.parametrize(
    "text, name, template, parameters",
    [
        ("__global__ void f(const float (*a)[4], void (*b)(int, int), int (&c)[2])", "f", [], ["a", "b", "c"]),
        ("template <int A, int B = A < 4 ? 1 : 2> __global__ void f(int* a)", "f", ["", "A < 4 ? 1 : 2"], ["a"]),
        ("template <int A = (1 <= 2)> __global__ void f(int* a)", "f", ["(1 <= 2)"], ["a"]),
        ("namespace [[deprecated]] n { __global__ void f(int* a); }", "n::f", [], ["a"]),
        ("template <template <class> class V> __global__ void f(V<int>* a, int = 3)", "f", [""], ["a", ""]),
    ],
)
def test_odd_functions(tmp_path, text, name, template, parameters):
    (tmp_path / "mine.cu").write_text(f"{text};\n")
    [(found, function)] = functions(Source(tmp_path / "mine.cu")).items()
    assert (found, [p.default for p in function.template]) == (name, template)
    assert [p.name for p in function.parameters] == parameters


def test_bounds_and_clusters_are_arithmetic_over_the_constants_of_the_file(tmp_path):
    (tmp_path / "mine.cu").write_text(
        "constexpr int WARPS = 4; const float HALF = 0.5f;\n#define BLOCKS 2u\n"
        "template <int N> __global__ void __cluster_dims__(BLOCKS, 1) __launch_bounds__(32 * WARPS * N / 2) mine() {}\n"
        "template <int N> __global__ void __launch_bounds__(HALF * N) other() {}\n"
    )
    kernel = Kernel("mine", "mine", "cuda", ("float",), "mine.cu", launches=(LaunchEntry("mine"),), folder=tmp_path)
    library = build_traced(kernel, ["mine<4>", "other<4>"], tmp_path / "mine.so")
    assert Emulator(library).attributes == {"mine<4>": {"cluster": [2, 1], "bounds": [256]}, "other<4>": {}}


HOST = [  # what stands in a file, which NVRTC refuses
    "int f();",
    "struct S { S(); int x; };",
    "struct S { int x; bool operator<(const S& o) const { return true; } };",
    "struct S { friend int f(S); };",
    "template <class T> struct S { T f(T x) { return x; } };",
    "__device__ float scale(float f); float f() { return 1; }",
    "struct S { static int x; };",
    "struct S { int a; } s;",
    "enum E { A } e;",
    "int x(0);",
    "int x{0};",
    "float w[2]{1, 2};",
    "extern int x;",
    "void (*t[2])(int);",
    "const int* p = nullptr;",
    "const int a[2] = {1, 2}, *q = a;",
    "const int& r = 1;",
    "constexpr auto f = [](int x) { return x; };",
    "__device__ int f(int x = [] { return 1; }());",
    "const alignas(16) float x = 1;",
    "__device__ float alignas(16) x;",
]
GPUS = [  # and what it takes
    "struct S { int x; }; __device__ auto f(int x) -> struct S { if (x) { return S{1}; } return S{0}; }",
    "template <typename T> T zero = T(0);",
    "template <class T> struct S { T x; __device__ S(T); }; template <class T> S(T) -> S<T>;",
    "namespace n { __device__ int f(int); } int n::f(int x) { return x; }",
    "template <class T> struct S { __device__ S(); }; template <class T> S<T>::S() {}",
    "struct S { friend __device__ int f(S); }; int f(S) { return 1; }",
    "struct S { S() = default; S(const S&) = default; int (*f)(int); };",
    "const int a[2] = {1, 2}, *const q = a;",
    "constexpr const float* p = nullptr; constexpr int (*f)(int) = nullptr;",
    "const struct S { int a; } s = {1};",
    "using F = int (*)(int); typedef struct { int a; } S; static_assert(true); namespace m { } namespace n = m;",
    "__global__ void f(int* x) { auto l = [](int y) { return y; }; x[0] = l(1); }",
    "__constant__ alignas(16) float x[4];",
]


@pytest.mark.parametrize("text", [*HOST, *GPUS])
def test_code_of_the_host_is_refused_as_nvrtc_does(tmp_path, text):
    (tmp_path / "mine.cu").write_text(f"{text}\n__global__ void mine(float* C) {{ C[0] = 1; }}\n")
    kernel = Kernel("mine", "mine", "cuda", ("float",), "mine.cu", launches=(LaunchEntry("mine"),), folder=tmp_path)

    def message(compiler):
        try:
            compiler()
        except UserError as error:
            return str(error)
        return ""

    said = message(lambda: functions(Source(tmp_path / "mine.cu")))
    assert bool(said) == bool(message(lambda: compile_cubin(kernel, "mine", "9.0"))) == (text in HOST), said
    assert not said or (f"{tmp_path}/mine.cu:1: " in said and "NVRTC refuses" in said)


def test_a_missing_compiler_is_one_message(tmp_path, monkeypatch):
    (tmp_path / "mine.cu").write_text("__global__ void mine(float* C);")
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UserError, match=r"there is no C\+\+ compiler"):
        functions(Source(tmp_path / "mine.cu"))
