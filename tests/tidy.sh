#!/bin/bash
# tidy: the house rules that a machine can check. Prints each violation as file:line: rule, and
# exits 1 if there was one. Needs no build; `tests/tidy.sh BUILD_FOLDER` also looks for mutable
# globals in the libraries built there. clang-format and shellcheck are used where they are installed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

build=${1:-}
found=$(mktemp)
trap 'rm -f "$found"' EXIT

list() { # tracked and new files that match the patterns
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files -co --exclude-standard -- "$@" | sort -u | while read -r file; do
            [ -f "$file" ] && echo "$file"
        done
    else
        for pattern in "$@"; do find . -path ./build -prune -o -name "${pattern##*/}" -print; done |
            sed 's|^\./||' | sort -u
    fi
}

mapfile -t sources < <(list '*.c' '*.h' '*.cu' '*.cuh' '*.cpp')
mapfile -t texts < <(list '*.c' '*.h' '*.sh' '*.md' '*.txt' '*.json' '*.in' '.clang-*')

# --- one pass over the C files: comments and string bodies are blanked, then lines are judged ------
awk '
function report(rule) { printf "%s:%d: %s\n", FILENAME, FNR, rule }

# Which folders a folder may include; "*" is all.
function may_include(from, to) {
    if (from == to) return 1
    if (index(" " allowed[from] " ", " " to " ")) return 1
    return allowed[from] == "*"
}

# The place of the folder of a file in the order of its module, from 1; 0: the module has none, or
# any folder may include the file (the table of times leans on nothing); -1: the folder has none.
function place_of(path,    module, inner) {
    if (path ~ /\/times[.]h$/) return 0
    module = inner = path
    sub(/\/.*/, "", module)
    if (!(module in order)) return 0
    if (!sub(/^[^\/]*\//, "", inner) || !sub(/\/[^\/]*$/, "", inner)) inner = "."
    return (module, inner) in place ? place[module, inner] : -1
}

function folder_of(path,    parts, n) {
    n = split(path, parts, "/")
    if (parts[1] == "peer" && parts[2] == "env" && n > 2) return "peer/env"
    return n > 1 ? parts[1] : ""
}

BEGIN {
    allowed["base"] = ""
    allowed["kernels"] = "base"
    allowed["replica"] = "base kernels"
    allowed["gossip"] = "base"
    allowed["averaging"] = "base kernels gossip"
    allowed["distill"] = "base kernels replica"
    allowed["peer/env"] = "base gossip"
    allowed["peer"] = "base kernels replica gossip averaging distill peer/env"
    allowed["testnet"] = "base kernels replica gossip averaging distill peer peer/env"
    allowed["include"] = ""
    allowed["library"] = "include base kernels replica gossip averaging peer peer/env"
    allowed["tests"] = "*"

    # The folders of a module, in order: a file may include its own folder and those before it, so
    # that no two folders lean on each other. "." are the files of the module itself.
    order["kernels"] = ". cpu/reference cpu cpu/dense cpu/image cpu/norm cpu/sequence cuda cuda/image cuda/norm cuda/sequence device"
    order["replica"] = "plane optimizer tokenizer data readers model layers formats learners learners/repeat"
    order["gossip"] = "wire secure signed flow overlay door membership reach"
    order["averaging"] = "codec core aggregate rule edge pair group push strategy"
    order["peer"] = "env env/relay env/sim env/uv link download round cli files node node/lane node/rounds node/models node/door node/verify watch/page watch bench session commands ."
    for (module in order) {
        count = split(order[module], folders, " ")
        for (i = 1; i <= count; i++) place[module, folders[i]] = i
    }
    # What may include later folders, and why.
    excused["kernels/cpu/backend.c"] = "the table of operations names those of all folders"

    # Third-party headers: where each may be included (a regular expression over paths).
    home["uv.h"] = "^peer/env/uv/"
    home["intel-ipsec-mb.h"] = "^gossip/secure/aes_gcm[.]c$"
    home["sodium.h"] = "^(gossip/secure/[a-z_]*|base/hash)[.]c$"
    home["msgpack.h"] = "^gossip/wire/[a-z_]*[.]c$"
    home["jansson.h"] = "^base/json[.]c$"
    home["png.h"] = "^replica/readers/image_file[.]c$"
    home["pcre2.h"] = "^replica/tokenizer/pattern[.]c$"
    home["zlib.h"] = "^replica/readers/stream[.]c$"
    home["ini.h"] = "^peer/cli/options_file[.]c$"
    home["microhttpd.h"] = "^peer/watch/http[.]c$"
    home["cblas.h"] = "^kernels/cpu/"
    home["openblas_config.h"] = "^kernels/cpu/"
    home["omp.h"] = "^kernels/cpu/"
    home["dlfcn.h"] = "^(kernels/device/device[.]c|kernels/cuda/all_reduce[.]c|peer/watch/http[.]c|tests/)"
    count = split("cuda_runtime.h cuda_runtime_api.h cuda_bf16.h cuda_fp16.h cublas_v2.h cublasLt.h cudnn.h nccl.h", cuda, " ")
    for (i = 1; i <= count; i++) home[cuda[i]] = "^kernels/cuda/"
    home["cmocka.h"] = "^tests/check[.]h$"

    FILES_MOST = 25
    chance = "(time|clock|clock_gettime|gettimeofday|rand|srand|random|srandom|drand48|getrandom|getentropy|sleep|usleep|nanosleep)"
    heap = "(malloc|calloc|realloc|reallocarray|free|strdup|strndup|asprintf|vasprintf|getline|open_memstream|aligned_alloc|posix_memalign)"
    unbounded = "(strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atof|tmpnam|mktemp)"
    threads = "(pthread_[a-z_]*|thrd_[a-z_]*|mtx_[a-z_]*|uv_thread_[a-z_]*|uv_mutex_[a-z_]*|uv_cond_[a-z_]*)"
}

FNR == 1 {
    if (previous != "" && lines > 700 && previous !~ /_values[.]c$/)
        printf "%s:%d: file is longer than 700 lines; split it\n", previous, lines
    previous = FILENAME
    folder = folder_of(FILENAME)
    folder_place = place_of(FILENAME)
    module = FILENAME
    sub(/\/.*/, "", module)
    if (folder_place > 0 && ++files[module, folder_place] == FILES_MOST + 1)
        printf "%s:1: more than %d files are in its folder; make two of it\n", FILENAME, FILES_MOST
    is_test = folder == "tests" || folder == "docs" # docs/run_model.c stands alone
    is_outside = FILENAME ~ /^peer\/env\/uv\//
    is_data = FILENAME ~ /_values[.]c$/
    in_comment = 0
    depth = 0
    body = 0
    if ($0 !~ /^\/\*/) report("begins without a comment that says what it is for")
}

{
    lines = FNR
    raw = $0
    if (length(raw) > 100 && !is_data) report("line is longer than 100 columns")
    if (raw ~ /[ \t]$/) report("blank at the end of the line")
    if (raw ~ /\t/) report("tab")
    if (raw ~ /\/\/ / && !in_comment && raw !~ /["*]/) report("comment of the // kind; use /* */")

    code = ""
    n = length(raw)
    quote = ""
    if (!in_comment && raw !~ /["\047]|[\/][*]/) { # nothing to blank: as it is, which is most of them
        code = raw
        n = 0
    }
    for (i = 1; i <= n; i++) {
        c = substr(raw, i, 1)
        if (in_comment) {
            if (c == "*" && substr(raw, i + 1, 1) == "/") { in_comment = 0; i++ }
        } else if (quote != "") {
            if (c == "\\") i++
            else if (c == quote) { quote = ""; code = code c }
        } else if (c == "/" && substr(raw, i + 1, 1) == "*") {
            in_comment = 1
            i++
        } else if (c == "\"" || c == "\047") {
            quote = c
            code = code c
        } else code = code c
    }
}

raw ~ /^#include "/ {
    split(raw, word, "\"")
    to = folder_of(word[2])
    if (to == "" && word[2] != "version.h") report("include \"" word[2] "\" is not written from the root")
    else if (to != "" && FILENAME != "peer/main.c" && !may_include(folder, to))
        report("layering: " folder " may not include " word[2])
    else if (folder_place < 0)
        report("layering: this folder has no place in the order of its module (tests/tidy.sh)")
    else if (folder_place > 0 && index(word[2], module "/") == 1 && place_of(word[2]) > folder_place && !(FILENAME in excused))
        report("layering: its folder comes before that of " word[2])
    else if (folder == "averaging" && to == "gossip" && word[2] !~ /^gossip\/(door\/score|flow\/outbox|overlay\/(topology|matching)|wire\/(messages|limits))[.]h$/)
        report("layering: averaging uses only the plain headers of gossip")
    else if (folder == "averaging" && to == "kernels" && word[2] !~ /^kernels\/(vec|backend|codec)[.]h$/)
        report("layering: averaging uses only the contract of kernels")
}

raw ~ /^#include </ {
    split(raw, word, /[<>]/)
    header = word[2]
    if (header ~ /dnnl/) header = "cblas.h"
    if (header ~ /^msgpack/) header = "msgpack.h"
    if (header ~ /^microhttpd/) header = "microhttpd.h"
    if (header in home && FILENAME !~ home[header] && !(is_test && header != "cmocka.h"))
        report("<" word[2] "> has its home elsewhere (" home[header] ")")
}

code ~ /[a-z]/ && raw !~ /^#/ {
    before = "(^|[^A-Za-z0-9_>.])"
    if (code ~ /memset[(][^,]*(seed|secret|[._>]key|exporter|of_initiator|of_responder)[^,]*, 0,/ && !is_test)
        report("the compiler leaves such a memset() out; secrets are wiped by mem_wipe()")
    if (code ~ before chance "[(]" && !is_outside)
        report("calls for time or chance belong to peer/env/uv")
    if (code ~ before heap "[(]" && !is_test && FILENAME != "base/mem.c")
        report("heap: use mem_* of base/mem.h")
    if (code ~ before unbounded "[(]" && !is_test) report("unbounded or unsafe call")
    if (code ~ before threads "[(]" && !is_outside && !is_test && FILENAME !~ /^(library\/.*|replica\/(data\/prefetch|learners\/workers)[.]c)$/)
        report("threads live in library, peer/env/uv, replica/data/prefetch.c and replica/learners/workers.c")
    if (code ~ /^[ ]*typedef (struct|enum|union)/ && code !~ /[(][*]/ && FILENAME !~ /^(include|tests\/onednn_v3\/oneapi)\//) report("typedef of a struct, enum or union")
    if (code ~ before "assert[(]" && !is_test) report("use CHECK of base/check.h")
    # Mutable globals and changing local statics.
    if (code ~ /^[ ]*static / && code !~ /const|_Thread_local/ && code !~ /^[^=;]*[(]/ && code !~ /__device__/ && !is_test &&
        FILENAME !~ /^base\/(mem|crash_point|cpu)[.]c$/ && code !~ /sig_atomic_t/) # what they count is the process'"'"'s
        report("mutable static")
    if (depth == 0 && !body && code ~ /^[a-z][a-z0-9_ *]*[ *][a-z0-9_]+([[][^]]*[]])* *(=|;)/ &&
        code !~ /^(static|extern|typedef|const|struct [a-z0-9_]+;|enum [a-z0-9_]+;|union [a-z0-9_]+;)/ && code !~ /const/ && !is_test &&
        FILENAME != "base/cpu.c")
        report("mutable global")
}
raw ~ /^#define [A-Z_]+_(NS|MS) .*NS_PER_/ && FILENAME ~ /^(gossip|peer)\// && FILENAME !~ /\/times[.]h$/ && raw !~ /_RATE/ {
    report("time constants of a module stand in its times.h, with their reason")
}
raw ~ /^#[ ]*pragma omp/ && FILENAME != "kernels/cpu/split.c" { report("no pragma omp but in kernels/cpu/split.c") }
FILENAME ~ /^kernels\/cuda\// && raw ~ /__CUDA_ARCH__/ {
    report("kernels are the same for all GPUs (tests/run.sh may compile for one kind only)")
}

# Function bodies are what stands between braces in the first column.
{
    if (raw ~ /^{/) body = FNR
    if (raw ~ /^}/ && body) {
        if (FNR - body + 1 > 80) report("function of " (FNR - body + 1) " lines; 80 at most")
        body = 0
    }
    opened = gsub(/{/, "{", code)
    closed = gsub(/}/, "}", code)
    depth += opened - closed
}

END {
    if (lines > 700 && previous !~ /_values[.]c$/)
        printf "%s:%d: file is longer than 700 lines; split it\n", previous, lines
}
' "${sources[@]}" >>"$found"

# --- any text ------------------------------------------------------------------------------------
unfinished='TO''DO|FIX''ME|XX''X'
grep -nE "(^|[^A-Za-z])($unfinished)([^A-Za-z]|$)" "${texts[@]}" /dev/null |
    sed -E 's/^([^:]*:[0-9]+):.*/\1: unfinished; do it or open an issue/' >>"$found"
places='/wo''rk/|/ho''me/|/ro''ot/|/Us''ers/|[.]libr''ary'
grep -nE "(^|[^A-Za-z0-9_.])($places)" "${texts[@]}" /dev/null |
    sed -E 's/^([^:]*:[0-9]+):.*/\1: path of one machine/' >>"$found"

# --- crash points: each row of base/crash_point.h is passed in one place --------------------------
{
    sed -nE 's/^    X\(([A-Z_]+), "[a-z:-]+"\).*/\1/p' base/crash_point.h
    printf '%s\n' "${sources[@]}" | grep -v '^tests/' | xargs cat | grep -oE '\<CRASH_[A-Z_]+' | sed 's/^CRASH_/=/'
} | awk '
    /^=/ { passed[substr($0, 2)]++; next }
    { rows[$0] }
    END { for (row in rows) if (passed[row] != 1)
        printf "base/crash_point.h:1: crash point %s is passed in %d places, not 1\n", row, passed[row] }
' >>"$found"

# --- mutable globals, in what was built ------------------------------------------------------------
if [ -n "$build" ]; then
    for library in "$build"/libgv_*.a; do
        objdump -t "$library" 2>/dev/null | awk -v library="${library##*/}" '
            /file format/ { object = $1; sub(/:$/, "", object) }
            object !~ /^(mem|crash_point|cpu)[.]c[.]o$/ && $0 ~ / O [.](data|bss)([.][^r][^ ]*)?\t/ && $NF !~ /^[._]*(asan|tsan|ubsan|odr)/ {
                printf "%s(%s):1: mutable global %s\n", library, object, $NF }'
    done >>"$found"
fi

# --- form ----------------------------------------------------------------------------------------
formatter=$(command -v clang-format-14 || command -v clang-format || true)
if [ -n "$formatter" ]; then
    printf '%s\n' "${sources[@]}" | grep -v '_values[.]c$' | xargs -r "$formatter" --dry-run 2>&1 |
        grep -oE '^[^:]+:[0-9]+:[0-9]+: (warning|error): code should be' |
        sed -E 's/^([^:]+):([0-9]+):.*/\1:\2: form; run clang-format -i \1/' | sort -t: -k1,1 -u >>"$found"
else
    echo "tidy: clang-format is not installed, so form was not checked" >&2
fi
mapfile -t scripts < <(list '*.sh'; list '.ci/run')
for script in "${scripts[@]}"; do
    bash -n "$script" 2>/dev/null || echo "$script:1: not valid bash" >>"$found"
done
if command -v shellcheck >/dev/null; then
    shellcheck -x -s bash -e SC2034,SC1083 -S warning -f gcc "${scripts[@]}" 2>/dev/null | sed -E 's/^([^:]+:[0-9]+):[0-9]+: /\1: /' >>"$found"
fi

if [ -s "$found" ]; then
    sort -t: -k1,1 -k2,2n "$found"
    echo "tidy: $(wc -l <"$found") violations in $(cut -d: -f1 "$found" | sort -u | wc -l) files"
    exit 1
fi
echo "tidy: ${#sources[@]} C files and ${#scripts[@]} scripts are in order"
