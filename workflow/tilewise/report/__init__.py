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
