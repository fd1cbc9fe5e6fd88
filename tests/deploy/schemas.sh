#!/bin/bash
# schemas: deploy/kubernetes against Kubernetes' published schemas, from npm. Not part of the gate: it fetches 56 MB.
#   tests/deploy/schemas.sh       needs node and an npm registry; keeps what it fetched in build/schemas
set -euo pipefail
cd "$(dirname "$0")/../.."
fail() {
    echo "FAILED: $*" >&2
    exit 1
}
command -v npm >/dev/null || fail "npm is not installed"
mkdir -p build/schemas
(cd build/schemas && { [ -e package.json ] || npm init -y >/dev/null; } &&
    npm install --ignore-scripts --no-audit --no-fund --silent kubernetes-models@4.5.1 yaml@2 typescript@5) || fail "npm install"
export NODE_PATH=$PWD/build/schemas/node_modules
check() { # check MANIFEST...
    node tests/deploy/schemas.js build/schemas/objects.ts "$@" &&
        (cd build/schemas && node node_modules/typescript/bin/tsc --noEmit --strict --skipLibCheck --module nodenext --moduleResolution nodenext objects.ts)
}
check deploy/kubernetes/*.yaml || fail "the manifests are not what Kubernetes publishes"
# What must be noticed: a value of the wrong kind, one that no list has, a field that is not there.
for spoil in 's/completions: 4/completions: four/' 's/- action: Ignore/- action: Ignored/' 's/readOnlyRootFilesystem:/readOnlyRoot:/'; do
    sed "$spoil" deploy/kubernetes/job.yaml >build/schemas/spoiled.yaml
    if check build/schemas/spoiled.yaml >/dev/null 2>&1; then fail "not noticed: $spoil"; fi
done
echo "the manifests are as Kubernetes' schemas say"
