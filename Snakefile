# So that `snakemake` works in a clone; workflow/Snakefile is where others look for a workflow.
include: "workflow/Snakefile"


rule default:  # an included file has no say in what is made if nobody names a target
    default_target: True
    input:
        rules.all.input,
    localrule: True
