from tilewise.count import counters as profile
from tilewise.study import durations, slurm


# The memory microscope: what the kernels and the CPU loops ask of memory, counted, also by the hardware if it allows that.
# The emulator's counts are the same on every platform.
rule trace:
    input:
        sources=study.files_of_kind("cuda") + study.files_of_kind("host"),
        emulator=study.emulator_sources(),
    output:
        traffic="results/traffic.csv",
        cache_lines="results/cache_lines.csv",
    log:
        "logs/trace.log",
    resources:
        **study.cpu_job,
        seconds=durations.TRACE_S,
        mem_mb=4000,
        cpus_per_task=2,
    params:
        conditions=study.conditions_of_trace,
    script:
        "../scripts/trace.py"


rule traced:
    input:
        "results/{name}.csv",
    output:
        "results/{platform}/{name}.csv",
    log:
        "logs/{platform}/{name}.log",
    wildcard_constraints:
        name="traffic|cache_lines",
    localrule: True
    shell:
        "cp {input} {output} 2>{log}"


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
        **study.measuring_job,
        seconds=durations.PROFILE_S * len(profile.cross_check_points(study.kernels)),
        mem_mb=8000,
        cpus_per_task=slurm.GPU_CORES,
    script:
        "../scripts/counters.py"
