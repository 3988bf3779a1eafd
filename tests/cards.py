"""Stand-ins for nvidia-smi: machines with GPUs that are not there."""

A100 = {"uuid": "GPU-aa1100", "name": "NVIDIA A100-SXM4-40GB", "mig.mode.current": "Disabled"}
T4 = {"uuid": "GPU-bb2200", "name": "Tesla T4", "mig.mode.current": "[N/A]"}
L4 = {"uuid": "GPU-dd4400", "name": "NVIDIA L4", "mig.mode.current": "[N/A]"}
H200 = {"uuid": "GPU-ee5500", "name": "NVIDIA H200", "mig.mode.current": "Disabled"}
#: An A100 that is divided by MIG.
MIG = A100 | {"uuid": "GPU-ff6600", "mig.mode.current": "Enabled"}

_SMI = """#!/bin/sh
case "$1" in --query-gpu=index,uuid,name,driver_version,mig.mode.current) ;; *) exit 2;; esac
cat <<'END'
{lines}END
"""


def smi(folder, cards):
    """Write an nvidia-smi that lists some cards, each a dict of what it says, into `folder`; returns the folder."""
    folder.mkdir(exist_ok=True)
    fields = ("uuid", "name", "driver_version", "mig.mode.current")
    cards = [{"driver_version": "580.1"} | card for card in cards]
    lines = [", ".join([str(number), *(card[name] for name in fields)]) for number, card in enumerate(cards)]
    (folder / "nvidia-smi").write_text(_SMI.format(lines="".join(f"{line}\n" for line in lines)))
    (folder / "nvidia-smi").chmod(0o755)
    return folder
