#!/bin/bash
# node_module: prints the folder of node modules that has MODULE, for NODE_PATH. Where there is none
# it is fetched from npm into build/node/MODULE; if that cannot be, says why and exits with 77.
#   tests/node_module.sh MODULE VERSION
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
module=$1 version=$2
kept=$PWD/build/node/$module/node_modules

works() { # works FOLDER
    NODE_PATH=$1 timeout 20 node -e "require('$module')" >/dev/null 2>&1
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
            "$module@$version" >/dev/null 2>&1)
    if works "$kept"; then
        echo "$kept"
        exit 0
    fi
fi
echo "$module is not installed and cannot be fetched from npm"
exit 77
