#!/bin/bash
# quickstart: from a fresh clone to a distilled model. Installs what is missing, builds, trains four
# peers on Fashion-MNIST, each of which sees mostly some of the ten classes, and that share nothing but
# their parameters; for comparison each of them alone, and one peer on all the data; distils the swarm
# into a student with a fifteenth of the parameters, without labels; prints one table. Five or six
# minutes after the build on two cores.
#   testnet/quickstart.sh [--yes] [--build-only]
#     --yes         do not ask before installing (nobody is asked as root)
#     --build-only  stop after the build
# Leaves report.html, average.safetensors and student.safetensors in grapevine-run. Can be run again:
# it installs and builds only what is missing, and trains anew.
set -euo pipefail
cd "$(dirname "$0")/.."

build_only=no
yes=()
for word in "$@"; do
    case $word in
    --yes) yes=(--yes) ;;
    --build-only) build_only=yes ;;
    *)
        echo "quickstart.sh: unknown word $word: it takes --yes and --build-only" >&2
        exit 2
        ;;
    esac
done

log=build/quickstart-build.log
out="grapevine-run"
grapevine=build/release/grapevine

build() {
    cmake --preset release && cmake --build --preset release --target grapevine || return
    # The module for GPUs takes minutes: only where there is one, and what it is built with.
    [ -e /proc/driver/nvidia/version ] || return 0
    cmake --build --preset release --target help | grep -q '^grapevine_cuda' || return 0
    cmake --build --preset release --target grapevine_cuda
}

testnet/install.sh "${yes[@]}"
mkdir -p build
echo "quickstart: building, log in $log" >&2
if ! build >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "quickstart.sh: the build failed; all of it is in $log" >&2
    exit 1
fi
built=$SECONDS
if [ "$build_only" = yes ]; then
    echo "quickstart: built $grapevine" >&2
    exit 0
fi

echo "quickstart: four peers train cnn on non-IID shards of Fashion-MNIST; then each alone, then one on all of it" >&2
"$grapevine" testnet --peers 4 --out "$out" --fresh --data fashion-mnist --model cnn --shard dirichlet:0.3 \
    --averaging local-sgd:H=4 --steps 900 --batch 32 --lr 0.05 --schedule cosine:warmup=5% \
    --baselines --json >/dev/null
echo "quickstart: a small student learns from the swarm's answers to 10,000 images, without their labels" >&2
"$grapevine" distill --teachers "$out" --data fashion-mnist --samples 10000 --epochs 8 --alpha 1 \
    --student 'conv3x3:16 relu maxpool2 conv3x3:32 relu maxpool2 linear:64 relu linear:classes' \
    --report "$out" >/dev/null
echo
"$grapevine" report "$out"
echo
echo "built in $built s, trained and distilled in $((SECONDS - built)) s; curves and details: $out/report.html"
