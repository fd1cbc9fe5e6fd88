#!/usr/bin/env bash
# Trains the PyTorch twins again and compares with the golden numbers kept in tests/parity/golden.
# Exit 77 where there is no python3-torch. `run.sh --write` makes the kept ones anew.
set -euo pipefail
cd "$(dirname "$0")"
python=/usr/bin/python3

if ! $python -c 'import numpy, torch' 2>/dev/null; then
    echo "SKIP: python3-torch and python3-numpy are not installed"
    exit 77
fi
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
if [ "${1:-}" = --write ]; then
    shift
    mkdir -p golden
    exec $python make_golden.py golden "$@"
fi
exec $python make_golden.py --check golden "$@"
