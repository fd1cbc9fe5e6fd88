#!/bin/bash
# runtime: makes runtime.js, what runs an ONNX model in a browser: onnxruntime-web (MIT) of one version,
# from npm, its WebAssembly gzipped and in base64 so that a page of it needs no server. It is 5 MB and
# therefore not in the source tree. `grapevine export --to page` finds it where this puts it, and where
# `cmake --install` does. If it cannot be had, says why and exits with 77.
#   peer/watch/page/runtime.sh [FILE]      default: build/web/runtime.js
set -euo pipefail
file=$(realpath -m "${1:-$(dirname "$0")/../../../build/web/runtime.js}")
cd "$(dirname "$0")/../../.."
version=1.30.0
sums='faece07e84faa9001f5104bbe4e5c70861d06cb2376a0dea1fa0ad33a67adc81  ort.wasm.min.js
e13f7f94fc51b4ca72b12faeb1ee95f4ace6dfbc8939bc718aabdc0a27c4299b  ort-wasm-simd-threaded.mjs
3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2  ort-wasm-simd-threaded.wasm'
head="/* runtime.js of a grapevine page: onnxruntime-web $version, MIT, Copyright (c) Microsoft Corporation;
   https://github.com/microsoft/onnxruntime */"

if [ -f "$file" ] && [ "$(head -n 2 "$file")" = "$head" ]; then
    exit 0
fi
modules=$(bash tests/node_module.sh onnxruntime-web "$version") || {
    echo "$modules"
    exit 77
}
dist=$modules/onnxruntime-web/dist
if ! (cd "$dist" && sha256sum --quiet -c <<<"$sums") >&2; then
    echo "onnxruntime-web in $modules is not version $version as it was published"
    exit 77
fi
mkdir -p "$(dirname "$file")"
part=$(mktemp "$file.XXXXXX")
trap 'rm -f "$part"' EXIT
{
    echo "$head"
    sed '/^\/\/# sourceMappingURL=/d' "$dist/ort.wasm.min.js"
    printf '\nconst RUNTIME = {version: "%s",\nglue: "%s",\nwasm: "%s"};\n' "$version" \
        "$(base64 -w 0 "$dist/ort-wasm-simd-threaded.mjs")" "$(gzip -9 -n -c "$dist/ort-wasm-simd-threaded.wasm" | base64 -w 0)"
} >"$part"
chmod 644 "$part"
mv "$part" "$file"
