rule build:
    input:
        device="results/{platform}/device.json",
        source=study.source_of,
    output:
        directory("results/{platform}/build/{kernel}"),
    log:
        "logs/{platform}/build/{kernel}.log",
    group:
        "build-{platform}"
    resources:
        **study.cpu_job,
    params:
        instances=study.instances_of,
    script:
        "../scripts/build.py"
