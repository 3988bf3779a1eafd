"""Stand-ins for nvidia-smi: machines with GPUs that are not there."""

A100 = {"uuid": "GPU-aa1100", "name": "NVIDIA A100-SXM4-40GB", "mig.mode.current": "Disabled", "compute_cap": "8.0"}
T4 = {"uuid": "GPU-bb2200", "name": "Tesla T4", "mig.mode.current": "[N/A]", "compute_cap": "7.5"}
L4 = {"uuid": "GPU-dd4400", "name": "NVIDIA L4", "mig.mode.current": "[N/A]", "compute_cap": "8.9"}
H200 = {"uuid": "GPU-ee5500", "name": "NVIDIA H200", "mig.mode.current": "Disabled", "compute_cap": "9.0"}
#: An A100 that is divided by MIG.
MIG = A100 | {"uuid": "GPU-ff6600", "mig.mode.current": "Enabled"}

#: What the study asks of drivers, and of one that knows no compute capability.
FIELDS = ("index", "uuid", "name", "driver_version", "mig.mode.current", "compute_cap")
OLD = FIELDS[:-1]
_SMI = """#!/bin/sh
case "$1" in --query-gpu={asked}) ;; *) exit 2;; esac
cat <<'END'
{lines}END
"""


def smi(folder, cards):
    """Write an nvidia-smi that lists some cards, each a dict of what it says (an old one not its capability), into
    `folder`; returns the folder."""
    folder.mkdir(exist_ok=True)
    asked = list(OLD if any("compute_cap" not in card for card in cards) else FIELDS)
    cards = [{"driver_version": "580.1"} | card for card in cards]
    lines = [", ".join([str(number), *(card[name] for name in asked[1:])]) for number, card in enumerate(cards)]
    (folder / "nvidia-smi").write_text(_SMI.format(asked=",".join(asked), lines="".join(f"{line}\n" for line in lines)))
    (folder / "nvidia-smi").chmod(0o755)
    return folder
