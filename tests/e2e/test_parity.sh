#!/bin/bash
# The golden numbers of the parity test are what PyTorch gives today (skipped where it is not
# installed); tests/contract/test_parity.c compares ours with them everywhere.
exec "$(dirname "$0")/../parity/run.sh"
