#!/usr/bin/env bash
# deploy/prometheus and deploy/grafana: the rules are sound and fire as their own tests say; a Prometheus that runs by the
# configuration as it stands, but for addresses and how often, has of two peers what they say; every metric that an alert or a
# panel names is one that they have, and every panel shows something.
source "$(dirname "$0")/lib.sh"
for tool in promtool prometheus; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed (apt-get install prometheus)"; exit 77; }
done
root=$(realpath "$(dirname "$0")/../..")
cp "$root"/deploy/prometheus/*.yml "$WORK"
promtool check config "$WORK/prometheus.yml" >"$WORK/check" 2>&1 || fail "prometheus.yml: $(cat "$WORK/check")"
promtool test rules "$WORK/alerts_test.yml" >"$WORK/rules" 2>&1 || fail "alerts_test.yml: $(cat "$WORK/rules")"

web=()
common=(--data digits --model mlp --time 1h --step-time 5ms --averaging local-sgd:H=64 --batch 8 --http 0 --swarm-name watching)
start_peer a "${common[@]}" --out "$WORK/a"
start_peer b "${common[@]}" --out "$WORK/b" --bootstrap "${PEER_ADDRESS[a]}"
for name in a b; do
    web+=("$(sed -n 's|^status page: http://\(.*\)/$|\1|p' "$WORK/$name.err")")
    wait_line "$name" '"rounds_ok":[2-9]' 180
    wait_line "$name" '"consensus_distance":[0-9]' 180
done

# Its own port is free when it begins; somebody else may take it between, then another is tried.
sed -i "s/'127.0.0.1:8080'/'${web[0]}', '${web[1]}'/; s/scrape_interval: 10s/scrape_interval: 1s/; s/evaluation_interval: 30s/evaluation_interval: 1s/" "$WORK/prometheus.yml"
for _ in 1 2 3 4 5; do
    port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    start_process prometheus prometheus --config.file="$WORK/prometheus.yml" --storage.tsdb.path="$WORK/tsdb" --web.listen-address="127.0.0.1:$port"
    end=$((SECONDS + 60))
    until grep -q "ready to receive web requests" "$WORK/prometheus.err"; do
        ((SECONDS < end)) && kill -0 "${PEER_PID[prometheus]}" 2>/dev/null || continue 2
        sleep 0.1
    done
    break
done
# Rates need two looks at each peer.
end=$((SECONDS + 120))
until "$root/tests/deploy/watching.py" "127.0.0.1:$port" "${web[@]}" >"$WORK/watching" 2>&1; do
    ((SECONDS < end)) || fail "$(tail -n 3 "$WORK/watching")"
    sleep 0.5
done
cat "$WORK/watching"
for name in a b; do stop_peer "$name" || fail "peer $name did not end cleanly"; done
