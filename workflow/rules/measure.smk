from tilewise.study import durations


# A job that times the CPU takes every core of the machine: nothing else may run meanwhile. Each GPU has two jobs, with
# their share of the cores: one starts Python and compiles while the other measures and holds the GPU's lease.
rule measure:
    input:
        device="results/{platform}/device.json",
        sources=study.sources_of,
    output:
        task="results/{platform}/tasks/{task}.csv",
        facts="results/{platform}/facts/{task}.csv",
    log:
        "logs/{platform}/measure/{task}.log",
    priority: resources.length_of  # the longest first, so that several GPUs end at about the same time
    threads: resources.cores_of
    resources:
        **resources.measuring_job(resources.seconds_of),
        mem_mb=resources.memory_of,
        cpus_per_task=resources.cpus_of,
    params:
        conditions=conditions.of_task,
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
        sources=lambda wildcards: study.cuda_sources_of(wildcards) if study.backend_of(wildcards) == "gpu" else [],
    output:
        table="results/{platform}/occupancy.csv",
        tile_choice="results/{platform}/tile_choice.csv",
    log:
        "logs/{platform}/occupancy.log",
    threads: resources.cores_of
    resources:
        **resources.measuring_job(durations.OCCUPANCY_S),
        mem_mb=resources.memory_of,
        cpus_per_task=resources.cpus_of,
    params:
        conditions=conditions.of_occupancy,
        builds="results/{platform}/build",
    script:
        "../scripts/occupancy.py"
