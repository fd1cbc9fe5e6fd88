#!/bin/bash
# ping_under_bulk: round trips of control messages while bulk saturates a line of 100 Mbit/s and 40 ms,
# without loss and at 0.5 % each way. Needs root: network namespaces and TUN devices.
#   tests/bench/ping_under_bulk.sh [BUILD_FOLDER]
#   SECONDS_EACH=20
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build/release}
[ "$(id -u)" = 0 ] || { echo "ping_under_bulk.sh: it makes network namespaces: run it as root" >&2; exit 2; }
[ -e "$build/build.ninja" ] || { echo "ping_under_bulk.sh: no build in $build: cmake --preset release first" >&2; exit 2; }
cmake --build "$build" --target ping_under_bulk >/dev/null
for loss in 0 0.5; do
    echo "== 100 Mbit/s, 40 ms, $loss % loss each way, $(cat /proc/sys/net/ipv4/tcp_congestion_control), load $(cut -d' ' -f1 /proc/loadavg)"
    "$build/tests/ping_under_bulk" "${SECONDS_EACH:-20}" "$loss"
done
