rule probe:
    output:
        "results/{platform}/device.json",
    log:
        "logs/{platform}/probe.log",
    resources:
        **study.gpu_job,
    params:
        backend=study.backend_of,
    script:
        "../scripts/probe.py"
