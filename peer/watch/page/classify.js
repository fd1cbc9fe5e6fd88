/*
 * classify: the page that `grapevine export --to page` writes. An image, drawn or given, becomes
 * what the model reads: `height` x `width` pixels of bytes; the model answers in this browser, by
 * onnxruntime-web. model.js gives MODEL, runtime.js gives RUNTIME and `ort`.
 *
 * Framing, that is from an image of any size to the model's:
 *   crop   the largest part from its middle that has the model's proportions;
 *   whole  all of it, with margins of the ground;
 *   mass   as MNIST was made: the box around the ink, its longer side 20/28 of the frame's, then
 *          moved by whole pixels so that the ink's centre of mass is the frame's centre;
 *   fill   the box around the ink fills the frame, its middle is the frame's.
 * An image of exactly the model's size is taken as it is, so that the page says what
 * `grapevine predict --input IMAGE` says. Pixels are averaged over areas, not picked.
 */
'use strict';
const TOP = 5, SIDE_MAX = 2048, STROKES_MAX = 1000, INK_LEAST = 0.2, MASS_SHARE = 20 / 28;
const $ = id => document.getElementById(id);
const channels = MODEL.channels, high = MODEL.height, wide = MODEL.width;
const isGrey = channels === 1;
const ground = MODEL.mean.reduce((sum, m) => sum + m, 0) / MODEL.mean.length > 0.5 ? 255 : 0;
const unit = Math.max(1, Math.round(280 / Math.max(high, wide))); // pixels of the pad a pixel of the model
const pad = $('pad'), seen = $('seen'), sheet = new OffscreenCanvas(wide * unit, high * unit);
const ink = sheet.getContext('2d', {willReadFrequently: true}); // what is drawn; the pad shows it and the cursor
let session, source = null, pixels = null; // source: an image; null: the pad. pixels: RGBA, what the model is given
let busy = false, again = false;

/* ---- images: {width, height, data}, RGBA, opaque ---- */

function luma(data, at) {
  return 0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2];
}

/* The part of `from` in `box` {x, y, w, h}, averaged into the place {x, y, w, h} of the model's frame. */
function frame(from, box, place) {
  const out = new Uint8ClampedArray(4 * high * wide);
  const spans = (n, at, length, start, extent) => Array.from({length: n}, (_, i) =>
    [(i - at) / length * extent + start, (i + 1 - at) / length * extent + start]);
  const columns = spans(wide, place.x, place.w, box.x, box.w), rows = spans(high, place.y, place.h, box.y, box.h);
  const within = (span, low, length) => [Math.max(span[0], low), Math.min(span[1], low + length)];
  for (let y = 0; y < high; y++) {
    const [top, bottom] = within(rows[y], box.y, box.h);
    for (let x = 0; x < wide; x++) {
      const [left, right] = within(columns[x], box.x, box.w), sum = [0, 0, 0];
      const all = (rows[y][1] - rows[y][0]) * (columns[x][1] - columns[x][0]);
      let covered = 0;
      for (let sy = Math.floor(top); sy < bottom && top < bottom; sy++) {
        const tall = Math.min(sy + 1, bottom) - Math.max(sy, top);
        for (let sx = Math.floor(left); sx < right; sx++) {
          const area = tall * (Math.min(sx + 1, right) - Math.max(sx, left)), at = 4 * (sy * from.width + sx);
          for (let c = 0; c < 3; c++) sum[c] += area * from.data[at + c];
          covered += area;
        }
      }
      const at = 4 * (y * wide + x), bare = Math.max(0, all - covered) * ground;
      for (let c = 0; c < 3; c++) out[at + c] = (sum[c] + bare) / all;
      out[at + 3] = 255;
    }
  }
  return {width: wide, height: high, data: out};
}

function inverted(image) {
  return {...image, data: image.data.map((value, i) => i % 4 === 3 ? value : 255 - value)};
}

/* How much a pixel differs from the ground, 0 to 1. */
function inkAt(image, x, y) {
  return Math.abs(luma(image.data, 4 * (y * image.width + x)) - ground) / 255;
}

/* The box around the ink and the ink's centre of mass in it, 0 to 1 each; null: there is none. */
function inkOf(image) {
  let x0 = image.width, y0 = image.height, x1 = -1, y1 = -1, mass = 0, mx = 0, my = 0;
  for (let y = 0; y < image.height; y++) {
    for (let x = 0; x < image.width; x++) {
      if (inkAt(image, x, y) < INK_LEAST) continue;
      x0 = Math.min(x0, x); x1 = Math.max(x1, x);
      y0 = Math.min(y0, y); y1 = Math.max(y1, y);
    }
  }
  if (x1 < 0) return null;
  const box = {x: x0, y: y0, w: x1 + 1 - x0, h: y1 + 1 - y0};
  for (let y = y0; y <= y1; y++) {
    for (let x = x0; x <= x1; x++) {
      const much = inkAt(image, x, y);
      mass += much; mx += much * (x + 0.5 - x0); my += much * (y + 0.5 - y0);
    }
  }
  return {box, mass: {x: mx / mass / box.w, y: my / mass / box.h}};
}

/* `box` of the image in the middle of the frame, scaled so that it fits, or so that it covers. */
function middle(box, scale) {
  const w = box.w * scale, h = box.h * scale;
  return {x: (wide - w) / 2, y: (high - h) / 2, w, h};
}

function framed(image, framing) {
  const all = {x: 0, y: 0, w: image.width, h: image.height};
  const found = framing === 'mass' || framing === 'fill' ? inkOf(image) : null;
  if (found === null) {
    const choose = framing === 'crop' ? Math.max : Math.min;
    return frame(image, all, middle(all, choose(wide / all.w, high / all.h)));
  }
  const scale = Math.min(wide / found.box.w, high / found.box.h) * (framing === 'mass' ? MASS_SHARE : 1);
  const place = middle(found.box, scale);
  if (framing === 'mass') {
    const moved = (frameSize, at, size) => Math.min(Math.max(Math.round(frameSize / 2 - at * size), 0), Math.floor(frameSize - size));
    place.x = moved(wide, found.mass.x, place.w);
    place.y = moved(high, found.mass.y, place.h);
  }
  return frame(image, found.box, place);
}

/* ---- the model ---- */

function bytesOf(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function load() {
  const packed = new Blob([bytesOf(RUNTIME.wasm)]).stream().pipeThrough(new DecompressionStream('gzip'));
  ort.env.logLevel = 'error';
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = await new Response(packed).arrayBuffer();
  ort.env.wasm.wasmPaths = {mjs: URL.createObjectURL(new Blob([bytesOf(RUNTIME.glue)], {type: 'text/javascript'}))};
  session = await ort.InferenceSession.create(bytesOf(MODEL.onnx), {executionProviders: ['wasm']});
  await answer(new Uint8ClampedArray(4 * high * wide)); // warms up
}

/* The probability of each class. */
async function answer(rgba) {
  const count = high * wide, values = new Float32Array(channels * count);
  for (let i = 0; i < count; i++) {
    if (isGrey) values[i] = luma(rgba, 4 * i) / 255;
    else for (let c = 0; c < 3; c++) values[c * count + i] = rgba[4 * i + c] / 255;
  }
  const input = new ort.Tensor('float32', values, [1, channels, high, wide]);
  const logits = (await session.run({input})).logits.data;
  const most = logits.reduce((a, b) => Math.max(a, b));
  const weights = Array.from(logits, logit => Math.exp(logit - most)), sum = weights.reduce((a, b) => a + b);
  return weights.map(weight => weight / sum);
}

/* ---- what is shown ---- */

function nameOf(c) {
  return MODEL.words === null ? `class ${c}` : MODEL.words[c];
}

function percent(share) {
  return (100 * share).toFixed(share > 0.9995 || share < 0.0995 ? 2 : 1) + ' %';
}

function showSeen() {
  seen.getContext('2d').putImageData(new ImageData(pixels, wide, high), 0, 0);
}

function showAnswer(shares, ms) {
  const order = shares.map((_, c) => c).sort((a, b) => shares[b] - shares[a] || a - b).slice(0, TOP);
  $('classes').replaceChildren(...order.map(c => {
    const row = document.createElement('li');
    for (const [kind, text] of [['name', nameOf(c)], ['share', percent(shares[c])]]) {
      const part = document.createElement('span');
      part.className = kind;
      part.textContent = text;
      row.append(part);
    }
    const bar = document.createElement('div'), fill = document.createElement('i');
    bar.className = 'bar';
    fill.style.width = 100 * shares[c] + '%';
    bar.append(fill);
    row.append(bar);
    row.dataset.class = c;
    row.dataset.probability = shares[c];
    return row;
  }));
  const text = `${nameOf(order[0])}, ${percent(shares[order[0]])}`;
  if ($('answer').textContent !== text) $('answer').textContent = text;
  $('latency').textContent = `answered in ${ms < 10 ? ms.toFixed(1) : ms.toFixed(0)} ms on this device`;
}

function showNothing() {
  pixels = null;
  seen.getContext('2d').putImageData(new ImageData(blank(wide, high).data, wide, high), 0, 0);
  $('classes').replaceChildren();
  $('answer').textContent = 'Nothing yet.';
  $('latency').textContent = '';
}

/* Frame what is there and ask; while an answer is under way, once more when it has come. */
async function update() {
  const image = source || ink.getImageData(0, 0, sheet.width, sheet.height), isExact = source && source.isExact;
  if (!source && strokes.length === 0) return showNothing();
  const turned = $('invert').checked ? inverted(image) : image;
  pixels = isExact && $('framing').value === 'crop' ? turned.data : framed(turned, $('framing').value).data;
  showSeen();
  again = busy;
  if (busy || !session) return;
  busy = true;
  const begin = performance.now();
  try {
    const shares = await answer(pixels);
    showAnswer(shares, performance.now() - begin);
  } catch (error) {
    complain('the model did not answer: ' + error.message);
  }
  busy = false;
  if (again) update();
}

function complain(text) {
  $('alarm').textContent = text;
  $('alarm').hidden = text === '';
}

/* ---- drawing ---- */

const strokes = []; // {size, colour, points: [[x, y]...]} in pixels of the pad
let pen = null, cursor = null, isDown = false; // pen: the stroke that is being drawn

function blank(w, h) {
  const data = new Uint8ClampedArray(4 * w * h).fill(ground);
  for (let i = 3; i < data.length; i += 4) data[i] = 255;
  return {width: w, height: h, data};
}

function redraw() {
  ink.putImageData(new ImageData(blank(sheet.width, sheet.height).data, sheet.width, sheet.height), 0, 0);
  ink.lineCap = ink.lineJoin = 'round';
  for (const stroke of strokes) {
    ink.strokeStyle = stroke.colour;
    ink.lineWidth = stroke.size;
    ink.beginPath();
    ink.moveTo(...stroke.points[0]);
    for (const point of stroke.points) ink.lineTo(...point);
    ink.stroke();
  }
  showPad();
}

function showPad() {
  const view = pad.getContext('2d');
  view.drawImage(sheet, 0, 0);
  if (!cursor || document.activeElement !== pad) return;
  view.strokeStyle = isDown ? '#d5622a' : '#8f8f8f';
  view.lineWidth = 2;
  view.strokeRect(cursor[0] - 6, cursor[1] - 6, 12, 12);
}

function drawn() {
  if (source) chooseFraming(true);
  source = null;
  redraw();
  update();
}

function begin(point) {
  if (strokes.length >= STROKES_MAX) strokes.shift();
  const size = Number($('pen').value) * Math.max(pad.width, pad.height) / 70;
  pen = {size, colour: isGrey ? (ground ? '#000' : '#fff') : $('colour').value, points: [point]};
  strokes.push(pen);
  drawn();
}

function go(point) {
  pen.points.push(point);
  drawn();
}

function pointOf(event) {
  const box = pad.getBoundingClientRect();
  return [(event.clientX - box.left) / box.width * pad.width, (event.clientY - box.top) / box.height * pad.height];
}

function clear() {
  strokes.length = 0;
  pen = null;
  drawn();
}

const steps = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
function onKey(event) {
  const by = Math.max(2, unit / 2), step = steps[event.key];
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  cursor = cursor || [pad.width / 2, pad.height / 2];
  if (step) {
    cursor = [Math.min(Math.max(cursor[0] + step[0] * by, 0), pad.width), Math.min(Math.max(cursor[1] + step[1] * by, 0), pad.height)];
    if (isDown) go([...cursor]); else showPad();
  } else if (event.key === ' ') {
    isDown = !isDown;
    if (isDown) begin([...cursor]); else showPad();
  } else if (event.key === 'Escape') {
    isDown = false;
    clear();
  } else {
    return;
  }
  event.preventDefault();
}

/* ---- images that are given ---- */

async function take(blob) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(blob, {colorSpaceConversion: 'none'});
  } catch (error) {
    return complain(`this file is no image that the browser can read: ${blob.name || blob.type || 'unknown'}`);
  }
  const shrink = Math.min(1, SIDE_MAX / Math.max(bitmap.width, bitmap.height));
  const w = Math.max(1, Math.round(bitmap.width * shrink)), h = Math.max(1, Math.round(bitmap.height * shrink));
  const room = new OffscreenCanvas(w, h).getContext('2d', {willReadFrequently: true});
  room.fillStyle = '#000'; // as `grapevine predict`: what is transparent has a black ground
  room.fillRect(0, 0, w, h);
  room.imageSmoothingQuality = 'high';
  room.drawImage(bitmap, 0, 0, w, h);
  bitmap.close();
  give(room.getImageData(0, 0, w, h));
}

function give(image) {
  complain('');
  source = {width: image.width, height: image.height, data: image.data, isExact: image.width === wide && image.height === high};
  chooseFraming(false);
  strokes.length = 0;
  pen = null;
  redraw();
  update();
}

/* Is the image's border unlike the ground that the model knows? */
function isTurned(image) {
  let sum = 0, count = 0;
  for (let y = 0; y < image.height; y++) {
    for (let x = 0; x < image.width; x += y === 0 || y === image.height - 1 ? 1 : Math.max(1, image.width - 1)) {
      sum += inkAt(image, x, y);
      count++;
    }
  }
  return sum / count > 0.5;
}

function chooseFraming(isDrawing) {
  const isAsIs = !isDrawing && source.isExact || !isGrey;
  $('framing').value = isAsIs ? 'crop' : MODEL.framing;
  $('invert').checked = !isDrawing && !isAsIs && isTurned(source);
}

/* ---- the page ---- */

function showSamples() {
  $('samples-part').hidden = MODEL.samples.length === 0;
  $('samples').append(...MODEL.samples.map(sample => {
    const button = document.createElement('button'), picture = document.createElement('canvas');
    const planes = bytesOf(sample.pixels), image = blank(wide, high), count = high * wide;
    for (let i = 0; i < count; i++) {
      for (let c = 0; c < 3; c++) image.data[4 * i + c] = planes[isGrey ? i : c * count + i];
    }
    [picture.width, picture.height] = [wide, high];
    picture.getContext('2d').putImageData(new ImageData(image.data, wide, high), 0, 0);
    button.type = 'button';
    button.append(picture, nameOf(sample.label));
    button.addEventListener('click', () => give(image));
    return button;
  }));
}

function listen() {
  pad.addEventListener('pointerdown', event => {
    if (event.button !== 0) return;
    pad.setPointerCapture(event.pointerId);
    cursor = null;
    begin(pointOf(event));
  });
  pad.addEventListener('pointermove', event => {
    if (!pen || !pad.hasPointerCapture(event.pointerId)) return;
    for (const part of event.getCoalescedEvents ? event.getCoalescedEvents() : [event]) pen.points.push(pointOf(part));
    drawn();
  });
  for (const kind of ['pointerup', 'pointercancel']) pad.addEventListener(kind, () => { pen = null; });
  pad.addEventListener('keydown', onKey);
  pad.addEventListener('blur', () => { isDown = false; showPad(); });
  $('clear').addEventListener('click', clear);
  $('undo').addEventListener('click', () => { strokes.pop(); drawn(); });
  $('framing').addEventListener('change', update);
  $('invert').addEventListener('change', update);
  $('file').addEventListener('change', event => { if (event.target.files[0]) take(event.target.files[0]); event.target.value = ''; });
  addEventListener('dragover', event => { event.preventDefault(); document.querySelector('.give').classList.add('over'); });
  addEventListener('dragleave', () => document.querySelector('.give').classList.remove('over'));
  addEventListener('drop', event => {
    event.preventDefault();
    document.querySelector('.give').classList.remove('over');
    if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });
  addEventListener('paste', event => { if (event.clipboardData.files[0]) take(event.clipboardData.files[0]); });
  $('save').addEventListener('click', () => {
    if (pixels) seen.toBlob(blob => {
      const link = document.createElement('a');
      link.href = URL.createObjectURL(blob);
      link.download = 'seen.png';
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
  });
}

function begun() {
  complain('');
  const kind = isGrey ? 'grey' : 'colour';
  document.title = MODEL.name;
  $('title').textContent = MODEL.name;
  $('what').textContent = `Looks at ${wide}x${high} ${kind} pixels and knows ${MODEL.classes} classes` +
    (MODEL.data === '' ? '.' : `; trained on ${MODEL.data}.`);
  $('about').textContent = `${MODEL.parameters.toLocaleString('en')} parameters, run in this browser by onnxruntime-web ${RUNTIME.version}.`;
  $('seen-help').textContent = `${wide}x${high}: an image of just this size is taken as it is.`;
  [pad.width, pad.height] = [sheet.width, sheet.height];
  [seen.width, seen.height] = [wide, high];
  for (const canvas of [pad, seen]) canvas.style.aspectRatio = `${wide} / ${high}`;
  $('colour-label').hidden = isGrey;
  if (ground) $('colour').value = '#000000';
  $('framing').value = isGrey ? MODEL.framing : 'crop';
  $('pen').value = Math.min(high, wide) < 16 ? 9 : 6; // strokes are as thick as those of the images
  redraw();
  showNothing();
  showSamples();
  listen();
}

begun();
load().then(() => {
  document.body.dataset.ready = 'yes';
  update();
}, error => complain('the model cannot be run by this browser: ' + error.message));
