/*
 * check: looks at a peer's live page in headless Chromium as a person would: are curves, links,
 * rounds and members there, does it fit a narrow screen, is no error said; and with a swarm of 64
 * whose words are hostile: are they text.
 *   node check.js PAGE [FOLDER]      FOLDER: where pictures of it go
 */
'use strict';
const http = require('http');
const puppeteer = require('puppeteer-core');
const [page_url, folder] = process.argv.slice(2);
const WIDE = 1280, NARROW = 420, PATIENCE_MS = 60000;

function fail(text) {
  console.error('FAILED: ' + text);
  process.exit(1);
}

async function open(browser, url, width, scheme) {
  const page = await browser.newPage();
  page.on('pageerror', error => fail('the page says: ' + error.message));
  await page.setViewport({width, height: 900});
  await page.emulateMediaFeatures([{name: 'prefers-color-scheme', value: scheme}]);
  await page.goto(url, {waitUntil: 'load'});
  return page;
}

async function until(page, what, condition) {
  await page.waitForFunction(condition, {timeout: PATIENCE_MS}).catch(() => fail('not seen: ' + what));
}

async function fits(page, what) {
  const [has, may] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  if (has > may) fail(`${what} is ${has} wide, the screen ${may}`);
}

async function look(browser, width, scheme) {
  const page = await open(browser, page_url, width, scheme), name = `${scheme}-${width}`;
  await until(page, 'curves', () => document.querySelectorAll('#charts canvas').length >= 3);
  await until(page, 'members', () => document.querySelectorAll('#members tr.alive').length >= 1);
  await until(page, 'a link', () => document.querySelectorAll('#graph line').length >= 1);
  await until(page, 'a round', () => document.querySelector('#rounds .good'));
  await fits(page, name);
  if (folder) await page.screenshot({path: `${folder}/live-${name}.png`, fullPage: true});
  await page.close();
}

/* What a peer would say in a swarm of 64 whose every word is markup. */
function hostile() {
  const evil = '<img src=x onerror="window.pwned=1">', members = [];
  for (let i = 0; i < 64; i++) {
    members.push({id: String(i).padStart(4, '0') + evil, address: evil, state: i % 9 ? 'alive' : 'suspect', nat: evil,
      is_relayed: i % 5 === 0, rtt_ms: 3, bytes_sent: i * 1e6, bytes_received: 1e9, rate: 1e6, score: -1, last_failure: evil});
  }
  return {peer: evil, address: evil, state: evil, nat: evil, model: evil, averaging: evil, step: 5, own_steps: 5,
    goal_steps: 10, time_left_s: 100000, loss: 2.5, accuracy: null, samples_per_s: 10, rounds_ok: 1, rounds_aborted: 2,
    rounds_missed: 3, consensus_distance: null, bytes_sent: 1e12, bytes_received: 5, members_count: 64, members,
    neighbours: members.map(member => member.id), alarms: [evil],
    last_rounds: [{ago_s: 1, seconds: 0.2, members: 3, reason: evil}], abort_reasons: {[evil]: 1}};
}

async function look_at_hostile(browser) {
  const html = await (await fetch(page_url)).text(), status = JSON.stringify(hostile());
  const points = JSON.stringify({t: [1, 2, 3], loss: [1e3, null, 1e-3], rounds_ok: [0, 1, 2], bytes_sent: [1, 5, 9]});
  const server = http.createServer((request, answer) => {
    if (request.url === '/events') {
      answer.writeHead(200, {'Content-Type': 'text/event-stream'});
      answer.write(`event: points\ndata: ${points}\n\nevent: status\ndata: ${status}\n\n`);
    } else {
      answer.writeHead(request.url === '/' ? 200 : 404, {'Content-Type': 'text/html'});
      answer.end(request.url === '/' ? html : '');
    }
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  for (const width of [WIDE, NARROW]) {
    const page = await open(browser, `http://127.0.0.1:${server.address().port}/`, width, 'light');
    await until(page, '64 members', () => document.querySelectorAll('#members tr').length === 64);
    await until(page, 'all of them in the graph', () => document.querySelectorAll('#graph circle').length === 65);
    await until(page, 'an alarm', () => document.querySelector('.alarm'));
    if (await page.evaluate(() => window.pwned || document.images.length > 0)) fail('words became markup');
    await fits(page, `64 members, ${width}`);
    if (folder) await page.screenshot({path: `${folder}/hostile-${width}.png`, fullPage: true});
    await page.close();
  }
  server.closeAllConnections();
  server.close();
}

(async () => {
  const browser = await puppeteer.launch({executablePath: process.env.CHROMIUM, args: ['--no-sandbox']});
  for (const width of [WIDE, NARROW]) {
    for (const scheme of ['light', 'dark']) await look(browser, width, scheme);
  }
  await look_at_hostile(browser);
  await browser.close();
})().catch(error => fail(error.stack));
