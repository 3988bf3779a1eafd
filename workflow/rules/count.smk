# What can be counted without a clock. The memory microscope: what the kernels and the CPU loops ask of memory, also by
# the hardware if it allows that. And the instructions of the machine code.
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
        conditions=study.conditions_of_trace(),
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


# Part of `all` on a GPU, whose builds are read in some seconds. Elsewhere `snakemake --cores all
# results/emulator/instructions.csv` compiles every kernel first, which takes a minute and the packages of the extra
# `compiler`; the page shows the recorded run's otherwise.
rule instructions:
    input:
        device="results/{platform}/device.json",
        code=study.code_of,
    output:
        "results/{platform}/instructions.csv",
    log:
        "logs/{platform}/instructions.log",
    group:
        "build-{platform}"
    threads: 4
    resources:
        **study.cpu_job,
    params:
        conditions=study.conditions_of_code(),
    script:
        "../scripts/instructions.py"
