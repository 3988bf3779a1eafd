from kernelscope.sources import emulator_files
from tilewise.study import durations, slurm
from tilewise.study.kernel import Kind


# What can be counted without a clock: the memory accesses of the kernels and the CPU loops, also by the hardware if it
# allows that, and the instructions of the machine code.
rule trace:
    input:
        sources=study.files_of_kind(Kind.CUDA) + study.files_of_kind(Kind.HOST),
        emulator=[os.path.relpath(path) for path in emulator_files()],
    output:
        traffic="results/traffic.csv",
        cache_lines="results/cache_lines.csv",
    log:
        "logs/trace.log",
    threads: resources.cores_without_gpu()
    resources:
        **slurm.cpu_job(config, durations.TRACE_S),
        mem_mb=4000,
        cpus_per_task=2,
    params:
        conditions=conditions.of_trace,
        journal="results/journal/trace.jsonl",
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


# Not part of `all`: `snakemake --cores 1 results/<platform>/counters.csv` needs a GPU and the permission to profile. It
# compares with the emulator's counts, and counts more at full size.
rule counters:
    input:
        device="results/{platform}/device.json",
        sources=study.files_of_kind(Kind.CUDA),
    output:
        "results/{platform}/counters.csv",
    log:
        "logs/{platform}/counters.log",
    threads: study.cores or 1
    resources:
        **resources.measuring_job(durations.PROFILE_S * study.profiled),
        mem_mb=8000,
        cpus_per_task=resources.cpus_of,
    params:
        choices=study.choices_of,
        conditions=conditions.of_counters,
        builds="results/{platform}/build",
    script:
        "../scripts/counters.py"


# Part of `all` on a GPU, for which everything is compiled anyway. Elsewhere `snakemake --cores all
# results/emulator/instructions.csv` takes a minute and the packages of the extra `compiler`; the page shows the recorded
# run's otherwise.
rule instructions:
    input:
        device="results/{platform}/device.json",
        sources=study.cuda_sources_of,
    output:
        "results/{platform}/instructions.csv",
    log:
        "logs/{platform}/instructions.log",
    threads: resources.cores_without_gpu()
    resources:
        **slurm.cpu_job(config, durations.INSTRUCTIONS_S),
        mem_mb=4000,
        cpus_per_task=4,
    params:
        conditions=conditions.of_code,
        builds="results/{platform}/build",
    script:
        "../scripts/instructions.py"
