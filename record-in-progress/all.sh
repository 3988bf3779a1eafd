# an H200: the GPU tasks but languages, grading and accuracy_gate, then the loops of the CPU, then counters; parts are merged later
. /tmp/carry/env.sh
arrived() { while [ $(ls /tmp/p/$1?? 2>/dev/null | wc -l) -lt 9 ]; do sleep 1; done; sleep 2; }
unpack() { arrived $1; cat /tmp/p/$1?? | xz -dc -T16 | tar x -C $2; rm -f /tmp/p/$1??; echo "unpacked $1 $(date +%T)"; }
unpack c /tmp/cb; . /tmp/carry/env.sh
S="python3 -m snakemake --cores all --keep-going"
$S -- $P/tasks/{ladder_double,ladder_short,ladder_int8,float_accuracy,double_accuracy,batches,task1a,task1b,task1c,task2a,task2b,task4,coalescing,matrix_struct,dynamic_tile,launch_limits,rectangular,bandwidth,overhead,calls,integers,cold_start}.csv > /tmp/gpu.log 2>&1
echo "gpu rc $? $(date +%T)"
$S -- $P/tasks/{cpu,loop_orders}.csv > /tmp/cpu.log 2>&1
echo "cpu rc $? $(date +%T)"
$S --set-threads counters=8 -- $P/counters.csv $P/occupancy.csv $P/instructions.csv > /tmp/counters.log 2>&1
echo "counters rc $? $(date +%T)"
echo done > /tmp/alldone
