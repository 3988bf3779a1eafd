"""What the results mean: tables, figures, claims and the page."""

#: The figures of the whole study, which `figures.OVERVIEW` draws. Their names stand here because every start of
#: Snakemake asks for them, and what draws takes a second to import.
FIGURES = (
    "peak",
    "speedup",
    "past_the_peak",
    "accuracy_and_rate",
    "roofline",
    "rungs",
    "instructions",
    "cache_lines",
)

#: For gc.set_threshold in a process that makes tables and figures and ends: by default Python spends a fifth of its
#: time there looking for garbage. Not for one that measures: garbage there may hold a GPU's memory.
GARBAGE = 50_000, 20, 100
