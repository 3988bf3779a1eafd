from tilewise.study import slurm

if workflow.nodes is not None:  # jobs are submitted
    slurm.await_controller()


onerror:
    print(slurm.failures())
