from tilewise.study import durations, slurm


rule probe:
    input:
        study.probed_before,
    output:
        "results/{platform}/device.json",
    log:
        "logs/{platform}/probe.log",
    resources:
        **study.gpu_job(durations.PROBE_S),
        mem_mb=study.memory_of,
        cpus_per_task=study.cpus_of,
    params:
        backend=study.backend_of,
    script:
        "../scripts/probe.py"
