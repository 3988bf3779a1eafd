unset NVCC_APPEND_FLAGS PYTHONDONTWRITEBYTECODE
L=/tmp/lang0
export PYTHONPATH=/tmp/t/workflow:/tmp/t/packages/microscope/src:/tmp/site:$L:$L/nvidia_cutlass_dsl/dsl_packages
[ -e /tmp/cb/libcublasLt.so.13 ] && export LD_PRELOAD=/tmp/cb/libcublasLt.so.13:/tmp/cb/libcublas.so.13
mkdir -p /tmp/wrap; printf '#!/bin/bash\nexport CUDA_HOME=/tmp/lang0/nvidia/cu13; exec /tmp/lang0/nvidia/cu13/bin/tileiras "$@"\n' > /tmp/wrap/tileiras; chmod +x /tmp/wrap/tileiras
export PATH=/tmp/wrap:$PATH
N=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
case "$N" in *H200*) P=results/nvidia-h200;; *) P=results/nvidia-h100-80gb-hbm3;; esac
cd /tmp/t
