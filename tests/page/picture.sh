#!/usr/bin/env bash
# picture: makes docs/images/live.png, the page of a peer in a running swarm of seven on Fashion-MNIST,
# one of which was killed on the way. Needs Chromium and npm.
#   tests/page/picture.sh GRAPEVINE
source "$(dirname "$0")/../e2e/lib.sh"
here=$(realpath "$(dirname "$0")")

CHROMIUM=$(command -v chromium || command -v google-chrome) || fail "Chromium is not installed"
modules=$(bash "$here/../node_module.sh" puppeteer-core 24.43.1) || fail "$modules"
common=(--data fashion-mnist --model mlp --steps 30000 --threads 1 --averaging local-sgd:H=64)
start_peer a "${common[@]}" --http 0
http=$(sed -n 's|^status page: \(http://.*/\)$|\1|p' "$WORK/a.err")
for name in b c d e f g; do start_peer $name "${common[@]}" --bootstrap "${PEER_ADDRESS[a]}"; done
sleep 45
kill_peer g
sleep 25
mkdir -p "$WORK/pictures" "$here/../../docs/images"
CHROMIUM=$CHROMIUM NODE_PATH=$modules node "$here/check.js" "$http" "$WORK/pictures" || fail "the page"
cp "$WORK/pictures/live-light-1280.png" "$here/../../docs/images/live.png"
