#!/bin/bash
# Examples of python/examples as they stand, each by two members: the small GPT of PyTorch learns a text with outer steps, and
# arrays of NumPy come to what neither member knows alone. fashion_mnist.py is test_python_swarm's, callbacks.py test_python's.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
root=$(realpath "$(dirname "$0")/../..")
python=/usr/bin/python3
$python -c 'import torch, numpy' 2>/dev/null || skip "skipped: python3-torch or python3-numpy is not installed"
# A network of its own, where the port that the examples name is nobody else's.
if [ -z "${EXAMPLES_ALONE:-}" ]; then
    EXAMPLES_ALONE=1 unshare -n true 2>/dev/null || skip "skipped: network namespaces are not permitted"
    EXAMPLES_ALONE=1 exec unshare -n bash "$0" "$@"
fi
ip link set lo up || skip "skipped: the network of its own has no loopback"
begin "$1"
LIBGRAPEVINE=$(dirname "$gv")/libgrapevine.so
export LIBGRAPEVINE PYTHONPATH=$root/python PYTHONDONTWRITEBYTECODE=1
[ -e "$LIBGRAPEVINE" ] || bad "no $LIBGRAPEVINE: build the target grapevine_shared"
cp /usr/share/common-licenses/GPL-3 book.txt

both() { # both EXAMPLE WORDS-OF-THE-FIRST WORDS-OF-THE-SECOND: what they said is in EXAMPLE.1 and EXAMPLE.2
    local name=$1 i members=()
    $python "$root/python/examples/$name.py" $2 --listen 127.0.0.1:7077 --start-with 2 >"$name.1" 2>"$name.1.err" </dev/null &
    members+=("$!")
    $python "$root/python/examples/$name.py" $3 --bootstrap 127.0.0.1:7077 --listen 127.0.0.1:0 --start-with 2 >"$name.2" 2>"$name.2.err" </dev/null &
    members+=("$!")
    pids+=("${members[@]}")
    for i in 0 1; do
        checks=$((checks + 1))
        wait "${members[i]}" || bad "$name ended with $?: $(tail -n 2 "$name.$((i + 1)).err")"
    done
    head "$name".[12]
}

both gpt_text 'book.txt 60' 'book.txt 60'
both numpy_average 0 1
for i in 1 2; do # losses are of the last small batch: 5.5 is what a guess has
    checks=$((checks + 2))
    awk '/^loss/ && $2 > 5 && $4 < 4.2 && $6 >= 1 { ok = 1 } END { exit !ok }' "gpt_text.$i" || bad "the GPT of member $i has not learned"
    awk '/^error/ && $2 < 0.2 && $4 >= 10 { ok = 1 } END { exit !ok }' "numpy_average.$i" || bad "member $i knows its own inputs only"
done
finish
