# Fetch and pack what the H200 machine lacks, in the root of a clone with .venv: wheels into .carryw, cuBLAS and the packages
# of requirements/languages.txt in pieces .carrypNN, this folder's scripts and the commit's .git into .carryA.
set -e
. .venv/bin/activate
commit=53ad44f57b; root=$PWD; w=/tmp/prepared; mkdir -p $w/cb $w/lang $w/p .carryA .carryw
grep -q carry .git/info/exclude 2>/dev/null || { mkdir -p .git/info; echo '.carry*' >> .git/info/exclude; }
pl=(); for t in 2_34 2_31 2_28 2_27 2_26 2_24 2_17 2_5; do pl+=(--platform "manylinux_${t}_x86_64"); done
pl+=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64)
get() { pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp "${pl[@]}" -d "$@" 2>&1 | grep -v WARN || true; }
pin() { sed -n "s/^\($1==[^ ;]*\).*/\1/p" requirements/$2.txt | tail -1; }
bash ../shared/offline-wheels.sh .carryw
get $w/cbw "$(pin nvidia-cublas gpu)"
for p in triton numba-cuda llvmlite numba cuda-tile warp-lang nvidia-cutlass-dsl nvidia-cutlass-dsl-libs-base \
  nvidia-cutlass-dsl-libs-core nvidia-cutlass-dsl-libs-cu13 nvidia-cuda-tileiras nvidia-nvvm nvidia-cuda-nvcc arcp numpy; do
  get $w/langw "$(pin $p languages)"; done
(cd $w/cb && python -m zipfile -e $w/cbw/*.whl . && cd nvidia/cu13/lib && tar c libcublas.so.13 libcublasLt.so.13 | xz -T2 -3 > $w/cb.txz)
cd $w/lang; for f in $w/langw/*.whl; do python -m zipfile -e $f .; done
find . -name '*.a' -delete  # and what nothing uses; Triton wants its ptxas-blackwell
rm -rf triton/backends/nvidia/lib/cupti*/libnvperf* triton/backends/nvidia/lib/cupti*/libpcsamp* triton/backends/amd/lib/*.so \
  nvidia/cu13/bin/{nvlink,nvcc,cudafe++} nvidia/cu13/nvvm/bin/cicc triton/FileCheck
chmod +x nvidia/cu13/bin/* triton/backends/nvidia/bin/*
strip --strip-unneeded triton/_C/*.so llvmlite/binding/*.so
tar c . | xz -T2 -3 > $w/lang.txz
cd $root; rm -rf .carryp??
split -b 52000000 -d $w/cb.txz $w/p/c; split -b 52000000 -d $w/lang.txz $w/p/l
echo "NC=$(ls $w/p/c?? | wc -l) NL=$(ls $w/p/l?? | wc -l)" > .carryA/counts.sh
i=0; for f in $w/p/c?? $w/p/l??; do i=$((i+1)); d=.carryp$(printf %02d $i); mkdir $d; mv $f $d/; done
cp record-in-progress/{*.sh,*.yaml} .carryA/
git config uploadpack.allowAnySHA1InWant true
rm -rf $w/git; git init -q -b main $w/git; cd $w/git; git fetch -q --depth 1 file://$root $(git -C $root rev-parse $commit)
git reset -q --hard FETCH_HEAD; tar cf - .git | xz > $root/.carryA/git.txz; cd $root
ls -la .carryA; cat .carryA/counts.sh; du -sb .carryw
