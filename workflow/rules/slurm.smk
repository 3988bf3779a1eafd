if workflow.nodes is not None:  # jobs are submitted
    from tilewise import cluster

    cluster.use()

    onerror:
        print(cluster.failures())
