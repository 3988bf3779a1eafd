"""Slurm's messages and their remedies; docs/cluster.md explains more of them."""

import re

#: Regular expressions of Slurm's words, with the remedy. Those of busy nodes are missing: waiting is all that helps.
ADVICE = {
    "PartitionTimeLimit|WallDuration|time limit is invalid": (
        "the job requests more time than allowed: set `max_minutes` in config/cluster.yaml; see `sinfo -o '%P %l'`"
    ),
    "MaxSubmitJob|violates accounting/QOS policy": (
        "the cluster takes fewer or shorter jobs from you: set a smaller `jobs` in slurm/config.yaml (`--jobs 2`); "
        "`max_minutes` in config/cluster.yaml limits their time"
    ),
    "BadConstraints|Requested node configuration": (
        "no node has what the job requests: compare config/cluster.yaml with `sinfo -o '%P %N %G %f %c %m'`"
    ),
    "PartitionDown|PartitionInactive": "the partition is out of service: wait, or name another in config/cluster.yaml",
    "DOWN, DRAINED|ReqNodeNotAvail|NodeDown": (
        "`sinfo -R` shows why nodes are out of service: wait, or choose others in config/cluster.yaml"
    ),
    "JobHeld": "somebody holds the job: ask who, or use `scontrol release`",
    "InvalidAccount|InvalidQOS": "correct `account` and `qos` in config/cluster.yaml, and run the same command again",
    "'CANCELLED'": "somebody, or a rule of the cluster, cancelled the job: run the same command again",
    "'NODE_FAIL'": "the node went down: run the same command again",
}
#: What the plugin says of a job's end if it does not ask sacct.
UNEXPLAINED = re.compile(r" ?Detailed failure reason unavailable \(.*?\)\.")
#: Where sbatch's command begins in the plugin's words.
COMMAND = "\n    sbatch call:"


def remedy(words: str) -> str:
    """What to do about Slurm's words, or empty."""
    return next((text for pattern, text in ADVICE.items() if re.search(pattern, words)), "")


def waiting(reason: str, count: int) -> str:
    """How many jobs wait for a reason, and what to do about it."""
    action = remedy(reason)
    return f"jobs that wait in Slurm: {count}: {reason}" + (f" ({action})" if action else "")


def failure(words: str, facts: str = "", log_is_empty: bool = False) -> str:
    """The plugin's words of a job that failed, with what a user may do, before sbatch's command.

    `facts` are scontrol's of the job, as one line; `log_is_empty`: it ran and left no word.
    """
    said, command, options = words.partition(COMMAND)
    found = dict(re.findall(r"(\w+)=(\S+)", facts))
    ended = f" It ended on {found['NodeList']}" if found.get("NodeList", "(null)") != "(null)" else ""
    ended += f" with exit code {found['ExitCode']}, Reason={found['Reason']}." if ended else ""
    lines = [remedy(said)]
    if log_is_empty:
        lines = ["Slurm's log of it is empty: if the disk is full here or on the node (`df -h .`), make room"]
    left_out = re.search(r" --exclude=(\S+)", options)
    if command and left_out:
        lines.append(f"the job must not use {left_out[1]}; if it failed in this run, run the same command again")
    return "\n".join(filter(None, [UNEXPLAINED.sub(ended, said).strip(), *lines])) + command + options
