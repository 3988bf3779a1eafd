from tilewise import slurm

if workflow.non_local_exec:
    slurm.await_controller()


onerror:
    print(slurm.failures())
