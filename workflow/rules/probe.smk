rule probe:
    output:
        "results/{platform}/device.json",
    log:
        "logs/{platform}/probe.log",
    params:
        backend=study.backend_of,
    resources:
        gpu=1,
    script:
        "../scripts/probe.py"
