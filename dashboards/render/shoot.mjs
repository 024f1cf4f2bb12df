// Renders dashboards against a Prometheus and writes pictures and a report:
// node shoot.mjs '{"prometheus": URL, "dashboards": DIR, "pictures": DIR, "chromium": PATH, "from": ISO, "to": ISO, "boards": {UID: {VARIABLE: VALUE}}}'
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { chromium } from 'playwright-core';
import UPNG from 'upng-js';

const wanted = JSON.parse(process.argv[2]);
const ICONS = path.resolve('node_modules/@grafana/ui/dist/public');
const PANEL = '[data-testid^="data-testid Panel header"]';
const TYPES = { '.css': 'text/css', '.html': 'text/html', '.js': 'text/javascript', '.json': 'application/json', '.svg': 'image/svg+xml' };

function file(url) {
  if (url.startsWith('/dashboards/')) { return path.join(wanted.dashboards, path.basename(url)); }
  if (url.includes('/img/')) { return path.join(ICONS, path.normalize(url.slice(url.indexOf('/img/')))); }
  if (url === '/app.js' || url === '/app.css') { return path.resolve('dist', url.slice(1)); }
  return path.resolve('index.html');
}

async function answer(request, response) {
  const url = new URL(request.url, 'http://here');
  if (url.pathname.startsWith('/prometheus/')) {
    const body = request.method === 'POST' ? Buffer.concat(await request.toArray()) : undefined;
    const headers = { 'content-type': request.headers['content-type'] ?? '' };
    const told = await fetch(wanted.prometheus + url.pathname.slice('/prometheus'.length) + url.search, { method: request.method, body, headers });
    response.writeHead(told.status, { 'content-type': 'application/json' }).end(Buffer.from(await told.arrayBuffer()));
    return;
  }
  const name = file(url.pathname);
  if (!fs.existsSync(name)) { response.writeHead(404).end(); return; }
  response.writeHead(200, { 'content-type': TYPES[path.extname(name)] ?? 'application/octet-stream' }).end(fs.readFileSync(name));
}

const server = http.createServer((request, response) => {
  answer(request, response).catch((e) => response.writeHead(502).end(String(e)));
});
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
const base = `http://127.0.0.1:${server.address().port}`;
const browser = await chromium.launch({ executablePath: wanted.chromium, args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking'] });

async function shoot(uid, variables) {
  const board = JSON.parse(fs.readFileSync(path.join(wanted.dashboards, `${uid}.json`), 'utf8'));
  const rows = Math.max(...board.panels.map((p) => p.gridPos.y + p.gridPos.h));
  // The grid loads panels as they come into view: make all of it visible.
  const page = await browser.newPage({ viewport: { width: 1500, height: rows * 38 + 150 } });
  const log = [];
  page.on('console', (m) => m.type() === 'error' && !m.text().startsWith('Failed to load') && log.push(m.text().slice(0, 300)));
  // The published package lacks a few icons; anything else that is missing is a fault.
  page.on('response', (r) => r.status() >= 400 && !r.url().includes('/img/icons/') && log.push(`${r.status()}: ${r.url()}`));
  page.on('pageerror', (e) => log.push(`exception: ${String(e).slice(0, 300)}`));
  page.on('request', (r) => r.url().startsWith(base) || r.url().startsWith('data:') || r.url().startsWith('blob:') || log.push(`left the host: ${r.url()}`));
  const choices = Object.entries(variables).map(([name, value]) => [`var-${name}`, value]);
  await page.goto(`${base}/?${new URLSearchParams([['uid', uid], ['from', wanted.from], ['to', variables.to ?? wanted.to], ...choices])}`);
  const done = () => { const { panels } = window.report(); return panels.length > 0 && panels.every((p) => ['Done', 'Error'].includes(p.state)); };
  const finished = await page.waitForFunction(done, null, { timeout: 30000 }).then(() => true, () => false);
  await page.evaluate(() => document.fonts.ready);
  // Panels are put up, and graphs drawn, some time after their data is there, and tell nobody.
  await page.waitForFunction(([selector, n]) => document.querySelectorAll(selector).length >= n, [PANEL, board.panels.filter((p) => p.type !== 'row').length], { timeout: 30000 }).catch(() => undefined);
  let picture, drawn = 0;
  for (let n = 0; n < 5; n++) {
    picture = UPNG.decode(await still(page));
    const boxes = await page.evaluate((s) => [...document.querySelectorAll(s)].map((e) => e.getBoundingClientRect().toJSON()), PANEL);
    drawn = boxes.filter((box) => colours(picture, box) > 3).length;
    if (drawn === boxes.length) { break; }
    // A browser that is short of time may leave out a whole layer, until something moves.
    await page.setViewportSize({ width: 1500 - 20 * (n + 1), height: rows * 38 + 150 });
    await page.setViewportSize({ width: 1500, height: rows * 38 + 150 });
  }
  // A dashboard has few colours: a palette of 128 makes the picture small enough to keep.
  const small = UPNG.encode(UPNG.toRGBA8(picture), picture.width, picture.height, 128);
  fs.writeFileSync(path.join(wanted.pictures, `${uid}.png`), Buffer.from(small));
  const report = await page.evaluate(() => window.report());
  await page.close();
  return { ...report, finished, drawn, log };
}

// How many colours a part of the picture has.
function colours(picture, box) {
  const pixels = new Uint32Array(UPNG.toRGBA8(picture)[0]);
  const seen = new Set();
  for (let y = Math.max(0, Math.ceil(box.top)); y < Math.min(picture.height, box.bottom); y += 2) {
    for (let x = Math.max(0, Math.ceil(box.left)); x < Math.min(picture.width, box.right); x += 2) {
      seen.add(pixels[y * picture.width + x]);
    }
  }
  return seen.size;
}

// The page once it has stopped changing.
async function still(page) {
  let last = Buffer.alloc(0);
  for (let n = 0; n < 20; n++) {
    await page.waitForTimeout(1000);
    const now = await page.screenshot({ fullPage: true });
    if (now.equals(last)) { return now; }
    last = now;
  }
  return last;
}

const reports = {};
for (const [uid, variables] of Object.entries(wanted.boards)) {
  reports[uid] = await shoot(uid, variables);
}
await browser.close();
server.close();
process.stdout.write(JSON.stringify(reports));
