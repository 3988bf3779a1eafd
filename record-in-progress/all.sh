# an H200: the study's GPU tasks by the commit in git.txz, to be resumed by later machines; the CPU's loops and languages are left for the last one
. /tmp/carry/env.sh
arrived() { while [ $(ls /tmp/p/$1?? 2>/dev/null | wc -l) -lt 9 ]; do sleep 1; done; sleep 2; }
unpack() { arrived $1; cat /tmp/p/$1?? | xz -dc -T16 | tar x -C $2; rm -f /tmp/p/$1??; echo "unpacked $1 $(date +%T)"; }
for t in memcheck racecheck; do (cd /tmp/carry/san; timeout 100 compute-sanitizer --tool $t python3 exp.py "[[65,100,67],[65,130,72]]" 1 /tmp/x 3; timeout 100 compute-sanitizer --tool $t python3 expm.py half "[[65,130,72],[65,131,71]]") > /tmp/san_$t.log 2>&1; done
unpack c /tmp/cb; . /tmp/carry/env.sh
S="python3 -m snakemake --cores all --keep-going"
$S -- $P/tasks/{sizes,task3,ladder_float,ladder_double,ladder_short,ladder_int8,float_accuracy,double_accuracy,accuracy_gate,grading,energy,batches,task1a,task1b,task1c,task2a,task2b,task4,coalescing,matrix_struct,dynamic_tile,launch_limits,rectangular,bandwidth,overhead,calls,integers,cold_start}.csv > /tmp/gpu.log 2>&1
echo "gpu rc $? $(date +%T)"
echo done > /tmp/alldone
