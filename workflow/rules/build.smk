from tilewise.study import durations


# The part of device.json that a build depends on, in the group of the builds: they are one job because of it.
rule target:
    input:
        device="results/{platform}/device.json",
    output:
        "results/{platform}/target.json",
    log:
        "logs/{platform}/target.log",
    resources:
        **study.cpu_job(durations.TARGET_S),
        mem_mb=4000,
        cpus_per_task=1,
    script:
        "../scripts/target.py"


rule build:
    input:
        target="results/{platform}/target.json",
        sources=study.sources_of,
        emulator=study.emulator_of,
    output:
        directory("results/{platform}/build/{kernel}"),
    log:
        "logs/{platform}/build/{kernel}.log",
    resources:
        **study.cpu_job(durations.BUILD_S),
        mem_mb=4000,
        cpus_per_task=1,
    params:
        instances=study.instances_of,
        conditions=study.conditions_of_build,
    script:
        "../scripts/build.py"
