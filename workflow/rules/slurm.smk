from tilewise import slurm


onerror:
    print(slurm.failures())
