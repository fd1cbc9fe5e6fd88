/*
 * classify: uses the page of an exported model in headless Chromium as a person would, from a
 * server or from the disk: draws by mouse and by keyboard, gives images, clicks samples. What it
 * answers is what `grapevine predict` says of the pixels that the page shows; nothing is asked
 * from anywhere else; words stay text; it fits a narrow screen.
 *   node classify.js GRAPEVINE MODEL PAGE server|disk [PICTURES]     PICTURES: where pictures of it go
 */
'use strict';
const fs = require('fs');
const http = require('http');
const path = require('path');
const {execFileSync} = require('child_process');
const {pathToFileURL} = require('url');
const puppeteer = require('puppeteer-core');
const [grapevine, model, folder, where, pictures] = process.argv.slice(2);
const WIDE = 1180, NARROW = 360, PATIENCE_MS = 60000, TOLERANCE = 1e-4;
const kinds = {'.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css'};
let compared = 0;

function fail(text) {
  console.error('FAILED: ' + text);
  process.exit(1);
}

/* Any static server. What is asked for is kept in `asked`. */
async function serve(asked) {
  const server = http.createServer((request, answer) => {
    const file = path.join(folder, request.url === '/' ? 'index.html' : path.basename(request.url));
    asked.push(request.url);
    if (!fs.existsSync(file)) return answer.writeHead(404).end();
    answer.writeHead(200, {'Content-Type': kinds[path.extname(file)] || 'application/octet-stream'});
    answer.end(fs.readFileSync(file));
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  return server;
}

async function open(browser, url, width, scheme) {
  const page = await browser.newPage();
  page.on('pageerror', error => fail('the page says: ' + error.message));
  page.on('console', message => { if (message.type() === 'error') fail('the console says: ' + message.text()); });
  page.on('request', request => {
    if (!/^(blob|data):/.test(request.url()) && !request.url().startsWith(new URL('.', url).href)) fail('asked for ' + request.url());
  });
  await page.setViewport({width, height: 900});
  await page.emulateMediaFeatures([{name: 'prefers-color-scheme', value: scheme}]);
  await page.goto(url, {waitUntil: 'load'});
  await page.waitForFunction(() => document.body.dataset.ready, {timeout: PATIENCE_MS}).catch(() => fail('the model is not ready'));
  return page;
}

/* The answer that is shown, once it has come to rest. */
async function answer(page, what) {
  await page.waitForFunction(() => !busy && !again && document.querySelector('#classes li'), {timeout: PATIENCE_MS})
    .catch(() => fail('no answer to ' + what));
  return page.$$eval('#classes li', rows => rows.map(row => ({class: Number(row.dataset.class), probability: Number(row.dataset.probability)})));
}

/* What is shown is what `grapevine predict` says of the pixels that the model was given. */
async function compare(page, what) {
  const shown = await answer(page, what), file = path.join(folder, `../seen-${compared++}.png`);
  const url = await page.$eval('#seen', canvas => canvas.toDataURL());
  fs.writeFileSync(file, Buffer.from(url.split(',')[1], 'base64'));
  const said = JSON.parse(execFileSync(grapevine, ['predict', model, '--input', file, '--top', shown.length, '--json'])).top;
  const error = Math.max(...shown.map((row, i) => Math.abs(row.probability - (said.find(other => other.class === row.class) || {}).probability)));
  if (!(error <= TOLERANCE) || shown[0].class !== said[0].class) fail(`${what}: ${JSON.stringify(shown)} but predict says ${JSON.stringify(said)}`);
  console.log(`${what}: class ${shown[0].class}, ${shown[0].probability.toFixed(4)}, as predict to ${error.toExponential(1)}`);
  return shown;
}

async function draw(page) {
  const box = await (await page.$('#pad')).boundingBox(), at = (x, y) => [box.x + x * box.width, box.y + y * box.height];
  for (const line of [[[0.35, 0.3], [0.55, 0.2], [0.55, 0.8]], [[0.35, 0.8], [0.75, 0.8]]]) {
    await page.mouse.move(...at(...line[0]));
    await page.mouse.down();
    for (const point of line.slice(1)) await page.mouse.move(...at(...point), {steps: 8});
    await page.mouse.up();
  }
}

/* An image of `scale` times the model's size, until the page has it. */
async function give(page, file, scale) {
  await (await page.$('#file')).uploadFile(file);
  await page.waitForFunction(scale => source && source.width === Math.round(MODEL.width * scale), {timeout: PATIENCE_MS}, scale)
    .catch(() => fail('an image that was given is not there'));
}

/* An image of `scale` times the model's size: noise, or a dark ring on bright paper. */
async function paint(page, scale, isRing) {
  const url = await page.evaluate((scale, isRing) => {
    const canvas = document.createElement('canvas'), view = canvas.getContext('2d');
    [canvas.width, canvas.height] = [Math.round(MODEL.width * scale), Math.round(MODEL.height * scale)];
    const image = view.createImageData(canvas.width, canvas.height);
    for (let i = 0, seed = 7; i < image.data.length; i++) {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      image.data[i] = i % 4 === 3 ? 255 : isRing ? 235 + seed / 65536 % 20 : seed / 65536 % 256;
    }
    view.putImageData(image, 0, 0);
    if (isRing) {
      view.lineWidth = canvas.width / 12;
      view.beginPath();
      view.ellipse(canvas.width / 2, canvas.height / 2, canvas.width / 5, canvas.height / 4, 0, 0, 7);
      view.stroke();
    }
    return canvas.toDataURL();
  }, scale, isRing);
  const file = path.join(folder, `../given-${scale}.png`);
  fs.writeFileSync(file, Buffer.from(url.split(',')[1], 'base64'));
  return file;
}

async function use(browser, url, what) {
  const page = await open(browser, url, WIDE, 'light');
  await draw(page);
  await compare(page, `${what}, a drawing`);
  if (pictures) await page.screenshot({path: `${pictures}/drawing.png`, fullPage: true});
  for (const framing of ['whole', 'fill', 'mass', 'crop']) {
    await page.select('#framing', framing);
    await compare(page, `${what}, a drawing, ${framing}`);
  }
  await page.click('#clear');
  await page.waitForFunction(() => !document.querySelector('#classes li'));
  const exact = await paint(page, 1, false);
  await give(page, exact, 1);
  const shown = await compare(page, `${what}, noise of the model's size`);
  const said = JSON.parse(execFileSync(grapevine, ['predict', model, '--input', exact, '--top', 1, '--json'])).top[0];
  if (said.class !== shown[0].class || Math.abs(said.probability - shown[0].probability) > TOLERANCE) fail('the given file itself is predicted otherwise');
  await give(page, await paint(page, 9.3, true), 9.3);
  await compare(page, `${what}, a ring on paper`);
  if (pictures) await page.screenshot({path: `${pictures}/ring.png`, fullPage: true});
  fs.writeFileSync(path.join(folder, '../no-image.png'), 'no image');
  await (await page.$('#file')).uploadFile(path.join(folder, '../no-image.png'));
  await page.waitForFunction(() => !document.querySelector('#alarm').hidden).catch(() => fail('what is no image is taken'));
  await page.close();
}

/* By the keyboard alone: a stroke downwards; then a sample, where there are some. */
async function type(browser, url) {
  const page = await open(browser, url, NARROW, 'dark');
  const [has, may] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  if (has > may) fail(`the page is ${has} wide, the screen ${may}`);
  await page.focus('#pad');
  for (const key of ['ArrowUp', 'ArrowUp', ' ', 'ArrowDown', 'ArrowDown', 'ArrowDown', 'ArrowDown', ' ']) await page.keyboard.press(key);
  const drawn = await compare(page, 'by keyboard');
  const samples = await page.$$('#samples button');
  if (samples.length > 0) {
    await samples[samples.length - 1].focus();
    await page.keyboard.press('Enter');
    const again = await compare(page, 'a sample');
    if (JSON.stringify(again) === JSON.stringify(drawn)) fail('a sample changes nothing');
  }
  if (await page.evaluate(() => window.pwned || document.images.length > 0)) fail('words became markup');
  if (pictures) await page.screenshot({path: `${pictures}/narrow.png`, fullPage: true});
  await page.close();
}

(async () => {
  const asked = [], server = await serve(asked);
  const browser = await puppeteer.launch({executablePath: process.env.CHROMIUM, args: ['--no-sandbox']});
  const url = where === 'disk' ? pathToFileURL(path.join(path.resolve(folder), 'index.html')).href
    : `http://127.0.0.1:${server.address().port}/`;
  await use(browser, url, 'from a ' + where);
  await type(browser, url);
  const other = asked.filter(name => !['/', '/page.css', '/page.js', '/model.js', '/runtime.js'].includes(name));
  if (other.length > 0) fail('the server was asked for ' + other);
  await browser.close();
  server.close();
  console.log(`${compared} answers are those of predict`);
})().catch(error => fail(error.stack));
