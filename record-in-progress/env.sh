unset NVCC_APPEND_FLAGS PYTHONDONTWRITEBYTECODE
L=/tmp/lang0
# cuBLAS 13.10 and the packages of requirements/languages.txt come before what is installed
export PYTHONPATH=$T/workflow:$T/packages/microscope/src:$L:$L/nvidia_cutlass_dsl/dsl_packages:/tmp/site
[ -e /tmp/cb/libcublasLt.so.13 ] && export LD_PRELOAD=/tmp/cb/libcublasLt.so.13:/tmp/cb/libcublas.so.13
mkdir -p /tmp/wrap; printf '#!/bin/bash\nexport CUDA_HOME=/tmp/lang0/nvidia/cu13; exec /tmp/lang0/nvidia/cu13/bin/tileiras "$@"\n' > /tmp/wrap/tileiras; chmod +x /tmp/wrap/tileiras
export PATH=/tmp/wrap:$PATH
P=results/nvidia-h200
cd $T
