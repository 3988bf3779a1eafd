#!/usr/bin/env bash
# A private Slurm of one node on loopback: munge, slurmctld and slurmd, as any user, without systemd, up in seconds.
#
#   tests/slurm/slurm.sh start FOLDER    then put FOLDER/bin first on the PATH; all state and logs lie in FOLDER
#   tests/slurm/slurm.sh stop FOLDER     also ends what still runs in it
#   tests/slurm/slurm.sh daemon FOLDER munged|slurmctld|slurmd     start one daemon again
#
# GPUS    the node's GPUs as MODEL=FILE, default two that need no device: "red=/dev/null blue=/dev/zero"
# CPUS    cores that the node claims, default all
# PORT    the first of two ports, default a free pair
# PREFIX  a tree of unpacked Debian packages (dpkg -x) to take Slurm from; default the installed one
# CGROUP  CgroupPlugin, default cgroup/v1, which also starts where cgroups cannot be used
set -euo pipefail
action=$1 state=$(realpath -m "$2") prefix=${PREFIX:-}
lib=$prefix/usr/lib/x86_64-linux-gnu sbin=$prefix/usr/sbin node=$(hostname -s)
export SLURM_CONF=$state/slurm.conf
if [ -n "$prefix" ]; then export LD_LIBRARY_PATH=$lib:$lib/slurm-wlm; fi

configure() {
  mkdir -p "$state"/{munge,spool,state,log,bin,sbin}
  chmod 755 "$state" "$state/munge" # munge refuses a socket that others cannot reach
  # Under Debian's names (slurmd-wlm) the daemons drop the node's GPUs without a word.
  local daemon
  for daemon in slurmctld slurmd slurmstepd; do
    ln -sf "$(realpath "$sbin/$daemon-wlm" 2>/dev/null || realpath "$sbin/$daemon")" "$state/sbin/$daemon"
  done
  local port=${PORT:-$(free_ports)} gpus=() types=() models=() gpu
  for gpu in ${GPUS:-red=/dev/null blue=/dev/zero}; do
    gpus+=("Name=gpu Type=${gpu%%=*} File=${gpu#*=}") # a GPU without a file leaves the node INVAL
    types+=("gpu:${gpu%%=*}:1")
    models+=("${gpu%%=*}")
  done
  printf '%s\n' "${gpus[@]}" >"$state/gres.conf"
  echo "CgroupPlugin=${CGROUP:-cgroup/v1}" >"$state/cgroup.conf"
  cat >"$SLURM_CONF" <<CONF
ClusterName=private
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$state/munge/socket
PluginDir=$lib/slurm-wlm
StateSaveLocation=$state/state
SlurmdSpoolDir=$state/spool
SlurmctldPidFile=$state/slurmctld.run
SlurmdPidFile=$state/slurmd.run
SlurmctldLogFile=$state/log/slurmctld.log
SlurmdLogFile=$state/log/slurmd.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=60
KillWait=2
JobRequeue=0
# Finished jobs stay in squeue for the tests to see.
MinJobAge=3600
GresTypes=gpu
NodeName=$node NodeAddr=127.0.0.1 CPUs=${CPUS:-$(nproc)} RealMemory=$(awk '/MemTotal/{print int($2/1024)-512}' /proc/meminfo) Gres=$(IFS=,; echo "${types[*]}") Feature=$(IFS=,; echo "${models[*]}") State=UNKNOWN
PartitionName=main Nodes=$node Default=YES MaxTime=INFINITE State=UP
CONF
  # Snakemake strips SLURM_CONF inside a job; clients that set it themselves find their Slurm nevertheless.
  local client
  for client in sbatch srun squeue scancel scontrol sinfo sacct sacctmgr sshare; do
    {
      echo '#!/bin/sh'
      echo "export SLURM_CONF=$SLURM_CONF"
      [ -z "$prefix" ] || echo "export LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
      echo "exec $prefix/usr/bin/$client \"\$@\""
    } >"$state/bin/$client"
    chmod 755 "$state/bin/$client"
  done
  (umask 077 && head -c 1024 /dev/urandom >"$state/munge/key")
}

free_ports() {
  python3 - <<'PYTHON'
import socket

while True:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        try:
            second.bind(("127.0.0.1", first.getsockname()[1] + 1))
        except (OSError, OverflowError):
            continue
        print(first.getsockname()[1])
        break
PYTHON
}

daemon() {
  local command=()
  case $1 in
  munged) command=("$sbin/munged" -F --force --key-file="$state/munge/key" --socket="$state/munge/socket" --pid-file="$state/munge/run" --log-file="$state/log/munged.log" --seed-file="$state/munge/seed") ;;
  slurmctld) command=("$state/sbin/slurmctld" -D -f "$SLURM_CONF") ;;
  slurmd) command=("$state/sbin/slurmd" -D -f "$SLURM_CONF" -d "$state/sbin/slurmstepd" -N "$node") ;;
  esac
  setsid "${command[@]}" >"$state/log/$1.out" 2>&1 </dev/null &
  echo $! >"$state/$1.pid"
}

until_true() { # until_true SECONDS COMMAND...
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}

idle() { [ "$(timeout 5 "$state/bin/sinfo" -h -o %T)" = idle ]; }

stop() {
  timeout 10 "$state/bin/scancel" --user="$(id -un)" >/dev/null 2>&1 || true
  timeout 10 bash -c "until [ -z \"\$('$state/bin/squeue' -h)\" ]; do sleep 0.2; done" >/dev/null 2>&1 || true
  local name pid
  for name in slurmd slurmctld munged; do
    [ -s "$state/$name.pid" ] || continue
    pid=$(cat "$state/$name.pid")
    kill "$pid" 2>/dev/null || true
    until_true 5 eval "! grep -qs . /proc/$pid/cmdline" || kill -9 "$pid" 2>/dev/null || true
    rm -f "$state/$name.pid"
  done
}

case $action in
start)
  configure
  daemon munged
  until_true 5 test -S "$state/munge/socket" && daemon slurmctld && daemon slurmd && until_true 30 idle || {
    echo "Slurm did not come up in $state:" >&2
    tail -n 20 "$state"/log/* >&2
    stop
    exit 1
  }
  ;;
stop) stop ;;
daemon) daemon "$3" ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
