#!/usr/bin/env bash
# The live page of a peer in a real browser: curves, links, rounds and members are drawn, it fits wide
# and narrow screens, and what a hostile swarm says stays text (tests/page/check.js). With PICTURES=DIR
# pictures of it are kept there.
source "$(dirname "$0")/lib.sh"
here=$(realpath "$(dirname "$0")/..")

CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$CHROMIUM" ]; then
    echo "Chromium is not installed"
    exit 77
fi
if ! modules=$(bash "$here/node_module.sh" puppeteer-core 24.43.1); then
    echo "$modules"
    exit 77
fi
common=(--data digits --model mlp --time 1h --threads 1 --averaging local-sgd:H=64)
start_peer a "${common[@]}" --http 0
http=$(sed -n 's|^status page: \(http://.*/\)$|\1|p' "$WORK/a.err")
for name in b c d; do start_peer $name "${common[@]}" --bootstrap "${PEER_ADDRESS[a]}"; done
wait_line a '"rounds_ok":[1-9]' 180
CHROMIUM=$CHROMIUM NODE_PATH=$modules timeout 500 node "$here/page/check.js" "$http" ${PICTURES:+"$PICTURES"} ||
    fail "the page"
echo "the page was looked at"
