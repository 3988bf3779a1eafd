# an H200: languages, grading and accuracy_gate with the languages' packages, then the tuner of the kernels that changed
. /tmp/carry/env.sh
arrived() { while [ $(ls /tmp/p/$1?? 2>/dev/null | wc -l) -lt 9 ]; do sleep 1; done; sleep 2; }
unpack() { arrived $1; cat /tmp/p/$1?? | xz -dc -T16 | tar x -C $2; rm -f /tmp/p/$1??; echo "unpacked $1 $(date +%T)"; }
unpack c /tmp/cb; unpack l /tmp/lang0; . /tmp/carry/env.sh
S="python3 -m snakemake --cores all --keep-going"
$S -- $P/tasks/{languages,grading,accuracy_gate}.csv > /tmp/gpu.log 2>&1
echo "gpu rc $? $(date +%T)"
$S --configfile /tmp/carry/tuneD.yaml -- tune > /tmp/tune.log 2>&1
echo "tune rc $? $(date +%T)"
echo done > /tmp/alldone
