from tilewise.study import durations, slurm


rule probe:
    input:
        resources.probed_before,
    output:
        "results/{platform}/device.json",
    log:
        "logs/{platform}/probe.log",
    resources:
        **slurm.gpu_job(config, study.platforms, durations.PROBE_S),
        mem_mb=resources.memory_of,
        cpus_per_task=resources.cpus_of,
    params:
        backend=study.backend_of,
        conditions=conditions.of_machine,
    script:
        "../scripts/probe.py"
