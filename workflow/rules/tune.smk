from tilewise.report import data
from tilewise.study import durations, slurm

# Tuning: not part of `all`. `snakemake --cores all tune` builds every variant of the kernels' spaces, finds the best, and
# writes them as data; `tilewise tuned` brings the choices into the registry.
for task in study.tunings:

    rule:
        name:
            f"build_{task}"
        input:
            target="results/{platform}/target.json",
            sources=study.sources_of_tuning(task),
            emulator=study.emulator_of,
        output:
            expand("results/{{platform}}/variants/{kernel}/manifest.json", kernel=study.tuned_by(task)),
        log:
            f"logs/{{platform}}/build/{task}.log",
        threads: workflow.cores
        resources:
            **study.cpu_job(durations.TUNE_S),
            mem_mb=8000,
            cpus_per_task=slurm.LOOP_CORES,
        params:
            task=task,
            conditions=study.conditions_of_tuning(task),
        script:
            "../scripts/build_variants.py"

    rule:
        name:
            f"measure_{task}"
        input:
            device="results/{platform}/device.json",
            builds=expand("results/{{platform}}/variants/{kernel}/manifest.json", kernel=study.tuned_by(task)),
        output:
            expand("results/{{platform}}/tune/{kernel}.csv", kernel=study.tuned_by(task)),
        log:
            f"logs/{{platform}}/measure/{task}.log",
        threads: study.cores_of
        resources:
            **study.measuring_job(durations.TUNE_S),
            mem_mb=8000,
            cpus_per_task=study.cpus_of,
        params:
            task=task,
            conditions=study.conditions_of_tuning(task),
            samples=f"results/{{platform}}/samples/{task}",
            journal=f"results/{{platform}}/journal/{task}.jsonl",
        script:
            "../scripts/tune.py"

    rule:
        name:
            f"show_{task}"
        input:
            device="results/{platform}/device.json",
            config=ancient("results/{platform}/config.json"),
            variants=expand("results/{{platform}}/tune/{kernel}.csv", kernel=study.tuned_by(task)),
            kept=data.kept_files(),
        output:
            table=f"results/{{platform}}/tables/{task}.csv",
            figure=report(
                f"results/{{platform}}/figures/{task}.svg",
                caption="../../report/captions/tuning.rst",
                category="Tuning",
                labels={"task": task, "platform": "{platform}"},
            ),
        log:
            f"logs/{{platform}}/show/{task}.log",
        localrule: True
        script:
            "../scripts/show_task.py"

    rule:
        name:
            task
        input:
            expand(f"results/{{platform}}/tables/{task}.csv", platform=study.platforms),
        localrule: True
