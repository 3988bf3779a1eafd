# SECONDS NAME: wait for the driver's end, at most so long and not past 1,660 s after the start; bring what there is
[ -e /tmp/all.log ] || { echo 'this is another machine than the one of setup.sh: nothing runs here'; exit 9; }
now=$(date +%s); end=$(( now + $1 )); last=$(( $(cat /tmp/t0) + 1660 )); [ $end -gt $last ] && end=$last
while [ ! -e /tmp/alldone ] && [ $(date +%s) -lt $end ]; do sleep 1; done
cat /tmp/all.log; for f in /tmp/{languages,tune,headline}.log; do [ -e $f ] && echo "== $f" && tail -n 5 $f; done
mkdir -p /tmp/o; cp /tmp/*.log /tmp/o/
cd /tmp; tar cf - --exclude=build --exclude=variants --exclude=.snakemake o $(ls -d [tuv]/results [tuv]/logs 2>/dev/null) | xz -T16 -1 > /tmp/$2.txz
split -b 15000000 /tmp/$2.txz $OUT/$2.; ls -la $OUT; date
