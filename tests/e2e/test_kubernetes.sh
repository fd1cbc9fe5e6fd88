#!/usr/bin/env bash
# deploy/kubernetes: its names belong together, and its peers, started with the arguments of the manifest as they stand, do what
# it promises: the first waits for names that are not there yet and answers the probe meanwhile, the others find it, all of them
# meet in rounds, and one that is told to leave leaves cleanly and comes back by its folder. There is no cluster: each pod is a
# process with an address of its own in a network and mount namespace, and its name comes into the hosts file when it does.
if [ -z "${PODS_ALONE:-}" ]; then
    PODS_ALONE=1 unshare -n -m true 2>/dev/null || { echo "skipped: namespaces are not permitted"; exit 77; }
    PODS_ALONE=1 exec unshare -n -m bash "$0" "$@"
fi
/usr/bin/python3 -c 'import yaml' 2>/dev/null || { echo "skipped: python3-yaml is not installed"; exit 77; }
source "$(dirname "$0")/lib.sh"
root=$(realpath "$(dirname "$0")/../..")
manifests=$root/tests/deploy/manifests.py
"$manifests" "$root"/deploy/kubernetes/*.yaml || fail "deploy/kubernetes"

ip link set lo up || fail "no loopback"
echo "127.0.0.1 localhost" >"$WORK/hosts"
echo "hosts: files" >"$WORK/nsswitch.conf"
for file in hosts nsswitch.conf; do
    mount --bind "$WORK/$file" "/etc/$file" || { echo "skipped: /etc/$file cannot be replaced here"; exit 77; }
done
mkdir -p "$WORK/data"
"$GRAPEVINE" keygen --swarm-key --out "$WORK/swarm.key" >/dev/null || fail "keygen"

# pod INDEX: the container's arguments, at an address and in folders that stand for the pod's own.
pod() {
    local words ip=127.0.1.1$1
    mapfile -t words < <("$manifests" --args "$root/deploy/kubernetes/job.yaml" "$1")
    words=("${words[@]//0.0.0.0:/$ip:}")
    words=("${words[@]//=\/etc\/grapevine\//=$WORK/}")
    words=("${words[@]//=\/data\//=$WORK/data/}")
    words=("${words[@]/#--epochs=*/--time=1h}") # as long as the test looks
    start_process "$1" "$GRAPEVINE" "${words[@]}" --json --report-every 200ms
}
probe() { # probe INDEX: what the kubelet asks, by the pod's address
    exec {web}<>"/dev/tcp/127.0.1.1$1/8080" || return 1
    printf 'GET /status.json HTTP/1.1\r\nHost: 127.0.1.1%s:8080\r\nConnection: close\r\n\r\n' "$1" >&$web
    ANSWER=$(timeout 60 cat <&$web)
    exec {web}>&-
    [[ $ANSWER == "HTTP/1.1 200 "* ]]
}

pod 0
wait_line 0 '"listening"' 120
probe 0 || fail "a peer that waits does not answer the probe: ${ANSWER:-}"
echo "127.0.1.10 grapevine-0.grapevine" >>"$WORK/hosts"
for index in 1 2 3; do
    pod "$index"
    echo "127.0.1.1$index grapevine-$index.grapevine" >>"$WORK/hosts"
done
for index in 0 1 2 3; do
    wait_line "$index" '"rounds_ok":[1-9]' 180
    probe "$index" || fail "pod $index does not answer the probe"
done
stop_peer 3 || fail "pod 3 did not leave cleanly"
pod 3
wait_line 3 '"rounds_ok":[1-9]' 180
grep -q "^resuming from" "$WORK/3.err" || fail "pod 3 began anew"
for index in 0 1 2 3; do stop_peer "$index" || fail "pod $index did not end cleanly"; done
echo "the manifests' peers meet, answer and come back"
