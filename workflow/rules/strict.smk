# With `strict: true`, a run of which something is not right ends with an error, after the page is there.
rule strict:
    input:
        page="results/report.html",
        measured=expand("results/{platform}/measurements.csv", platform=study.platforms),
    output:
        "results/strict.txt",
    log:
        "logs/strict.log",
    localrule: True
    script:
        "../scripts/strict.py"
