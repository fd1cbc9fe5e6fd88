#!/bin/bash
# The page of a model: what cannot be a page is refused by one line and leaves nothing; its folder has what it
# needs and nothing of where data lie; in headless Chromium, from a server and from the disk, it says of
# drawings and images what predict says (tests/page/classify.js). With PICTURES=DIR pictures of it are kept there,
# and in DIR/colour.
here=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/e2e/helpers.sh
. "$here/e2e/helpers.sh"
begin "$1"

train() { # train NAME WORD...
    local name=$1
    shift
    accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --out "$name" "$@"
}
train digits --steps 300 --model 'conv3x3:8 relu maxpool2 linear:32 relu linear:classes'
# Colour, not square, and dark ink on bright ground: class k of four has its brightest quarter darkened.
mkdir own && /usr/bin/python3 - 2>/dev/null <<'EOP' || skip "python3-numpy is not installed"
import numpy
draw = numpy.random.default_rng(1)
labels = numpy.arange(400) % 4
images = draw.integers(180, 256, (400, 3, 12, 10), dtype=numpy.uint8)
for image, label in zip(images, labels):
    top, left = label // 2 * 6, label % 2 * 5
    image[:, top:top + 6, left:left + 5] //= 3
numpy.save("own/x.npy", images)
numpy.save("own/y.npy", labels.astype(numpy.uint8))
EOP
train colour --steps 60 --data npy:own/x.npy,own/y.npy --model 'conv3x3:4 relu linear:classes' --batch 32

# What cannot be.
for i in $(seq 40); do echo "the vine grows, $i"; done >text.txt
{ echo x,y; for i in $(seq 50); do echo "$((i % 7)),$((i % 2))"; done; } >rows.csv
train text --steps 2 --data text:text.txt,context=8 --model 'embed:8 lstm:8 linear:classes'
train rows --steps 2 --data csv:rows.csv,label=y --model linear:classes
train real --steps 2 --data csv:rows.csv,target=y --model linear:classes --optimizer sgd:lr=0.01
train local --steps 2 --model 'local3x3:2 relu linear:classes'
m=digits/model.safetensors
echo 'const RUNTIME = 1;' >other.js
echo '/* runtime.js of a grapevine page: none */ const RUNTIME = 1;' >runtime.js
refused 1 'page of text: it reads text; a page classifies images' "$gv" export text/model.safetensors --to page --out page --runtime runtime.js
refused 1 'page of rows: it reads rows of numbers' "$gv" export rows/model.safetensors --to page --out page --runtime runtime.js
refused 1 'page of real: it predicts' "$gv" export real/model.safetensors --to page --out page --runtime runtime.js
refused 1 "layer 'local3x3:2' \(local1\) to ONNX" "$gv" export local/model.safetensors --to page --out page --runtime runtime.js
refused 1 'nothing\.js' "$gv" export $m --to page --out page --runtime nothing.js
refused 1 'other\.js: it is not what' "$gv" export $m --to page --out page --runtime other.js
refused 2 '--labels: the model knows 10 classes' "$gv" export $m --to page --out page --runtime runtime.js --labels a,b
refused 1 '--data npy:own/x.npy,own/y.npy: these are not the 1x8x8 images' "$gv" export $m --to page --out page --runtime runtime.js --data npy:own/x.npy,own/y.npy
refused 1 'nowhere' "$gv" export $m --to page --out page --runtime runtime.js --data idx:nowhere
refused 2 '--labels is for --to page' "$gv" export $m --to onnx --out x.onnx --labels a
refused 2 '--runtime is for --to page' "$gv" export $m --to safetensors --out x.st --runtime runtime.js
[ -e page ] && bad "a refused page left something: $(ls page)"
mkdir site && echo '<p>mine' >site/index.html
refused 2 'its index.html is no page of a model' "$gv" export $m --to page --out site --runtime runtime.js
[ "$(ls site)" = index.html ] && grep -q mine site/index.html || bad "somebody's own page was touched"
refused 1 'text\.txt' "$gv" export $m --to page --out text.txt --runtime runtime.js

# What is in it, and what is not.
accepted '"form":"page"' "$gv" export $m --to page --out page --runtime runtime.js --json
[ "$(ls page | tr '\n' ' ')" = 'index.html model.js model.onnx page.css page.js runtime.js ' ] || bad "the folder has $(ls page)"
grep -q '"words":\["0","1",' page/model.js && [ "$(grep -o '"pixels":' page/model.js | wc -l)" -eq 10 ] || bad "samples or names of digits are missing"
accepted 'a page for browsers' "$gv" export $m --to page --out page --runtime runtime.js # once more
accepted 'page' "$gv" export colour/model.safetensors --to page --out own-page --runtime runtime.js
grep -q '"words":null,"samples":\[\]' own-page/model.js || bad "samples of own data are shown unasked"
if grep -a -q 'own/x' own-page/*; then bad "the page says where the data lie"; fi
[ "$wrong" -eq 0 ] || finish

# In a browser; of the digits with weights of int8.
CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip "Chromium is not installed"
modules=$(bash "$here/node_module.sh" puppeteer-core 24.43.1) || skip "$modules"
made=$(bash "$here/../peer/watch/page/runtime.sh" "$here/../build/web/runtime.js") || skip "$made"
runtime=$here/../build/web/runtime.js
evil='<img src=x onerror="window.pwned=1">'
accepted 'int8' "$gv" compact $m --out int8.safetensors
m=int8.safetensors
accepted 'page' "$gv" export $m --to page --out page/page --runtime "$runtime" --labels "$evil,1,2,3,4,5,6,7,8,9"
accepted '[0-9]+ answers are those of predict' env CHROMIUM="$CHROMIUM" NODE_PATH="$modules" \
    node "$here/page/classify.js" "$gv" $m page/page server ${PICTURES:+"$PICTURES"}
accepted 'page' "$gv" export colour/model.safetensors --to page --out own/page --runtime "$runtime" --data npy:own/x.npy,own/y.npy
accepted '[0-9]+ answers are those of predict' env CHROMIUM="$CHROMIUM" NODE_PATH="$modules" \
    node "$here/page/classify.js" "$gv" colour/model.safetensors own/page disk ${PICTURES:+"$PICTURES/colour"}
finish
