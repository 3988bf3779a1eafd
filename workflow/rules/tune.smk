from tilewise.evidence import kept_files
from tilewise.study import durations

# Tuning: not part of `all`. `snakemake --cores all tune` builds every variant of the kernels' spaces, finds the best, and
# writes them as data; `tilewise tuned` brings the choices into the registry.
for task in study.tunings:

    rule:
        name:
            f"measure_{task}"
        input:
            device="results/{platform}/device.json",
            sources=study.files_of(study.tuned[task]),
        output:
            expand("results/{{platform}}/tune/{kernel}.csv", kernel=study.tuned[task]),
        log:
            f"logs/{{platform}}/measure/{task}.log",
        threads: resources.cores_of
        resources:
            **resources.measuring_job(durations.TUNE_S),
            mem_mb=8000,
            cpus_per_task=resources.cpus_of,
        params:
            task=task,
            conditions=conditions.of_tuning(task),
            builds="results/{platform}/variants",
            samples=f"results/{{platform}}/samples/{task}",
            journal=f"results/{{platform}}/journal/{task}.jsonl",
        script:
            "../scripts/tune.py"

    rule:
        name:
            task
        input:
            devices=expand("results/{platform}/device.json", platform=study.platforms),
            configs=ancient(expand("results/{platform}/config.json", platform=study.platforms)),
            variants=expand("results/{platform}/tune/{kernel}.csv", platform=study.platforms, kernel=study.tuned[task]),
            kept=kept_files(),
        output:
            tables=expand("results/{platform}/tables/{task}.csv", platform=study.platforms, task=task),
            figures=report(
                expand("results/{platform}/figures/{task}.svg", platform=study.platforms, task=task),
                caption="../../report/captions/tuning.rst",
                category="Tuning",
            ),
        log:
            f"logs/show/{task}.log",
        localrule: True
        params:
            task=task,
        script:
            "../scripts/show_task.py"
