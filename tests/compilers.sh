#!/usr/bin/env bash
# The tests that depend on the compiler, with others than the default one: what g++ takes, instruments and computes.
#
#   tests/compilers.sh g++-11 'g++ -static-libstdc++'       with compilers of this machine
#   sudo tests/compilers.sh --debian trixie g++-13 g++-14   with those of another Debian, in a root of its own
#
# The root lies in /opt, or in TILEWISE_ROOTS, is made by debootstrap if it is not there, and is kept.
set -euo pipefail
cd "$(dirname "$0")/.."

in_debian() {  # SUITE COMPILER...
  local root=${TILEWISE_ROOTS:-/opt}/$1 packages="make gcc python3-venv python3-dev ${*:2}"
  [ -e "$root/etc/os-release" ] || debootstrap --variant=minbase "$1" "$root"
  mkdir -p "$root/tilewise"
  # What is mounted here goes with the shell: the repository, and how this machine reaches the network. Its certificates come
  # after the packages, because installing them in the root would write over this machine's own.
  unshare --mount bash -euo pipefail -s -- "$root" "$packages" "${@:2}" <<'ROOT'
    root=$1 packages=$2; shift 2
    mount --bind . "$root/tilewise"
    mount --rbind /dev "$root/dev"
    mount -t proc proc "$root/proc"
    readable() {
      [ ! -e "$1" ] || { [ -d "$1" ] && mkdir -p "$root$1" || touch "$root$1"; mount --bind -o ro "$1" "$root$1"; }
    }
    # Nothing may read this script, which is the standard input.
    inside() {
      env PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive chroot "$root" "$@" </dev/null
    }
    readable /etc/resolv.conf
    inside dpkg -s $packages >/dev/null 2>&1 ||
      inside bash -c "apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages >/dev/null"
    readable /etc/ssl
    readable /etc/pip.conf
    inside make -C /tilewise VENV=/opt/tilewise /opt/tilewise/test
    inside env PATH=/opt/tilewise/bin:/usr/bin:/bin /tilewise/tests/compilers.sh "$@"
ROOT
}

if [ "${1:-}" = --debian ]; then
  in_debian "${@:2}"
  exit
fi

# The other tests of the microscope are of its Python and of counts and verdicts, which no compiler changes.
studys=(bytes constructs people memory_rules emulator emulated_numbers emulated_tensor_core microscope same_verdict)
packages=(scopes structs vocabulary)
tests=("${studys[@]/#/tests/microscope/test_}" "${packages[@]/#/packages/microscope/tests/test_}")
status=0
for compiler in "${@:?name a compiler, such as g++-11}"; do
  version=$($compiler --version)
  echo "== ${version%%$'\n'*} =="
  CXX=$compiler python -m pytest "${tests[@]/%/.py}" -k "not nvrtc" -m "not exhaustive" --durations 3 || status=$?
done
exit "$status"
