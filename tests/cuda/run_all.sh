#!/usr/bin/env bash
# Everything that only a machine with an NVIDIA GPU can say, in one call of less than ten minutes:
# builds, compares every operator and whole models with the processor, looks for wrong memory
# accesses, measures speed beside PyTorch on the same card, and prints one table. A part that fails
# does not stop the next one.
#
#   tests/cuda/run_all.sh [--quick] [--out DIR] [--build DIR] [--module FILE] [PART...]
#   tests/cuda/run_all.sh --fetch DIR       on a Debian machine with a network: packages into DIR
#
#   PART     build parity train kernels averaging profile sanitizer table; all of them if none is
#            named, in this order. Results of parts stay in --out, so that several calls make one
#            table. A part takes the time that the others leave it: `build parity train` and then
#            `kernels averaging profile sanitizer table` get further than all at once.
#   --quick  fewer repetitions and models: about four minutes
#   --out    results (default build/gpu-results): report.md, report.json, a log for each part, and
#            all of it in one file, gpu-results.tar.gz
#   --build  (default build/gpu)
#   --module a grapevine-cuda.so that was built elsewhere from this revision: taken if it loads here,
#            which saves most of the time that building takes
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
    libuv1-dev libuv1 libsodium-dev libsodium23 libmsgpack-dev libmsgpackc2 libjansson-dev libjansson4 libpcre2-dev libpcre2-8-0
    libinih-dev libinih1 zlib1g-dev zlib1g libpng-dev libpng16-16 libopenblas-openmp-dev libopenblas0-openmp
    libgfortran5 libquadmath0 libdnnl-dev libdnnl2 ocl-icd-libopencl1 libcmocka-dev libcmocka0
    pkgconf pkgconf-bin libpkgconf3 libprotobuf-c-dev libprotobuf-c1 protobuf-c-compiler libprotoc32 libprotobuf32
)
all_parts=(build parity train kernels averaging profile sanitizer table)

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
module=""
out=$root/build/gpu-results
build=$root/build/gpu
parts=()
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=yes ;;
    --out | --build | --module | --fetch)
        [ $# -ge 2 ] || usage
        case $1 in
        --out) out=$2 ;;
        --build) build=$2 ;;
        --module) module=$(realpath "$2") || exit 1 ;;
        --fetch) fetch "$2" ;;
        esac
        shift
        ;;
    build | parity | train | kernels | averaging | profile | sanitizer | table) parts+=("$1") ;;
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
warmed=${TMPDIR:-/tmp}/grapevine-pytorch-warmed # as PyTorch's cache: gone with the machine

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
        # Some have their library in /lib, and links to there.
        [ ! -d "$prefix/lib" ] || cp -a "$prefix/lib/." "$prefix/usr/lib/"
        while read -r name; do
            ln -sf "$(basename "$(readlink "$name")")" "$name"
        done < <(find "$libraries" -maxdepth 1 -type l -lname '/lib/*')
        touch "$prefix/.complete"
    fi
    export PKG_CONFIG_SYSROOT_DIR=$prefix PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
    export PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$prefix/usr/share/pkgconfig
    if ! command -v pkg-config >/dev/null; then
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/usr/bin/pkgconf "$@"\n' "$libraries" "$prefix" >"$build/pkg-config"
        chmod +x "$build/pkg-config"
        export PKG_CONFIG=$build/pkg-config
    fi
    if ! command -v protoc-c >/dev/null; then
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/usr/bin/protoc-c "$@"\n' "$libraries" "$prefix" >"$build/protoc-c"
        chmod +x "$build/protoc-c"
        arguments+=("-DPROTOC_C=$build/protoc-c")
    fi
}

# in_wheels HEADER: the folders "include" and "lib" of the NVIDIA wheel beside PyTorch that has it.
in_wheels() {
    "$python" - "$1" <<'PY'
import glob
import importlib.util
import os
import sys

spec = importlib.util.find_spec("nvidia")
for folder in spec.submodule_search_locations if spec else []:
    for header in glob.glob(os.path.join(folder, "*", "include", sys.argv[1])):
        include = os.path.dirname(header)
        print(include)
        print(os.path.join(os.path.dirname(include), "lib"))
        sys.exit()
PY
}

# What the CUDA toolkit does not have itself: into `arguments`, for CMake, and `includes`.
look_beside_python() {
    local toolkit found header library name
    toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
    while read -r header library name; do
        [ -z "$(find -L "$toolkit" /usr/include -name "$header" -print -quit 2>/dev/null)" ] || continue
        mapfile -t found < <(in_wheels "$header")
        [ -n "${found[0]:-}" ] || continue
        echo "$library: from ${found[1]}"
        includes+=" -isystem ${found[0]}"
        arguments+=("-D${name}=$(find "${found[1]}/" -name "lib$library.so*" | sort | head -n 1)")
        case $library in cudnn | nccl) arguments+=("-D${library^^}_INCLUDE=${found[0]}") ;; esac
        mkdir -p "$build/beside" && ln -sf "${found[1]}"/*.so* "$build/beside/"
    done <<'ROWS'
cudnn.h cudnn CUDNN_LIBRARY
nccl.h nccl NCCL_LIBRARY
cublas_v2.h cublas CUDA_cublas_LIBRARY
cublasLt.h cublasLt CUDA_cublasLt_LIBRARY
ROWS
}

# In front of our programs: libraries that nothing else is to find, and no variables that
# `grapevine` would take for misspelt settings.
ours=(env -u GRAPEVINE_DEBS "LD_LIBRARY_PATH=$build/beside${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")

# --- parts -------------------------------------------------------------------------------------------

# PyTorch compiles what it will be measured with, for its cache on disk: while we build, or else when
# `train` begins, unless that has been done. All of it ends before anything is timed.
warm_pytorch() {
    local model batch
    rm -f "$out/warm"
    while read -r model batch _; do
        case $model in lstm) continue ;; esac
        nice "$python" "$here/compare_pytorch_gpu.py" "$model" "$batch" 0.1 --precision bf16 --warm \
            >"$out/warm-$model.log" 2>&1 &
        echo $! >>"$out/warm"
    done < <(train_rows | grep bf16)
}

cool_pytorch() { # cool_pytorch SECONDS: after so many at most
    local pid end=$((SECONDS + $1))
    [ -e "$out/warm" ] || return 0
    while read -r pid; do
        while kill -0 "$pid" 2>/dev/null && [ "$SECONDS" -lt "$end" ]; do sleep 0.5; done
    done <"$out/warm"
    while read -r pid; do
        ! kill -0 "$pid" 2>/dev/null || kill "$pid"
    done <"$out/warm"
    sleep 3
    while read -r pid; do
        ! kill -0 "$pid" 2>/dev/null || kill -KILL "$pid"
    done <"$out/warm"
    rm -f "$out/warm"
    touch "$warmed"
}

# A module that was built elsewhere, if it is of this revision and its libraries are here.
take_module() {
    [ -n "$module" ] || return 1
    cp "$module" "$build/grapevine-cuda.so"
    "${ours[@]}" "$grapevine" doctor >"$out/doctor" 2>&1
    ! grep -qE 'no CUDA module|cannot be opened|another build' "$out/doctor" || { grep cuda "$out/doctor"; return 1; }
}

part_build() {
    local arguments=() includes="" targets architecture
    unpack || return 1
    case " ${parts[*]} " in *" train "*) warm_pytorch ;; esac
    architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    look_beside_python
    if [ -n "${GRAPEVINE_DEBS:-}" ]; then
        includes+=" -isystem $prefix/usr/include -isystem $prefix/usr/include/x86_64-linux-gnu"
        arguments+=(-DCMAKE_PREFIX_PATH="$prefix/usr"
            -DCMAKE_EXE_LINKER_FLAGS="-L$libraries -Wl,--disable-new-dtags,-rpath,$libraries"
            -DCMAKE_MODULE_LINKER_FLAGS="-L$libraries -Wl,--disable-new-dtags,-rpath,$libraries")
    fi
    # Warnings of a compiler that nobody here has seen are no reason not to build.
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGRAPEVINE_WERROR=OFF \
        -DCMAKE_C_FLAGS="$includes" -DCMAKE_CXX_FLAGS="$includes" -DCMAKE_CUDA_FLAGS="$includes" \
        -DCMAKE_CUDA_ARCHITECTURES="${architecture:-90}" "${arguments[@]}" || return 1
    mapfile -t targets < <(ninja -C "$build" -t targets all | grep -oE '^(cuda_[a-z0-9_]+|attention_graph): phony' | cut -d: -f1)
    if [ ${#targets[@]} -eq 0 ]; then
        note "CMake has not found the CUDA toolkit with cuDNN and NCCL, or cmocka"
        return 1
    fi
    cmake --build "$build" --target grapevine || return 1
    if take_module; then
        note "the module is $module"
    else
        [ -z "$module" ] || note "$module does not load here: built anew"
        cmake --build "$build" --target grapevine_cuda || return 1
    fi
    # A file that does not compile costs its own tests only.
    cmake --build "$build" --target "${targets[@]}" -- -k 0
    note "$(programs | wc -l) of ${#targets[@]} test programs, sm_${architecture:-90}"
    [ "$(programs | wc -l)" -eq ${#targets[@]} ]
}

programs() { # the parity suite as built
    find "$build/tests/cuda" -maxdepth 1 -type f -executable \( -name 'cuda_*' -o -name attention_graph \) -printf '%f\n' | sort
}

# run_programs FOLDER SECONDS COMMAND...: each name on standard input, four at a time, all of them in
# so many seconds; a log and an exit code for each in FOLDER, but for those that had no time left.
run_programs() {
    local folder=$1 end=$((SECONDS + $2)) name
    shift 2
    rm -rf "$folder" && mkdir -p "$folder"
    while read -r name; do
        while [ "$(jobs -rp | wc -l)" -ge 4 ]; do wait -n; done
        [ "$SECONDS" -lt $((end - 2)) ] || continue
        (
            cd "$root" || exit 1
            "${ours[@]}" GRAPEVINE_TEST_MODULE="$build/grapevine-cuda.so" timeout -k 2 $((end - SECONDS)) "$@" \
                "$build/tests/cuda/$name" >"$folder/$name.log" 2>&1
            echo $? >"$folder/$name.code"
        ) &
    done
    wait
}

part_parity() {
    local name code ran=0 tests=0 comparisons=0 failed=()
    programs | run_programs "$out/parity" $((limit - 5))
    while read -r name; do
        code=$(cat "$out/parity/$name.code" 2>/dev/null || echo none)
        [ "$code" != none ] || { failed+=("$name (no time)") && continue; }
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
    note "$tool: $clean clean${found[*]:+; found something in: ${found[*]}}${late[*]:+; no time for: ${late[*]}}"
    [ ${#found[@]} -eq 0 ] && [ "$clean" -gt 0 ]
}

# Libraries read and write memory in ways that only they know, so races and reads of memory that
# nobody wrote are looked for where nearly all kernels are ours.
part_sanitizer() {
    local own='attention|codec|layout|loss|norm[a-z_]*|optimizer|pointwise|pool|sequence|snapshot|vector'
    local verdict=0
    command -v compute-sanitizer >/dev/null || { note "compute-sanitizer is not installed"; return 1; }
    sanitize racecheck $((limit / 5)) "$own" --racecheck-report analysis || verdict=1
    sanitize initcheck $((limit / 5)) "$own" || verdict=1
    sanitize memcheck $((limit * 11 / 20)) "$(if_quick "$own" '[a-z_]*')" --leak-check no || verdict=1
    return "$verdict"
}

part_kernels() {
    local precision verdict=0
    for precision in f32 bf16; do
        "${ours[@]}" "$grapevine" bench kernels --device cuda --precision "$precision" --seconds "$(if_quick 4 10)" --json \
            >"$out/kernels-$precision.jsonl" || verdict=1
    done
    note "$(cat "$out"/kernels-*.jsonl | wc -l) rows"
    return "$verdict"
}

# MODEL BATCH PRECISION: what is compared with PyTorch, the most telling first.
train_rows() {
    echo gpt2-small 16 bf16
    echo resnet18 256 bf16
    echo gpt-nano 32 bf16
    [ "$quick" = no ] || return 0
    echo cnn 64 bf16
    echo lstm 32 bf16
    echo mlp 64 bf16
    echo gpt-nano 32 f32
    echo resnet18 256 f32
}

# Seconds that PyTorch gets for a model: compiling takes most of it. What it does not get to in them
# the table names.
patience_of() {
    case $1 in
    gpt2-small) if_quick 60 180 ;;
    resnet18 | gpt-nano) if_quick 40 100 ;;
    *) echo 60 ;;
    esac
}

# Ours before and after PyTorch, so that a card that gets slower as it gets hot shows.
part_train() {
    local model batch precision verdict=0 rows=0 begun=$SECONDS left late=()
    rm -f "$out"/train.jsonl
    [ -e "$warmed" ] || warm_pytorch
    cool_pytorch $((limit / 4))
    while read -r model batch precision; do
        left=$((limit - SECONDS + begun - 20))
        if [ "$left" -lt 20 ]; then
            late+=("$model $precision")
            continue
        fi
        [ "$left" -lt "$(patience_of "$model")" ] || left=$(patience_of "$model")
        for side in ours theirs ours; do
            if [ "$side" = ours ]; then
                "${ours[@]}" "$grapevine" bench train --device cuda --model "$model" --batch "$batch" --precision "$precision" \
                    --seconds "$(if_quick 2 3)" --json
            else
                timeout --preserve-status -k 15 "$left" "$python" "$here/compare_pytorch_gpu.py" "$model" "$batch" \
                    "$(if_quick 1.5 2)" --precision "$precision"
            fi >"$out/row.json" || { verdict=1 && continue; }
            [ -s "$out/row.json" ] || continue
            printf '{"side":"%s",%s\n' "$side" "$(tail -n 1 "$out/row.json" | cut -c2-)" >>"$out/train.jsonl"
            rows=$((rows + 1))
        done
        echo "$model $precision: $rows measurements so far"
    done < <(train_rows)
    note "$rows measurements${late[*]:+; no time for: ${late[*]}}"
    return "$verdict"
}

# rate FILE: steps a second of a peer, and its rounds and steps, between the first report after a
# fifth of its time and its last one; from its --json lines.
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
steps = last["step"] - first["step"]
print(steps / seconds, last["rounds_ok"] - first["rounds_ok"], steps)
PY
}

# peers MODEL DATA BATCH SECONDS PACE: one peer on the GPU for so long; with a PACE other than "none"
# together with one on the processor that only averages: its steps are of one sample, and its rate
# is next to nothing. Both begin rounds by the clock, as the one could not keep up with the other's
# steps.
peers() {
    local data=$2 batch=$3 seconds=$4 pace=$5 form=alone port=$((20000 + RANDOM % 20000)) cpu="" code
    local common=(--model "$1" --data "$data" --shard all --json --report-every 1s --averaging)
    if [ "$pace" = none ]; then
        common+=(none)
    else
        form=together
        common+=(local-sgd --pace "$pace")
        "${ours[@]}" "$grapevine" peer "${common[@]}" --device cpu --threads 1 --batch 1 --lr 1e-9 --time 1h \
            --listen "127.0.0.1:$port" >"$out/peer-cpu.jsonl" 2>"$out/peer-cpu.err" &
        cpu=$!
        common+=(--bootstrap "127.0.0.1:$port")
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            grep -q listening "$out/peer-cpu.jsonl" || sleep 0.3
        done
    fi
    "${ours[@]}" "$grapevine" peer "${common[@]}" --device cuda --precision bf16 --batch "$batch" --lr 1e-4 \
        --time "${seconds}s" --listen 127.0.0.1:0 >"$out/peer-$form.jsonl" 2>"$out/peer-$form.err"
    code=$?
    [ -z "$cpu" ] || { kill -TERM "$cpu" 2>/dev/null && wait "$cpu"; }
    [ "$code" = 0 ] || tail -n 5 "$out/peer-$form.err"
    return "$code"
}

# As often as 100 steps take, ten times a second at most.
part_averaging() {
    local model data batch verdict=0 seconds alone together rounds steps pace
    seconds=$(if_quick 5 8)
    cat "$root"/docs/*.md "$root"/README.md >"$out/text"
    rm -f "$out/averaging.jsonl"
    while read -r model batch data; do
        peers "$model" "$data" "$batch" "$seconds" none || { verdict=1 && continue; }
        read -r alone _ < <(rate "$out/peer-alone.jsonl")
        pace=$(awk -v rate="$alone" 'BEGIN { printf "%.3f", (rate > 1000) ? 0.1 : 100 / rate }')
        peers "$model" "$data" "$batch" "$seconds" "time=${pace}s" || { verdict=1 && continue; }
        read -r together rounds steps < <(rate "$out/peer-together.jsonl")
        printf '{"model":"%s","batch":%s,"pace_s":%s,"alone_steps_per_s":%s,"together_steps_per_s":%s,"rounds":%s,"steps":%s}\n' \
            "$model" "$batch" "$pace" "$alone" "$together" "$rounds" "$steps" >>"$out/averaging.jsonl"
    done < <(
        echo resnet18 256 digits
        echo gpt-nano 32 "text:$out/text"
    )
    note "$(grep -c model "$out/averaging.jsonl" 2>/dev/null) models"
    return "$verdict"
}

# Where the time goes: by layer, as we see it, with what was chosen for convolutions and attention, and
# by kernel where NVIDIA's profiler is installed (and counters are allowed to us).
part_profile() {
    local model batch bench verdict=0
    while read -r model batch; do
        bench=("${ours[@]}" "$grapevine" bench train --device cuda --model "$model" --batch "$batch" --precision bf16)
        "${bench[@]}" --seconds 2 --profile >"$out/profile-$model.txt" 2>&1 || verdict=1
        command -v ncu >/dev/null || continue
        timeout -k 2 $((limit / 3)) ncu --metrics gpu__time_duration.sum --csv --graph-profiling node --launch-skip 3000 \
            --launch-count 2000 "${bench[@]}" --seconds 1 >"$out/profile-$model.csv" 2>&1
    done < <(
        echo gpt2-small 16
        echo resnet18 256
    )
    command -v ncu >/dev/null || note "ncu is not installed: by layer only"
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
    profile) part_profile ;;
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

# What a part needs at least, and takes at most, in seconds.
least_of() {
    case $1 in
    build) echo 100 ;;
    parity | kernels | averaging) echo 40 ;;
    profile) echo 20 ;;
    sanitizer) echo 40 ;;
    train) if_quick 60 180 ;;
    *) echo 0 ;;
    esac
}

most_of() {
    case $1 in
    build) echo 300 ;;
    parity) echo 150 ;;
    sanitizer) if_quick 60 500 ;;
    kernels) if_quick 50 90 ;;
    train) if_quick 150 540 ;;
    averaging) if_quick 45 60 ;;
    profile) if_quick 30 90 ;;
    *) echo 20 ;;
    esac
}

# limit_of PART LATER...: what it gets now.
limit_of() {
    local part=$1 left=$((budget - SECONDS)) most other
    most=$(most_of "$part")
    shift
    for other in "$@"; do
        left=$((left - $(least_of "$other")))
    done
    if [ "$part" = table ] || [ "$most" -lt "$left" ]; then echo "$most"; else echo "$left"; fi
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
for ((i = 0; i < ${#parts[@]}; i++)); do
    part=${parts[i]}
    case $part in kernels | averaging | profile) cool_pytorch 0 ;; esac
    limit=$(limit_of "${parts[@]:i}")
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
cool_pytorch 0
tar -C "$out" --exclude=./gpu-results.tar.gz -czf "$out/gpu-results.tar.gz" . && echo "all of it: $out/gpu-results.tar.gz"
exit "$worst"
