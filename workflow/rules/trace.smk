# The memory microscope: what the kernels and the CPU loops ask of memory, counted, also by the hardware if it allows that.
rule trace:
    input:
        sources=study.files_of_kind("cuda") + study.files_of_kind("host"),
        emulator=study.emulator_sources(),
    output:
        traffic="results/{platform}/traffic.csv",
        cache_lines="results/{platform}/cache_lines.csv",
    log:
        "logs/{platform}/trace.log",
    resources:
        **study.cpu_job,
    params:
        conditions=study.conditions_of_trace,
    script:
        "../scripts/trace.py"


# Not part of `all`: `snakemake --cores 1 results/<platform>/counters.csv` needs a GPU and the permission to profile.
rule counters:
    input:
        device="results/{platform}/device.json",
        sources=study.files_of_kind("cuda"),
    output:
        "results/{platform}/counters.csv",
    log:
        "logs/{platform}/counters.log",
    threads: workflow.cores
    resources:
        **study.gpu_job,
    script:
        "../scripts/counters.py"
