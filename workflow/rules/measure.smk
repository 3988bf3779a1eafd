# A job that times something takes every core of the machine and the GPU: nothing else may run beside it.
rule measure:
    input:
        device="results/{platform}/device.json",
        builds=study.builds_of,
    output:
        "results/{platform}/tasks/{task}.csv",
    log:
        "logs/{platform}/measure/{task}.log",
    wildcard_constraints:
        task="|".join(study.with_method("sweep")) or "none",
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
        "../scripts/measure.py"


rule maximum_size:
    input:
        device="results/{platform}/device.json",
        builds=study.builds_of,
    output:
        task="results/{platform}/tasks/{task}.csv",
        facts="results/{platform}/maximum_size/{task}.csv",
    log:
        "logs/{platform}/maximum_size/{task}.log",
    wildcard_constraints:
        task="|".join(study.with_method("maximum_size")) or "none",
    group:
        "measure-{platform}"
    threads: study.cores_of
    resources:
        **study.gpu_job,
    params:
        conditions=study.conditions_of,
        journal="results/{platform}/journal/{task}.jsonl",
    script:
        "../scripts/maximum_size.py"


rule collect:
    input:
        tasks=expand("results/{{platform}}/tasks/{task}.csv", task=study.tasks),
        maximum_size=expand("results/{{platform}}/maximum_size/{task}.csv", task=study.with_method("maximum_size")),
    output:
        measurements="results/{platform}/measurements.csv",
        maximum_size="results/{platform}/maximum_size.csv",
    log:
        "logs/{platform}/collect.log",
    priority: 1  # with the page, the last piece of a run: other tables can be drawn beside it
    localrule: True
    script:
        "../scripts/collect.py"
