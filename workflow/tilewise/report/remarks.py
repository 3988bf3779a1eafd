"""Text of captions, rungs and the first screen: the origin of numbers and their comparison."""

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.climb import same_ladder
from tilewise.explain.number_format import rounded
from tilewise.report.notes import plain_text
from tilewise.report.sections import number_of, percent, times


def origin(evidence: Evidence) -> str:
    """The origin of the measurements, with place and date, as a block quote at the top of the page."""
    here = ", ".join(plain_text(platform.device.cpu["name"]) for platform in evidence.platforms if not platform.has_gpu)
    lines = []
    if here and not evidence.gpus:
        lines.append("**No GPU times.** This machine has no GPU, and the repository does not hold a recorded run.")
    elif here:
        source = " and ".join(_recorded(gpu) for gpu in evidence.gpus)
        said = "**The GPU times on this page were not measured on this machine**, which has no GPU:"
        where = "[Where the numbers come from](#Where-the-numbers-come-from)"
        several = any(len(gpu.own_cards) > 1 for gpu in evidence.gpus)
        lines.append(f"{said} they were recorded on {source}." + f" {where} lists what each card measured." * several)
    for platform in evidence.platforms:
        if platform.has_gpu:
            lines.append(f"**Measured on {plain_text(platform.label)}**, {_when(platform)}, by this run.")
    if here:
        lines.append(
            f"Measured here ({here}): the CPU loop. Verified here: every CUDA kernel, on the CPU emulator, "
            "which does not measure times."
        )
    return "\n".join(f"> {line}\n>" for line in lines)


def _when(platform):
    return platform.device.captured.replace("T", " ")[:16] + " UTC"


def _recorded(gpu):
    commits = dict.fromkeys(f"`{state.partition(' ')[0][:10]}`" for state in gpu.commits)
    name, cards = plain_text(gpu.device.gpu["name"]), len(gpu.own_cards)
    where = f"{number_of(cards, 'card')} of the model {name}" if cards > 1 else f"an {name}"
    return f"{where} at {_when(gpu)} (`{gpu.name}`, commit {' and '.join(commits)})"


def _with_block(row):
    """The label of a kernel, with its block if that is its parameter."""
    return f"`{row['kernel']}`" + (f" with blocks of {row['choice']}" if "×" in row["choice"] else "")


def step(rungs: pd.DataFrame, this: pd.Series) -> list[tuple[str, str]]:
    """The ceiling, the rate and the stall reasons of a rung, as far as known.

    The items are (term, words in Markdown).
    """
    found = []
    if this["gflops"] <= 1.02 * this["bound_gflops"]:
        words = f"{rounded(this['bound_gflops'] / 1000)}\u00a0TFLOP/s, limited by {this['bound_by']}"
        gain = f"; {times(this['bound_gain'])} that of `{this['before']}`" if pd.notna(this["bound_gain"]) else ""
        found.append(("Upper bound", words + gain))
    found.append(("Measured", rate_remark(rungs, this)))
    if pd.notna(this["top_wait_each"]):
        each = rounded(this["top_wait_each"])
        found.append(("Top stall, counted by ncu", f"warps wait {this['top_wait']}: {each} per issued instruction"))
    return found


def rate_remark(rungs: pd.DataFrame, this: pd.Series) -> str:
    """The rate of a rung, compared with the fastest rung before it and the library, in Markdown."""
    words = f"**{rounded(this['gflops'] / 1000)}\u00a0TFLOP/s**"
    if this["before"] and this["as_fast"]:
        words += f", as fast as `{this['before']}`: their runs overlap"
    elif this["before"]:
        own = same_ladder(rungs, this).set_index("kernel", drop=False)
        words += f", {times(this['gain'])} the rate of {_with_block(own.loc[this['before']])}"
    if pd.notna(this["percent_of_anchor"]):
        words += f", {percent(this['percent_of_anchor'])} of cuBLAS"
    return words
