# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The study as a notebook
#
# `results/report.html` is made from `report/sections`: Markdown with tables and figures. Here are the same evidence,
# the same tables and the same figures, to take apart. Without results of your own, they are recorded ones.

# %% tags=["parameters"]
folders = None  # the folders of this run's platforms; None: all in results/
recorded = None  # the folder of the recorded runs; None: report/recorded

# %%
from IPython.display import HTML, display

from tilewise import RECORDED, exit_on_user_error
from tilewise.explain.quantities import Machine
from tilewise.report import figures, markup, page, sections, tables

with exit_on_user_error():
    report = page.load(folders, recorded or RECORDED)
evidence = report.evidence
HTML(f"<style>{markup.TEMPLATES.get_template('style.css').render()}</style>")

# %% [markdown]
# ## The page, section by section

# %%
for name in sections.names_of():
    display(HTML(report.section(name)))

# %% [markdown]
# ## Tables and figures
#
# A table is a DataFrame made from the evidence, a figure one of Matplotlib. Those of a task have its name.

# %%
list(evidence.config["tasks"])

# %%
tables.task("task3", evidence)

# %%
figures.task("task3", evidence)

# %% [markdown]
# Other tables and figures are about all tasks together.

# %%
[*tables.OVERVIEW], [*figures.OVERVIEW]

# %%
tables.frame("rungs", evidence)[["kernel", "gflops", "gain", "percent_of_anchor", "limit_percent"]]

# %% [markdown]
# ## Single numbers
#
# Claims and articles get their numbers from a machine's functions, and so can you: each is an interval, the range of
# its runs. `python -m tilewise.study.columns` lists all columns.

# %%
for gpu in evidence.gpus:
    machine = Machine(evidence, gpu)
    naive, tiled = (machine.time(kernel=name, dtype="float", cube=4096) for name in ("naive", "tiled"))
    print(f"{gpu.label}: {(naive / tiled).value:.2f} times as fast with tiles")

# %% [markdown]
# ## Rows
#
# `evidence.gpu` has one row per point that a GPU ran, `evidence.cpu` those of the CPU, and `evidence.emulated` what the
# emulator verified. `evidence.facts` holds the tables of the other methods.

# %%
evidence.gpu.groupby(["task", "kernel"])["gflops"].max().unstack("task")

# %%
{name: len(table) for name, table in evidence.facts.items()}
