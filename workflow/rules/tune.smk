from tilewise.study import durations

# Tuning: not part of `all`. `snakemake --cores all tune` builds every variant of the kernels' spaces, finds the best, and
# writes them as data; `tilewise tuned` brings the choices into the registry. report.smk draws them.
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
