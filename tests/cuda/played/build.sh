#!/bin/bash
# Inside the image: makes the played driver and runtime in the folder that is its argument. Every function of them that a
# library of the image wants and that is not written here is there too, and refuses.
set -euo pipefail
here=$(dirname "$0") out=$1
cd /opt
mapfile -t libraries < <(find env/lib/python3*/site-packages/torch/lib vllm/lib/python3*/site-packages/vllm -name '*.so')
wanted=$(nm -D --undefined-only "${libraries[@]}" 2>/dev/null | sed -nE 's/^ +U (_*cu(da)?[A-Z][A-Za-z0-9_]*)(@.*)?$/\1/p' | sort -u)

refused() { # of the functions that begin like this, those that the file does not have
    while read -r name; do
        grep -qE "[ *]$name\(" "$2" || printf '%s\n' "$name"
    done < <(grep -E "$1" <<<"$wanted")
}
{
    echo 'int played_refusal(const char *name);'
    refused '^_*cuda' "$here/cudart.c" | sed 's/.*/int &(void) { return played_refusal("&"); }/'
} >"$out/refused.c"
{
    echo 'int played_refusal(const char *name);'
    refused '^cu[A-Z]' "$here/cuda.c" | sed 's/.*/int &(void) { return played_refusal("&"); }/'
} >"$out/driver.c"
echo 'libcudart.so.13 { *; };' >"$out/versions"

compile=(gcc -shared -fPIC -O1 -w)
"${compile[@]}" -Wl,-soname,libcuda.so.1 "$here/cuda.c" "$out/driver.c" -o "$out/libcuda.so.1"
"${compile[@]}" -Wl,-soname,libnvidia-ml.so.1 "$here/nvml.c" -o "$out/libnvidia-ml.so.1"
"${compile[@]}" -Wl,-soname,libcudart.so.13 -Wl,--version-script="$out/versions" -I"$CUDA_HOME/include" \
    "$here/cudart.c" "$out/refused.c" -o "$out/libcudart.so.13"
