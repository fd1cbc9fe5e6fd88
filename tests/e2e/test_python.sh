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
# A library of the asan build needs that runtime before all else of the process. What the interpreter leaves behind at its end is
# not ours, and torch was not built for this: the short form is without.
if readelf -d "$LIBGRAPEVINE" | grep -q 'NEEDED.*libasan'; then
    LD_PRELOAD=$(cc -print-file-name=libasan.so)
    export LD_PRELOAD ASAN_OPTIONS=detect_leaks=0 WITHOUT_TORCH=1
    $python -c 'import numpy' 2>/dev/null || {
        echo "SKIP: the interpreter does not run with AddressSanitizer's runtime before it"
        exit 77
    }
fi
cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
$python "$here/test_binding.py" && { [ -n "${WITHOUT_TORCH:-}" ] || $python "$here/test_callbacks.py"; }
