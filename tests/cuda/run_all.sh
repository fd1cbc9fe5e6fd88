#!/usr/bin/env bash
# Everything that only a machine with an NVIDIA GPU can say, in one call of less than ten minutes:
# builds, compares every operator and whole models with the processor, looks for wrong memory
# accesses, measures speed beside PyTorch on the same card, and prints one table. A part that fails
# does not stop the next one.
#
#   tests/cuda/run_all.sh [--quick] [--out DIR] [--build DIR] [PART...]
#   tests/cuda/run_all.sh --fetch DIR       on a Debian machine with a network: packages into DIR
#
#   PART     build parity sanitizer kernels train averaging table; all of them if none is named.
#            Results of parts stay in --out, so that several calls make one table.
#   --quick  fewer repetitions and models: about four minutes
#   --out    results (default build/gpu-results): report.md, report.json, a log for each part
#   --build  (default build/gpu)
#
# From the environment:
#   GRAPEVINE_DEBS=DIR  use the packages in DIR (from --fetch) instead of the machine's: they are
#                       unpacked beside the build, nothing is installed
#   PYTHON=python3      the one that has PyTorch
#   BUDGET=570          seconds for all parts; what does not fit is stopped and said
#
# It needs nvcc, CMake 3.25, ninja, a C and C++ compiler; cuDNN and NCCL from the CUDA toolkit or
# from PyTorch's wheels. The card's settings are left as they are.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

packages=(
    libuv1-dev libuv1 libsodium-dev libsodium23 libmsgpack-dev libmsgpackc2 libjansson-dev libjansson4
    libinih-dev libinih1 zlib1g-dev zlib1g libpng-dev libpng16-16 libopenblas-openmp-dev libopenblas0-openmp
    libgfortran5 libquadmath0 libdnnl-dev libdnnl2 ocl-icd-libopencl1 libcmocka-dev libcmocka0
    pkgconf pkgconf-bin libpkgconf3
)
all_parts=(build parity sanitizer kernels train averaging table)

usage() {
    sed -n '/^#   tests/,/^#$/p' "$0" | sed 's/^# *//'
    exit 2
}

fetch() { # fetch DIR
    mkdir -p "$1" && cd "$1" || exit 1
    apt-get download "${packages[@]}" || exit 1
    local file
    for file in ./*%3a*; do # an epoch; not every tool takes such names
        [ ! -e "$file" ] || mv "$file" "${file//%3a/-}"
    done
    echo "$(find . -name '*.deb' | wc -l) packages in $PWD: GRAPEVINE_DEBS=$PWD tests/cuda/run_all.sh"
    exit 0
}

quick=no
out=$root/build/gpu-results
build=$root/build/gpu
parts=()
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=yes ;;
    --out | --build | --fetch)
        [ $# -ge 2 ] || usage
        case $1 in
        --out) out=$2 ;;
        --build) build=$2 ;;
        --fetch) fetch "$2" ;;
        esac
        shift
        ;;
    build | parity | sanitizer | kernels | train | averaging | table) parts+=("$1") ;;
    *) usage ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || parts=("${all_parts[@]}")
python=${PYTHON:-python3}
mkdir -p "$out" "$build"
out=$(cd "$out" && pwd)
build=$(cd "$build" && pwd)
export OMP_WAIT_POLICY=PASSIVE
grapevine=$build/grapevine

# --- what is here ------------------------------------------------------------------------------------

for folder in "${CUDA_HOME:-}/bin" /usr/local/cuda/bin; do
    [ ! -x "$folder/nvcc" ] || PATH=$folder:$PATH
done
prefix=$build/packages libraries=$build/packages/usr/lib/x86_64-linux-gnu

if_quick() { # if_quick A B: A in the quick form, otherwise B
    if [ "$quick" = yes ]; then echo "$1"; else echo "$2"; fi
}

unpack() { # the packages, once; and what their installation scripts would have done
    local deb name
    [ -n "${GRAPEVINE_DEBS:-}" ] || return 0
    if [ ! -e "$prefix/.complete" ]; then
        for deb in "$GRAPEVINE_DEBS"/*.deb; do
            dpkg -x "$deb" "$prefix" || return 1
        done
        for name in libopenblas.so libopenblas.so.0 pkgconfig/openblas.pc; do
            ln -sf "$libraries/openblas-openmp/$name" "$libraries/$name"
        done
        touch "$prefix/.complete"
    fi
    export PKG_CONFIG_SYSROOT_DIR=$prefix PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
    export PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$prefix/usr/share/pkgconfig
    if ! command -v pkg-config >/dev/null; then
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/usr/bin/pkgconf "$@"\n' "$libraries" "$prefix" >"$build/pkg-config"
        chmod +x "$build/pkg-config"
        export PKG_CONFIG=$build/pkg-config
    fi
}

# find_beside_python PACKAGE: include and library folder of an nvidia wheel, on two lines.
find_beside_python() {
    "$python" - "$1" <<'PY'
import importlib.util
import sys

spec = importlib.util.find_spec("nvidia." + sys.argv[1])
folder = list(spec.submodule_search_locations)[0] if spec else ""
print(folder + "/include\n" + folder + "/lib" if folder else "")
PY
}

# Arguments for CMake where cuDNN and NCCL are not the toolkit's, one a line.
library_arguments() {
    local toolkit found
    toolkit=$(dirname "$(dirname "$(command -v nvcc)")")
    for library in cudnn nccl; do
        if [ -n "$(find -L "$toolkit/include" "$toolkit/targets" /usr/include -name "$library.h" -print -quit 2>/dev/null)" ]; then
            continue
        fi
        mapfile -t found < <(find_beside_python "$library" 2>/dev/null)
        [ -n "${found[0]:-}" ] || continue
        printf -- '-D%s_INCLUDE=%s\n' "${library^^}" "${found[0]}"
        printf -- '-D%s_LIBRARY=%s\n' "${library^^}" "$(find "${found[1]}" -name "lib$library.so*" | sort | head -n 1)"
        ln -sfn "${found[1]}" "$build/beside-$library"
    done
}

# Our programs, with libraries that nothing else is to find.
ours() {
    local path=$build/beside-cudnn:$build/beside-nccl
    LD_LIBRARY_PATH=$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} GRAPEVINE_TEST_MODULE=$build/grapevine-cuda.so "$@"
}

# --- parts -------------------------------------------------------------------------------------------

part_build() {
    local arguments targets architecture
    unpack || return 1
    architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    mapfile -t arguments < <(library_arguments)
    if [ -n "${GRAPEVINE_DEBS:-}" ]; then
        arguments+=(-DCMAKE_PREFIX_PATH="$prefix/usr"
            -DCMAKE_C_FLAGS="-isystem $prefix/usr/include -isystem $prefix/usr/include/x86_64-linux-gnu"
            -DCMAKE_EXE_LINKER_FLAGS="-L$libraries -Wl,--disable-new-dtags,-rpath,$libraries"
            -DCMAKE_MODULE_LINKER_FLAGS="-L$libraries -Wl,--disable-new-dtags,-rpath,$libraries")
    fi
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_CUDA_ARCHITECTURES="${architecture:-90}" "${arguments[@]}" || return 1
    mapfile -t targets < <(ninja -C "$build" -t targets all | grep -oE '^cuda_[a-z0-9_]+: phony' | cut -d: -f1)
    echo "${#targets[@]} programs of the parity suite"
    cmake --build "$build" --target grapevine grapevine_cuda "${targets[@]}" || return 1
    note "${#targets[@]} test programs, sm_${architecture:-90}"
}

programs() { # the parity suite as built
    find "$build/tests/cuda" -maxdepth 1 -type f -executable -name 'cuda_*' -printf '%f\n' | sort
}

# run_programs FOLDER SECONDS COMMAND...: each name on standard input, four at a time; a log and an
# exit code for each in FOLDER.
run_programs() {
    local folder=$1 seconds=$2 name
    shift 2
    rm -rf "$folder" && mkdir -p "$folder"
    while read -r name; do
        while [ "$(jobs -rp | wc -l)" -ge 4 ]; do wait -n; done
        (
            cd "$root" || exit 1
            ours timeout -k 5 "$seconds" "$@" "$build/tests/cuda/$name" >"$folder/$name.log" 2>&1
            echo $? >"$folder/$name.code"
        ) &
    done
    wait
}

part_parity() {
    local name code ran=0 tests=0 comparisons=0 failed=()
    programs | run_programs "$out/parity" "$(if_quick 60 110)"
    while read -r name; do
        code=$(cat "$out/parity/$name.code" 2>/dev/null || echo none)
        grep -E 'ran on|skipped:' "$out/parity/$name.log"
        if [ "$code" = 0 ]; then
            ran=$((ran + 1))
        else
            failed+=("$name ($code)")
            tail -n 25 "$out/parity/$name.log"
        fi
        read -r t c < <(sed -nE 's/.*: ([0-9]+) tests with ([0-9]+) comparisons ran.*/\1 \2/p' "$out/parity/$name.log")
        tests=$((tests + ${t:-0})) comparisons=$((comparisons + ${c:-0})) t=0 c=0
    done < <(programs)
    note "$ran of $(programs | wc -l) programs passed: $tests tests, $comparisons comparisons${failed[*]:+; failed: ${failed[*]}}"
    [ ${#failed[@]} -eq 0 ] && [ "$ran" -gt 0 ]
}

# sanitize TOOL SECONDS PATTERN FLAGS...: programs whose names match, one seed of each test.
sanitize() {
    local tool=$1 seconds=$2 pattern=$3 name code clean=0 found=() late=()
    shift 3
    export SEEDS=1
    programs | grep -E "^cuda_($pattern)\$" |
        run_programs "$out/$tool" "$seconds" compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 "$@"
    while read -r name; do
        code=$(cat "$out/$tool/$name.code" 2>/dev/null || echo none)
        case $code in
        0) clean=$((clean + 1)) ;;
        124 | 137 | none) late+=("$name") ;;
        *)
            found+=("$name ($code)")
            grep -vE '^\[' "$out/$tool/$name.log" | head -n 40
            ;;
        esac
    done < <(programs | grep -E "^cuda_($pattern)\$")
    note "$tool: $clean clean${found[*]:+; found something in: ${found[*]}}${late[*]:+; not done in $seconds s: ${late[*]}}"
    [ ${#found[@]} -eq 0 ] && [ "$clean" -gt 0 ]
}

# Libraries read and write memory in ways that only they know, so races and reads of memory that
# nobody wrote are looked for where nearly all kernels are ours.
part_sanitizer() {
    local own='attention|codec|layout|loss|norm[a-z_]*|optimizer|pointwise|pool|sequence|snapshot|vector'
    local verdict=0
    command -v compute-sanitizer >/dev/null || { note "compute-sanitizer is not installed"; return 1; }
    sanitize memcheck "$(if_quick 30 70)" "$(if_quick "$own" '[a-z_]*')" --leak-check no || verdict=1
    sanitize racecheck "$(if_quick 15 40)" "$own" --racecheck-report analysis || verdict=1
    sanitize initcheck "$(if_quick 15 40)" "$own" || verdict=1
    return "$verdict"
}

part_kernels() {
    local precision verdict=0
    for precision in f32 bf16; do
        ours "$grapevine" bench kernels --device cuda --precision "$precision" --seconds "$(if_quick 4 12)" --json \
            >"$out/kernels-$precision.jsonl" || verdict=1
    done
    note "$(cat "$out"/kernels-*.jsonl | wc -l) rows"
    return "$verdict"
}

# MODEL BATCH PRECISION: what is compared with PyTorch, the most telling first.
train_rows() {
    echo gpt2-small 16 bf16
    echo gpt-nano 32 bf16
    echo resnet18 256 bf16
    [ "$quick" = no ] || return 0
    echo cnn 64 bf16
    echo lstm 32 bf16
    echo mlp 64 bf16
    echo gpt-nano 32 f32
    echo resnet18 256 f32
    echo cnn 64 f32
    echo lstm 32 f32
    echo mlp 64 f32
}

# Ours before and after PyTorch, so that a card that gets slower as it gets hot shows.
part_train() {
    local model batch precision verdict=0 rows=0 each
    each=$(($(if_quick 70 230) / $(train_rows | wc -l)))
    rm -f "$out"/train.jsonl
    while read -r model batch precision; do
        for side in ours theirs ours; do
            if [ "$side" = ours ]; then
                ours "$grapevine" bench train --device cuda --model "$model" --batch "$batch" --precision "$precision" \
                    --seconds "$(if_quick 2 3)" --json
            else
                timeout -k 5 $((3 * each)) "$python" "$here/compare_pytorch_gpu.py" "$model" "$batch" "$(if_quick 1.5 2.5)" \
                    --precision "$precision" --budget "$each"
            fi >"$out/row.json" || { verdict=1 && continue; }
            [ -s "$out/row.json" ] || continue
            printf '{"side":"%s",%s\n' "$side" "$(tail -n 1 "$out/row.json" | cut -c2-)" >>"$out/train.jsonl"
            rows=$((rows + 1))
        done
        echo "$model $precision: $rows measurements so far"
    done < <(train_rows)
    note "$rows measurements"
    return "$verdict"
}

# rate FILE: steps a second of a peer, between the first report after a tenth of its time and its
# last one, and its rounds, from its --json lines.
rate() {
    "$python" - "$1" <<'PY'
import json
import sys

reports = []
for line in open(sys.argv[1]):
    row = json.loads(line)
    if row.get("event") == "report":
        reports.append(row)
later = [r for r in reports if r["t"] > reports[-1]["t"] / 5]
first, last = later[0], later[-1]
seconds = last["t"] - first["t"]
print((last["step"] - first["step"]) / seconds, last["rounds_ok"] - first["rounds_ok"])
PY
}

# peers MODEL DATA BATCH SECONDS ALONE|TOGETHER: one on the GPU for so long; together with one on
# the processor that only averages: its steps are of one sample, and its rate is next to nothing.
peers() {
    local model=$1 data=$2 batch=$3 seconds=$4 form=$5 port=$((20000 + RANDOM % 20000)) gpu cpu=
    local common=(--model "$model" --data "$data" --averaging local-sgd:H=100 --shard all --json)
    [ "$form" = together ] || common+=(--averaging none)
    ours "$grapevine" peer "${common[@]}" --device cuda --precision bf16 --batch "$batch" --lr 1e-4 --time "${seconds}s" \
        --listen "127.0.0.1:$port" --report-every 250ms >"$out/peer-$form.jsonl" 2>"$out/peer-$form.err" &
    gpu=$!
    if [ "$form" = together ]; then
        ours "$grapevine" peer "${common[@]}" --pace every=1 --device cpu --batch 1 --lr 1e-9 --time 1h \
            --bootstrap "127.0.0.1:$port" --listen 127.0.0.1:0 >"$out/peer-cpu.jsonl" 2>"$out/peer-cpu.err" &
        cpu=$!
    fi
    wait "$gpu"
    local code=$?
    [ -z "$cpu" ] || { kill -INT "$cpu" && wait "$cpu"; }
    [ "$code" = 0 ] || tail -n 5 "$out/peer-$form.err"
    return "$code"
}

part_averaging() {
    local model data batch form verdict=0 seconds alone together rounds
    seconds=$(if_quick 5 8)
    cat "$root"/docs/*.md "$root"/README.md >"$out/text"
    rm -f "$out/averaging.jsonl"
    while read -r model batch data; do
        for form in alone together; do
            peers "$model" "$data" "$batch" "$seconds" "$form" || verdict=1
        done
        [ "$verdict" = 0 ] || continue
        read -r alone _ < <(rate "$out/peer-alone.jsonl")
        read -r together rounds < <(rate "$out/peer-together.jsonl")
        printf '{"model":"%s","batch":%s,"alone_steps_per_s":%s,"together_steps_per_s":%s,"rounds":%s}\n' \
            "$model" "$batch" "$alone" "$together" "$rounds" >>"$out/averaging.jsonl"
    done < <(
        echo resnet18 64 digits
        echo gpt-nano 32 "text:$out/text"
    )
    note "$(wc -l <"$out/averaging.jsonl") models"
    return "$verdict"
}

part_table() {
    "$python" "$here/report.py" "$out"
}

# --- running them ------------------------------------------------------------------------------------

note() { # what the table says of this part
    echo "$*" >>"$out/note"
    echo "$*"
}

run_part() {
    case $1 in
    build) part_build ;;
    parity) part_parity ;;
    sanitizer) part_sanitizer ;;
    kernels) part_kernels ;;
    train) part_train ;;
    averaging) part_averaging ;;
    table) part_table ;;
    esac
}

# within SECONDS PART: its exit code, or 124 when it was stopped with all that it had started.
within() {
    local end=$((SECONDS + $1)) group
    set -m # a process group of its own
    run_part "$2" >"$out/$2.log" 2>&1 &
    group=$!
    set +m
    while kill -0 "$group" 2>/dev/null; do
        if [ "$SECONDS" -ge "$end" ]; then
            kill -TERM -- "-$group" 2>/dev/null
            sleep 2
            kill -KILL -- "-$group" 2>/dev/null
            wait "$group" 2>/dev/null
            return 124
        fi
        sleep 0.2
    done
    wait "$group"
}

limit_of() {
    case $1 in
    build) echo 300 ;;
    parity) if_quick 70 120 ;;
    sanitizer) if_quick 70 160 ;;
    kernels) if_quick 25 50 ;;
    train) if_quick 110 270 ;;
    averaging) if_quick 40 60 ;;
    *) echo 20 ;;
    esac
}

budget=${BUDGET:-570}
touch "$out/status.tsv"
nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader >"$out/card" 2>&1 ||
    echo "no GPU: $(head -n 1 "$out/card")" >&2
{
    date -u +%Y-%m-%d
    git -C "$root" describe --always --dirty 2>/dev/null || echo unknown
} >"$out/when"
worst=0
for part in "${parts[@]}"; do
    limit=$(limit_of "$part") left=$((budget - SECONDS))
    [ "$part" = table ] || [ "$left" -ge "$limit" ] || limit=$left
    rm -f "$out/note"
    begun=$SECONDS
    echo "== $part"
    if [ "$limit" -lt 5 ] && [ "$part" != table ]; then
        verdict="not begun: the $budget s were used up"
    else
        within "$limit" "$part"
        case $? in
        0) verdict=passed ;;
        124) verdict="stopped after $limit s" ;;
        *) verdict=failed ;;
        esac
    fi
    [ "$verdict" = passed ] || worst=1
    if [ "$part" = table ]; then
        cat "$out/$part.log"
        continue
    fi
    [ "$verdict" = passed ] || tail -n 15 "$out/$part.log"
    sed -i "/^$part\t/d" "$out/status.tsv"
    printf '%s\t%s\t%s\t%s\n' "$part" "$verdict" $((SECONDS - begun)) "$(paste -sd ';' "$out/note" 2>/dev/null)" >>"$out/status.tsv"
    echo "$verdict in $((SECONDS - begun)) s: $(paste -sd ';' "$out/note" 2>/dev/null)"
done
exit "$worst"
