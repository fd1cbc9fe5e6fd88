#!/bin/bash
# The Python package with the library that was built beside the program: its own tests (tests/python).
LIBGRAPEVINE=$(dirname "$(realpath "$1")")/libgrapevine.so
export LIBGRAPEVINE PYTHONDONTWRITEBYTECODE=1 OMP_WAIT_POLICY=PASSIVE
python=/usr/bin/python3
here=$(realpath "$(dirname "$0")/../python")
$python -c 'import numpy' 2>/dev/null || {
    echo "SKIP: python3-numpy is not installed"
    exit 77
}
[ -e "$LIBGRAPEVINE" ] || {
    echo "FAILED: no $LIBGRAPEVINE: build the target grapevine_shared" >&2
    exit 1
}
cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
$python "$here/test_binding.py" && $python "$here/test_callbacks.py"
