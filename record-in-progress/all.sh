# languages, grading and accuracy_gate on one GPU; the tuner, and the headline duels of a second card, on the other one
T=/tmp/t; . /tmp/carry/env.sh; . /tmp/carry/counts.sh
arrived() { while [ $(ls /tmp/p/$1?? 2>/dev/null | wc -l) -lt $2 ]; do sleep 1; done; sleep 1; }
unpack() { arrived $1 $2; cat /tmp/p/$1?? | xz -dc -T16 | tar x -C $3; rm -f /tmp/p/$1??; echo "unpacked $1 $(date +%T)"; }
unpack c $NC /tmp/cb & unpack l $NL /tmp/lang0 & wait
python3 -c 'import numpy, numba.cuda, triton; print(numpy.__version__, numba.__version__, triton.__version__)'
measure() {  # FOLDER NAME GPU ARGUMENTS
  T=/tmp/$1; . /tmp/carry/env.sh; CUDA_VISIBLE_DEVICES=$3 python3 -m snakemake --cores ${CORES:-16} --keep-going "${@:4}" > /tmp/$2.log 2>&1
  echo "$2 rc $? $(date +%T)"; }
languages() { measure t languages 0 -- $P/tasks/{languages,grading,accuracy_gate}.csv; }
tune() { measure u tune $1 --set-threads measure_tune=14 --configfile /tmp/carry/tune.yaml -- tune; }
if [ $(nvidia-smi -L | wc -l) -gt 1 ]; then
  languages & { tune 1; measure v headline 1 --configfile config/duels.yaml -- headline; } & wait
else
  languages; tune 0
fi
echo done > /tmp/alldone
