# A run fails, after its page is there, if the page lacks a piece; with `strict: true` also if a point is not right.
rule outcome:
    input:
        page="results/report.html",
        measured=expand("results/{platform}/measurements.csv", platform=study.platforms),
    output:
        "results/outcome.txt",
    log:
        "logs/outcome.log",
    localrule: True
    params:
        strict=config.get("strict", False),
    script:
        "../scripts/outcome.py"
