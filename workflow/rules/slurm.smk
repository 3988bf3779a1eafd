if workflow.nodes is not None:  # jobs are submitted
    from snakemake.logging import logger

    from tilewise import cluster

    cluster.use()

    onerror:
        logger.error(cluster.failures())
