"""The drawing of a kernel says what the registry says, and its lines of code are in the file."""

import dataclasses
import itertools
import math
import re
from xml.etree import ElementTree

import matplotlib.colors
import pandas as pd
import pytest
import synthetic
from prose import unpacked

from tilewise import RECORDED
from tilewise.evidence import load_evidence
from tilewise.explain import climb
from tilewise.report import figures, markup, plots, render, tables
from tilewise.study.points import point

IDEAS = {
    name: (first, int(count))
    for name, first, count in re.findall(r'{{ tiles\("(\w+)",\s*"(.*?)", (\d+),', render.STORY.read_text())
}
CASES = {
    "naive": ({"block_x": 64, "block_y": 16}, (16, 64), (1, 32), (1, 1), None),
    "tiled": ({"tile": 16}, (16, 16), (2, 16), (1, 1), 16),
    "multi_tile": ({"tile": 32, "ntb": 7}, (32, 224), (1, 32), (1, 1), 32),
    "register_tile": ({"tile_n": 128, "tile_m": 128, "tile_k": 8}, (128, 128), (16, 128), (8, 8), 8),
    "warp_tile": (
        {"tile_n": 128, "tile_m": 128, "tile_k": 16, "thread_n": 8, "thread_m": 8},
        (128, 128),
        (64, 32),
        (8, 8),
        16,
    ),
}


#: Kernels whose threads the registry's numbers do not place: type, parameters, block and depth.
TENSOR_CORES = {
    "dmma": ("double", {"mma_rows": 16, "mma_k": 4}, (64, 64), None),
    "dmma_pipelined": (
        "double",
        {
            "tile_n": 128,
            "tile_m": 128,
            "tile_k": 32,
            "warp_n": 64,
            "warp_m": 32,
            "mma_k": 8,
            "stages": 3,
            "blocks_per_sm": 1,
        },
        (128, 128),
        32,
    ),
    "dmma_ring": (
        "double",
        {"tile_n": 128, "tile_m": 128, "warp_n": 64, "warp_m": 32, "stages": 6, "band": 8},
        (128, 128),
        16,
    ),
    "mma_sync": (
        "bfloat16",
        {"tile_n": 128, "tile_m": 256, "tile_k": 64, "warp_n": 64, "warp_m": 64, "stages": 4, "blocks_per_sm": 1},
        (128, 256),
        64,
    ),
    "wgmma": ("bfloat16", {"tile_m": 128, "stages": 4}, (128, 128), 64),
    "warp_specialised": ("bfloat16", {"tile_m": 256, "stages": 4}, (128, 256), 64),
    "clusters": ("bfloat16", {"tile_m": 256, "stages": 4, "cluster_blocks": 2, "band": 16}, (128, 256), 64),
    "wgmma_turns": ("half", {"tile_m": 192, "stages": 4, "cluster_blocks": 1, "band": 16}, (128, 192), 64),
    "wgmma_int8_turns": ("int8", {"tile_m": 128, "stages": 6, "cluster_blocks": 1, "band": 8}, (128, 128), 128),
    "transposing_int8": ("int8", {"tile_n": 256, "stages": 9, "band": 8}, (256, 128), 64),
    "wgmma_int8": ("int8", {"tile_m": 256, "stages": 4, "cluster_blocks": 2, "band": 16}, (128, 256), 128),
    "double_from_int8": (
        "double",
        {"moduli": 14, "tile_m": 256, "stages": 4, "cluster_blocks": 1, "band": 16},
        (128, 256),
        128,
    ),
    "double_always": ("double", {"tile_m": 256, "stages": 4, "cluster_blocks": 2, "band": 16}, (128, 256), 128),
    "wgmma_tf32": ("tf32", {"tile_n": 256, "stages": 4, "band": 8}, (256, 128), 32),
    "three_tf32": ("float", {"products": 3, "tile_m": 128, "stages": 3, "band": 16}, (128, 128), 32),
    "float_from_bf16": ("float", {"tile_m": 192, "stages": 5, "cluster_blocks": 1, "band": 16}, (128, 192), 64),
    "float_from_half": ("float", {"tile_m": 192, "stages": 5, "cluster_blocks": 1, "band": 16}, (128, 192), 64),
    "float_always": ("float", {"tile_m": 192, "stages": 4, "band": 16, "exact_m": 256}, (128, 192), 64),
}


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """A run of a GPU."""
    return load_evidence([synthetic.write(tmp_path_factory.mktemp("drawings") / "gpu", with_traffic=True)])


def tiling_of(kernel, at):
    return climb.tile_sizes(synthetic.launched(kernel, at))


@pytest.mark.parametrize("name", TENSOR_CORES)
def test_a_tiling_on_the_tensor_cores_says_what_a_block_computes(kernels, name, device):
    dtype, parameters, block, depth = TENSOR_CORES[name]
    found = tiling_of(kernels[name], point("t", name, dtype, 8192, 8192, 8192, **parameters))
    assert (found["block"], found["warp"], found["thread"], found["depth"]) == (block, None, None, depth)
    words = markup.pieces().words(found)
    assert words.startswith(f"A block of {found['threads']} threads computes {block[0]} × {block[1]} elements of C. ")
    assert ("It needs 64 rows of A and 64 columns of B." in words) == (depth is None)
    ElementTree.fromstring(markup.pieces().tiling("x", name, found))


def test_every_rung_has_its_drawing_and_what_is_new_in_the_last_ones_is_drawn(kernels):
    ladder = pd.read_csv(RECORDED / "nvidia-h200/measurements.csv", low_memory=False).query("task == 'ladder_float'")
    largest = ladder[ladder["n"] * ladder["p"] * ladder["m"] == 8192**3]  # at which the story compares them
    rungs = {name for name in largest["kernel"] if kernels[name].kind == "cuda"}
    assert len(rungs) >= 11 and rungs <= set(IDEAS)
    ideas = markup.pieces("ideas.html.j2")
    drawn = {name for name in IDEAS if hasattr(ideas, name)}
    assert {"vector_loads", "pipelined", "async_copies", "tma_ring", "transposing_ring", "stream_k"} <= drawn
    idea = {"name": "x", "title": "Title of <it>", "stages": 4, "waves": 15.52}
    for name in drawn:
        root = ElementTree.fromstring(getattr(ideas, name)(idea))
        assert root.find("{http://www.w3.org/2000/svg}title").text == "Title of <it>"
    assert "a ring of 4 stages" in ideas.tma_ring(idea)
    assert "15 full waves, then 0.52 of one" in ideas.stream_k(idea)


@pytest.mark.parametrize("name", CASES)
def test_a_tiling_follows_from_the_registry(kernels, name):
    parameters, block, warp, thread, depth = CASES[name]
    found = tiling_of(kernels[name], point("t", name, "float", 8192, 8192, 8192, **parameters))
    assert (found["block"], found["warp"], found["thread"], found["depth"]) == (block, warp, thread, depth)
    assert found["threads"] * thread[0] * thread[1] * found["repeats"] == block[0] * block[1]
    words = markup.pieces().words(found)
    assert (
        f"{block[0]} × {block[1]} elements of C, a warp {warp[0]} × {warp[1] * found['repeats']} and a thread " in words
    )
    assert ("one." in words) == (thread == (1, 1) and found["repeats"] == 1) and ("7 times" in words) == (
        name == "multi_tile"
    )
    assert ("drawn as one square" in words) == (name == "warp_tile")


def test_threads_that_only_fetch_are_not_drawn_as_if_they_computed(kernels):
    at = point("t", "tma_ring", "float", 8192, 8192, 8192, tile_n=128, tile_m=256, tile_k=16, stages=4, walk=0)
    found = tiling_of(kernels["tma_ring"], at)
    assert found["thread"] is None and found["warp"] is None


def test_a_library_has_no_tiles(kernels):
    assert tiling_of(kernels["cublas"], point("t", "cublas", "float", 64, 64, 64)) is None


def test_a_drawing_has_a_title_its_numbers_and_its_scale(kernels):
    at = point("t", "register_tile", "float", 8192, 8192, 8192, tile_n=128, tile_m=256, tile_k=8)
    drawing = markup.pieces().tiling("x", "Tiles of <it>", tiling_of(kernels["register_tile"], at))
    root = ElementTree.fromstring(drawing)
    assert "block: 128 × 256 of C" in drawing and "Tiles of &lt;it&gt;" in drawing
    boxes = {
        box[0].text: (float(box.get("width")), float(box.get("height")))
        for box in root.iter("{http://www.w3.org/2000/svg}rect")
        if len(box)
    }
    wide, high = boxes["block: 128 × 256 of C"]
    assert wide == pytest.approx(2 * high)
    assert boxes["thread: 8 × 8"] == (pytest.approx(wide / 32, abs=0.1), pytest.approx(wide / 32, abs=0.1))


@pytest.mark.parametrize("name", IDEAS)
def test_the_lines_that_carry_an_idea_are_in_the_file(kernels, name):
    first, last, lines = markup.excerpt(kernels[name], *IDEAS[name])
    file = [line.strip() for line in kernels[name].path.read_text().splitlines()]
    assert file[first - 1] == lines[0].strip() and file[last - 1] == lines[-1].strip()
    assert lines[0].startswith(IDEAS[name][0]) and 3 <= len(lines) == IDEAS[name][1] <= 9
    code = " ".join(line.partition("//")[0].rstrip() for line in lines)
    assert all(code.count(first) == code.count(last) for first, last in ("()", "{}", "[]")) and code[-1] in "};"


def test_a_line_that_is_not_in_the_file(kernels):
    with pytest.raises(LookupError, match="no line begins with 'nothing of the kind'"):
        markup.excerpt(kernels["naive"], "nothing of the kind", 3)


def test_a_long_table_is_folded_to_its_first_rows(evidence):
    table = tables.task("ladder_float", evidence)
    page = markup.table_html(table, "sweep", "<b>The ladder.</b> All.", evidence, name="ladder")
    brief, whole = page.split("<details")
    assert brief.count("<tr") - 2 == markup.MOST_ROWS < len(table) == len(unpacked(whole)["rows"])


def test_a_kernel_has_a_colour_and_marker_of_its_own(evidence):
    looks = [tuple(plots.look(name, evidence).values()) for name in evidence.kernels if name not in evidence.libraries]
    assert len(set(looks)) == len(looks)
    assert plots.look("cublas", evidence)["marker"].get_marker() == "*"


def test_a_kernel_keeps_its_colour_and_marker_when_another_joins(evidence):
    """Wherever the registry names the new kernel, which has a look that no other has."""
    kept = {name: plots.look(name, evidence) for name in evidence.kernels}
    entries, mine = list(evidence.kernels.items()), ("mine", evidence.kernels["naive"])
    for place in (0, len(entries) // 2, len(entries)):
        joined = dataclasses.replace(evidence, kernels=dict([*entries[:place], mine, *entries[place:]]))
        assert {name: plots.look(name, joined) for name in kept} == kept
        assert plots.look("mine", joined) not in kept.values()
    assert set(kept) <= set(plots.LOOKS), "a new kernel of the study has a place at the end of the list"


def test_every_figure_speaks_the_same_language(evidence):
    """In lines and in points of any figure of a task, colour and marker are the kernel's; size says which product."""
    looks = {
        (matplotlib.colors.to_hex(look["color"]), look["marker"])
        for look in (plots.look(name, evidence) for name in evidence.kernels)
    }
    seen = 0
    for name in ("task1a", "task2a", "task3", "dynamic_tile"):
        for axis in figures.task(name, evidence).axes:
            for line in axis.lines:
                if line.get_marker() not in ("None", None) and line.get_color() != "black":
                    assert (matplotlib.colors.to_hex(line.get_color()), line.get_marker()) in looks
                    seen += 1
    assert seen > 20
    [axis] = figures.task("task1a", evidence).axes
    lines = {line.get_label().strip("_"): line for line in axis.lines}
    work = {words: math.prod(map(int, re.findall(r"\d+", words))) for words in lines}
    sizes = {words: line.get_markersize() for words, line in lines.items()}
    pairs = [(a, b) for a, b in itertools.permutations(lines, 2) if work[a] < work[b]]
    assert len(pairs) > 5 and all(sizes[a] < sizes[b] for a, b in pairs), "a larger mark is a larger product"
    assert len({line.get_linestyle() for line in lines.values()}) > 1, "lines of one colour differ in their dashes"


def test_a_legend_has_few_entries_and_fits(evidence):
    """Of more lines those of the largest product are drawn."""
    names = "task1a task2a task3 dynamic_tile task4 integers cpu ladder_short loop_orders"
    drawn = [figures.task(name, evidence) for name in names.split()]
    drawn.append(figures.draw("rungs", evidence))
    rows = climb.climb(evidence, "ladder_double")
    drawn.append(figures.draw("rungs", evidence, climb.rungs(rows, evidence)))
    legends = [legend for figure in drawn for legend in (*figure.legends, *(axis.get_legend() for axis in figure.axes))]
    legends = [legend for legend in legends if legend]
    assert len(legends) > 6
    for legend in legends:
        words = [text.get_text() for text in legend.get_texts()]
        marks = {"± more than 1 %", "did not run"}
        assert len(set(words) - marks) <= (8 if legend.get_title().get_text() == "kernel, (n, m, p)" else 4), words
        assert legend.get_window_extent().width <= legend.get_figure(root=True).bbox.width, words


def test_one_dot_is_a_sentence(tmp_path):
    study = synthetic.config()
    sweep = {"kernel": ["tiled"], "dtype": "float", "shapes": "square", "tile": 32}
    study["shapes"]["square"] = [{"n": 512, "p": 512, "m": 512}]
    study["tasks"] = {"one": {"title": "One", "sweeps": [sweep]}}
    evidence = load_evidence([synthetic.write(tmp_path / "gpu", study=study)])
    figure = figures.task("one", evidence)
    assert len(evidence.gpu) == 1
    assert figures.missing_reason(figure) == "One point of this task was timed; its table has it."
    shown = markup.missing_html(figures.missing_reason(figure), "One", "one")
    assert shown.startswith('<p class="none"') and "<svg" not in shown
