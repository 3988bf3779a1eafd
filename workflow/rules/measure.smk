from tilewise.study import durations, slurm


# A job that times the CPU takes every core of the machine: nothing else may run beside it. One that times a GPU takes a
# GPU, and its share of the cores, so that a machine with several GPUs measures several tasks at a time.
rule measure:
    input:
        device="results/{platform}/device.json",
        sources=study.sources_of,
    output:
        task="results/{platform}/tasks/{task}.csv",
        facts="results/{platform}/facts/{task}.csv",
    log:
        "logs/{platform}/measure/{task}.log",
    priority: study.length_of  # the longest first, so that several GPUs end at about the same time
    threads: study.cores_of
    resources:
        **study.measuring_job(study.seconds_of),
        mem_mb=study.memory_of,
        cpus_per_task=study.cpus_of,
    params:
        conditions=study.conditions_of,
        builds="results/{platform}/build",
        samples="results/{platform}/samples/{task}",
        journal="results/{platform}/journal/{task}.jsonl",
    script:
        "../scripts/measure.py"


rule collect:
    input:
        measurements=expand("results/{{platform}}/tasks/{task}.csv", task=study.tasks),
        accuracy=expand("results/{{platform}}/facts/{task}.csv", task=study.with_method("accuracy")),
    output:
        measurements="results/{platform}/measurements.csv",
        accuracy="results/{platform}/accuracy.csv",
    log:
        "logs/{platform}/collect.log",
    localrule: True
    script:
        "../scripts/collect.py"


rule occupancy:
    input:
        device="results/{platform}/device.json",
        sources=lambda wildcards: study.cuda_sources_of(wildcards) if study.on_gpu(wildcards) else [],
    output:
        table="results/{platform}/occupancy.csv",
        tile_choice="results/{platform}/tile_choice.csv",
    log:
        "logs/{platform}/occupancy.log",
    threads: study.cores_of
    resources:
        **study.measuring_job(durations.OCCUPANCY_S),
        mem_mb=study.memory_of,
        cpus_per_task=study.cpus_of,
    params:
        conditions=study.conditions_of_occupancy,
        builds="results/{platform}/build",
    script:
        "../scripts/occupancy.py"
