#!/bin/bash
# library_cost: what a swarm costs a program with a trainer of its own: gv_step() that finds nothing to do, in C and from
# PyTorch, and samples a second of two PyTorch processes beside rounds, a core each. docs/library.md has figures.
#   tests/bench/library_cost.sh [BUILD_FOLDER [RUNS]]
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build/release} runs=${2:-5}
[ -e "$build/build.ninja" ] || { echo "library_cost.sh: no build in $build: cmake --preset release first" >&2; exit 2; }
cmake --build "$build" --target library_cost grapevine_shared >/dev/null
echo "== $(date +%F), load $(cut -d' ' -f1 /proc/loadavg), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
for step in 0 100 1000 10000; do
    "$build/tests/library_cost" $step $((step == 0 ? 200000 : step < 10000 ? 3000 : 300))
done
/usr/bin/python3 -c 'import torch' 2>/dev/null || { echo "no figures of PyTorch: python3-torch is not installed"; exit 0; }
LIBGRAPEVINE=$(realpath "$build/libgrapevine.so")
export LIBGRAPEVINE PYTHONDONTWRITEBYTECODE=1 OMP_WAIT_POLICY=PASSIVE
/usr/bin/python3 tests/bench/library_cost.py hook
for work in "mlp local-sgd:H=16 1600" "mlp diloco 1600" "cnn local-sgd:H=16 160" "cnn diloco:H=50 160"; do
    # shellcheck disable=SC2086
    /usr/bin/python3 tests/bench/library_cost.py pair $work "$runs"
done
