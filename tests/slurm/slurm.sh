#!/usr/bin/env bash
# A private Slurm on loopback: munge, slurmctld and slurmd, as any user, without systemd, up in seconds.
#
#   tests/slurm/slurm.sh start FOLDER    then put FOLDER/bin first on the PATH; all state and logs lie in FOLDER
#   tests/slurm/slurm.sh stop FOLDER     also ends what still runs in it
#   tests/slurm/slurm.sh daemon FOLDER munged|slurmctld|slurmd|second|slurmdbd|mariadbd     start one daemon again
#
# GPUS    the node's GPUs as MODEL=FILE, default two that need no device: "red=/dev/null blue-80gb=/dev/zero"
# CPUS    cores that a node claims, default all
# SECOND  the name of a second node, which is this machine too; default none
# ACCOUNTING   anything: with slurmdbd on MariaDB, and the account `study` for this user; default none
# PORT    the first of five ports, default free ones
# OWNER   a process with whose end the cluster ends too, default none
# PREFIX  a tree of unpacked Debian packages (dpkg -x) to take Slurm from; default the installed one
# CGROUP  CgroupPlugin, default cgroup/v1, which also starts where cgroups cannot be used
set -euo pipefail
action=${1:-} state=$(realpath -m "${2:-.}") prefix=${PREFIX:-}
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
  local port=${PORT:-$(free_ports)} accounting=(AccountingStorageType=accounting_storage/none) gpus=() types=() models=() gpu
  for gpu in ${GPUS:-red=/dev/null blue-80gb=/dev/zero}; do
    gpus+=("Name=gpu Type=${gpu%%=*} File=${gpu#*=}") # a GPU without a file leaves the node INVAL
    types+=("gpu:${gpu%%=*}:1")
    models+=("${gpu%%=*}")
  done
  printf '%s\n' "${gpus[@]}" >"$state/gres.conf"
  echo "CgroupPlugin=${CGROUP:-cgroup/v1}" >"$state/cgroup.conf"
  if [ -n "${ACCOUNTING:-}" ]; then
    accounting=(AccountingStorageType=accounting_storage/slurmdbd AccountingStorageHost=127.0.0.1
      AccountingStoragePort=$((port + 3)) AccountingStoragePass="$state/munge/socket"
      AccountingStoreFlags=job_comment AccountingStorageEnforce=associations,limits,qos)
    database "$((port + 3))" "$((port + 4))"
  fi
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
SlurmdSpoolDir=$state/spool/%n
SlurmctldPidFile=$state/slurmctld.run
SlurmdPidFile=$state/slurmd.%n.run
SlurmctldLogFile=$state/log/slurmctld.log
SlurmdLogFile=$state/log/slurmd.%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
$(printf '%s\n' "${accounting[@]}")
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
NodeName=DEFAULT CPUs=${CPUS:-$(nproc)} RealMemory=$(awk '/MemTotal/{print int($2/1024)-512}' /proc/meminfo) Gres=$(IFS=,; echo "${types[*]}") Feature=$(IFS=,; echo "${models[*]}") State=UNKNOWN
NodeName=$node NodeAddr=127.0.0.1
$(if [ -n "${SECOND:-}" ]; then echo "NodeName=$SECOND NodeHostname=$node NodeAddr=127.0.0.1 Port=$((port + 2))"; fi)
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
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
import contextlib
import socket

while True:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(5)]
        sockets[0].bind(("127.0.0.1", 0))
        first = sockets[0].getsockname()[1]
        try:
            for place, other in enumerate(sockets[1:], 1):
                other.bind(("127.0.0.1", first + place))
        except (OSError, OverflowError):
            continue
        print(first)
        break
PYTHON
}

database() { # database PORT PORT: of slurmdbd, and of MariaDB
  mkdir -p "$state/mariadb/data"
  printf '%s\n' [mariadbd] "datadir=$state/mariadb/data" "socket=$state/mariadb/socket" "pid-file=$state/mariadb/run" \
    skip-grant-tables bind-address=127.0.0.1 "port=$2" innodb_buffer_pool_size=64M innodb_flush_log_at_trx_commit=0 \
    "user=$(id -un)" >"$state/mariadb/my.cnf"
  # The tables of its own that slurmdbd's stored procedures need; mariadb-install-db would want the client's package.
  local tables=$prefix/usr/share/mysql
  { printf "%s;\n" "create database mysql" "use mysql" && cat "$tables"/mysql_system_tables{,_data}.sql; } |
    "$sbin/mariadbd" --defaults-file="$state/mariadb/my.cnf" --bootstrap >"$state/log/bootstrap.out" 2>&1
  (umask 077 && cat >"$state/slurmdbd.conf") <<CONF
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$1
AuthType=auth/munge
AuthInfo=socket=$state/munge/socket
SlurmUser=$(id -un)
PluginDir=$lib/slurm-wlm
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$2
StorageUser=root
StorageLoc=slurm
LogFile=$state/log/slurmdbd.log
PidFile=$state/slurmdbd.run
CONF
}

daemon() {
  local command=()
  case $1 in
  munged) command=("$sbin/munged" -F --force --key-file="$state/munge/key" --socket="$state/munge/socket" --pid-file="$state/munge/run" --log-file="$state/log/munged.log" --seed-file="$state/munge/seed") ;;
  slurmctld) command=("$state/sbin/slurmctld" -D -f "$SLURM_CONF") ;;
  slurmd) command=("$state/sbin/slurmd" -D -f "$SLURM_CONF" -d "$state/sbin/slurmstepd" -N "$node") ;;
  second) command=("$state/sbin/slurmd" -D -f "$SLURM_CONF" -d "$state/sbin/slurmstepd" -N "$SECOND") ;;
  slurmdbd) command=("$sbin/slurmdbd" -D) ;;
  mariadbd) command=("$sbin/mariadbd" --defaults-file="$state/mariadb/my.cnf") ;;
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

idle() { [ "$(timeout 5 "$state/bin/sinfo" -h -o '%T %D')" = "idle $([ -n "${SECOND:-}" ] && echo 2 || echo 1)" ]; }

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

accounting() { # the database, slurmdbd, and an account for this user; before slurmctld, which asks for its cluster
  [ -n "${ACCOUNTING:-}" ] || return 0
  daemon mariadbd
  until_true 30 listens "$(sed -n 's/^StoragePort=//p' "$state/slurmdbd.conf")" && daemon slurmdbd &&
    until_true 30 listens "$(sed -n 's/^DbdPort=//p' "$state/slurmdbd.conf")" || return 1
  local manage=("$state/bin/sacctmgr" -i add)
  {
    "${manage[@]}" cluster private && "${manage[@]}" account study cluster=private &&
      "${manage[@]}" user "$(id -un)" account=study cluster=private
  } >"$state/log/sacctmgr.out" 2>&1
}

stop() {
  timeout 10 "$state/bin/scancel" --user="$(id -un)" >/dev/null 2>&1 || true
  timeout 10 bash -c "until [ -z \"\$('$state/bin/squeue' -h)\" ]; do sleep 0.2; done" >/dev/null 2>&1 || true
  local name pid
  for name in second slurmd slurmctld slurmdbd mariadbd munged; do
    [ -s "$state/$name.pid" ] || continue
    pid=$(cat "$state/$name.pid")
    kill "$pid" 2>/dev/null || true
    until_true 5 eval "! grep -qs . /proc/$pid/cmdline" || kill -9 "$pid" 2>/dev/null || true
    rm -f "$state/$name.pid"
  done
}

with_owner() { # a test run that is killed runs no clean-up
  setsid bash -c 'tail --pid="$0" --follow /dev/null; "$1" stop "$2"; rm -rf "$2"' \
    "$OWNER" "$(realpath "$0")" "$state" >/dev/null 2>&1 </dev/null &
}

case $action in
start)
  configure
  daemon munged
  until_true 5 test -S "$state/munge/socket" && accounting && daemon slurmctld && daemon slurmd &&
    { [ -z "${SECOND:-}" ] || daemon second; } && until_true 30 idle || {
    echo "Slurm did not come up in $state:" >&2
    tail -n 20 "$state"/log/* >&2
    stop
    exit 1
  }
  if [ -n "${OWNER:-}" ]; then with_owner; fi
  ;;
stop) stop ;;
daemon) daemon "$3" ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
