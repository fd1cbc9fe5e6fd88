#!/bin/bash
# runtime: prints the folder of node modules that has onnxruntime-node, for NODE_PATH. Where there is
# none it is fetched from npm into build/onnxruntime; if that cannot be, says why and exits with 77.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
kept=$PWD/build/onnxruntime/node_modules
version=1.14.0 # its package brings the library along; later ones fetch it from elsewhere

works() { # works FOLDER
    NODE_PATH=$1 timeout 20 node -e 'require("onnxruntime-node")' >/dev/null 2>&1
}

if ! command -v node >/dev/null; then
    echo "node is not installed"
    exit 77
fi
for folder in "${NODE_PATH:-}" "$kept"; do
    if [ -n "$folder" ] && works "$folder"; then
        echo "$folder"
        exit 0
    fi
done
if command -v npm >/dev/null; then
    mkdir -p "${kept%/*}"
    (cd "${kept%/*}" && echo '{"private":true}' >package.json &&
        timeout 100 npm install --silent --no-audit --no-fund --ignore-scripts \
            "onnxruntime-node@$version" >/dev/null 2>&1)
    if works "$kept"; then
        echo "$kept"
        exit 0
    fi
fi
echo "onnxruntime-node is not installed and cannot be fetched from npm"
exit 77
