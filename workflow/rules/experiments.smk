# Experiments that are no plain sweep: each has a method of its own and a table beside the task's.
rule measure_cold_start:
    input:
        device="results/{platform}/device.json",
        builds=study.builds_of,
    output:
        task="results/{platform}/tasks/{task}.csv",
        facts="results/{platform}/cold_start/{task}.csv",
    log:
        "logs/{platform}/cold_start/{task}.log",
    wildcard_constraints:
        task="|".join(study.with_method("cold_start")) or "none",
    group:
        "measure-{platform}"
    threads: study.cores_of
    resources:
        **study.gpu_job,
    params:
        conditions=study.conditions_of,
        samples="results/{platform}/samples/{task}",
        journal="results/{platform}/journal/{task}.jsonl",
    script:
        "../scripts/cold_start.py"


rule measure_launch_limits:
    input:
        device="results/{platform}/device.json",
        builds=study.builds_of,
    output:
        task="results/{platform}/tasks/{task}.csv",
        facts="results/{platform}/launch_limits/{task}.csv",
    log:
        "logs/{platform}/launch_limits/{task}.log",
    wildcard_constraints:
        task="|".join(study.with_method("launch_limits")) or "none",
    group:
        "measure-{platform}"
    threads: study.cores_of
    resources:
        **study.gpu_job,
    params:
        conditions=study.conditions_of,
    script:
        "../scripts/launch_limits.py"


rule measure_bandwidth:
    input:
        device="results/{platform}/device.json",
        sources=["kernels/bandwidth/add.cu", "kernels/bandwidth/multiply_add.cu"],
    output:
        task="results/{platform}/tasks/{task}.csv",
        facts="results/{platform}/bandwidth/{task}.csv",
        builds=directory("results/{platform}/bandwidth/{task}_build"),
    log:
        "logs/{platform}/bandwidth/{task}.log",
    wildcard_constraints:
        task="|".join(study.with_method("bandwidth")) or "none",
    group:
        "measure-{platform}"
    threads: study.cores_of
    resources:
        **study.gpu_job,
    script:
        "../scripts/bandwidth.py"


rule occupancy:
    input:
        device="results/{platform}/device.json",
        builds=study.cuda_builds_of,
    output:
        table="results/{platform}/occupancy.csv",
        tile_choice="results/{platform}/tile_choice.csv",
    log:
        "logs/{platform}/occupancy.log",
    group:
        "measure-{platform}"
    threads: study.cores_of
    resources:
        **study.gpu_job,
    params:
        conditions=study.conditions_of_trace(),
    script:
        "../scripts/occupancy.py"
