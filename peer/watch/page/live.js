/*
 * live: the page of a running peer. /events sends first "points", what there is of the curves, and
 * then with each report a "point" and a "status". Whatever comes is set as text, never as markup.
 */
const at = id => document.getElementById(id);
const isKnown = value => value !== null && value !== undefined;
const words = (value, name) => isKnown(value) ? charts.form(name)(Number(value)) : '\u2013';
const COLUMNS = ['t', 'loss', 'accuracy', 'consensus_distance', 'samples_per_s', 'bytes_sent',
                 'bytes_received', 'rounds_ok', 'rounds_aborted', 'rounds_missed'];
let points = {};

function takePoints(all) {
  points = {};
  for (const name of COLUMNS) points[name] = all[name] || [];
}

function takePoint(one) {
  for (const name of COLUMNS) (points[name] ||= []).push(one[name] ?? null);
}

/* Bytes a second over the last hundredth of the run, or two seconds: rounds come in bursts. */
function rates(name) {
  const t = points.t, span = Math.max(2, (t[t.length - 1] - t[0]) / 100);
  let from = 0;
  return points[name].map((value, i) => {
    while (from + 1 < i && t[i] - t[from + 1] >= span) from++;
    return i === 0 || t[i] <= t[from] ? null : Math.max(0, (value - points[name][from]) / (t[i] - t[from]));
  });
}
const curve = (name, values) => ({name, points: [points.t, values]});

function drawCharts() {
  const hasAccuracy = points.accuracy.some(isKnown), hasRounds = points.rounds_ok.some(value => value > 0);
  charts.draw(at('charts'), {charts: [
    {title: 'Training loss', x: 's', y: 'plain', series: [curve('loss', points.loss)]},
    ...(hasAccuracy ? [{title: 'Test accuracy', x: 's', y: 'percent',
                        series: [curve('accuracy', points.accuracy)]}] : []),
    ...(points.consensus_distance.some(isKnown) ? [{title: 'Consensus distance', x: 's', y: 'plain',
      series: [curve('distance', points.consensus_distance)]}] : []),
    {title: 'Samples a second', x: 's', y: 'count', series: [curve('samples/s', points.samples_per_s)]},
    ...(points.bytes_sent.some(value => value > 0) ? [{title: 'Traffic', x: 's', y: 'rate', series: [curve('sent', rates('bytes_sent')),
                                                   curve('received', rates('bytes_received'))]}] : []),
    ...(hasRounds || points.rounds_aborted.some(value => value > 0) ? [{title: 'Rounds', x: 's', y: 'count',
      series: [curve('ok', points.rounds_ok), curve('aborted', points.rounds_aborted),
               curve('missed', points.rounds_missed)]}] : []),
  ]});
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function showCards(s) {
  const goal = isKnown(s.goal_steps) ? ' of ' + words(s.goal_steps, 'count') : '';
  const cards = [[s.waits_for ? 'waiting for ' + s.waits_for + ' more' : s.state, 'state'],
    ...(isKnown(s.time_left_s) ? [[words(s.time_left_s, 's'), 'time left']] : []),
    [words(s.own_steps, 'count') + goal, 'own steps'],
    [words(s.step, 'count'), 'step of the model'],
    [words(s.loss, 'plain'), 'training loss'],
    ...(isKnown(s.accuracy) ? [[words(s.accuracy, 'percent'), 'test accuracy']] : []),
    isKnown(s.tokens_per_s) ? [words(s.tokens_per_s, 'count'), 'tokens a second']
      : [words(s.samples_per_s, 'count'), 'samples a second'],
    [words(s.rounds_ok, 'count'), 'rounds'],
    [words(s.rounds_aborted, 'count') + ' / ' + words(s.rounds_missed, 'count'), 'rounds aborted / missed'],
    [words(s.consensus_distance, 'plain'), 'consensus distance'],
    [words(s.bytes_sent, 'bytes'), 'sent'], [words(s.bytes_received, 'bytes'), 'received'],
    [words(s.members_count, 'count'), 'other members'], [s.nat, 'NAT'],
    ...(s.site ? [[s.site, 'site']] : [])];
  at('cards').replaceChildren(...cards.map(([value, name]) => {
    const card = element('div', undefined, 'card');
    card.append(element('b', value), element('span', name));
    return card;
  }));
  at('bar').hidden = !isKnown(s.goal_steps);
  if (isKnown(s.goal_steps)) {
    at('bar').firstElementChild.style.width = Math.min(100, 100 * s.own_steps / s.goal_steps) + '%';
  }
}

function row(body, className, cells) {
  const made = body.insertRow();
  if (className) made.className = className;
  for (const [text, kind] of cells) {
    const cell = made.insertCell();
    cell.textContent = text;
    if (kind) cell.className = kind;
  }
}

function showMembers(s) {
  at('members').replaceChildren();
  if (s.members.length === 0) row(at('members'), 'none', [['nobody else is known']]);
  for (const m of s.members) {
    row(at('members'), m.state, [[m.id.slice(0, 8)], [m.address, 'l'], [m.state, 'l'],
      [m.nat + (m.is_relayed ? ', relayed' : '') + (m.site ? ', ' + m.site : ''), 'l'],
      [isKnown(m.rtt_ms) ? words(m.rtt_ms / 1000, 's') : '\u2013'], [words(m.bytes_sent, 'bytes')],
      [words(m.bytes_received, 'bytes')], [words(m.score, 'count')], [m.last_failure || '', 'l']]);
  }
}

function showRounds(s) {
  at('rounds').replaceChildren();
  if (!s.last_rounds || s.last_rounds.length === 0) {
    row(at('rounds'), 'none', [['none yet']]);
    return;
  }
  for (const r of s.last_rounds.slice(0, 10)) {
    row(at('rounds'), '', [[words(r.ago_s, 's') + ' ago'], [r.reason || 'averaged', r.reason ? 'bad' : 'good'],
      [words(r.members, 'count')], [words(r.seconds, 's')]]);
  }
}

/* This peer in the middle, the others around it in the order of their keys: each keeps its place while
 * the swarm stays the same. A line is a link, the thicker the more went over it since the last look. */
const SVG = 'http://www.w3.org/2000/svg';
let moved = new Map();

function shape(name, values, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(values)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function showGraph(s) {
  const others = s.members.filter(m => m.state !== 'left' && m.state !== 'dead')
                          .sort((a, b) => a.id < b.id ? -1 : 1).slice(0, 64);
  const linked = new Set(s.neighbours), lines = [], dots = [], now = new Map();
  const small = others.length > 24;
  others.forEach((m, i) => {
    const angle = 2 * Math.PI * i / others.length - Math.PI / 2;
    const x = 280 + 215 * Math.cos(angle), y = 150 + 122 * Math.sin(angle);
    const sum = m.bytes_sent + m.bytes_received, before = moved.get(m.id) ?? sum;
    now.set(m.id, sum);
    if (linked.has(m.id)) {
      const width = 1 + Math.min(6, Math.log2(1 + Math.max(0, sum - before) / 4096) / 2);
      lines.push(shape('line', {class: 'edge', x1: 280, y1: 150, x2: x, y2: y, 'stroke-width': width,
                                'stroke-opacity': sum > before ? 0.85 : 0.3,
                                ...(m.is_relayed ? {'stroke-dasharray': '5 4'} : {})}));
    }
    const dot = shape('circle', {class: m.state === 'suspect' ? 's6' : linked.has(m.id) ? 's1' : 's7',
                                 cx: x, cy: y, r: small ? 6 : 13});
    dot.append(shape('title', {}, m.id.slice(0, 8) + ' ' + m.address + ' ' + m.state));
    dots.push(dot);
    if (!small) dots.push(shape('text', {x, y: y + (y < 150 ? -18 : 27), 'text-anchor': 'middle'},
                                m.id.slice(0, 6)));
  });
  moved = now;
  dots.push(shape('circle', {class: 's0', cx: 280, cy: 150, r: 17}),
            shape('text', {class: 'node', x: 280, y: 154, 'text-anchor': 'middle'}, 'me'));
  at('graph').replaceChildren(...lines, ...dots);
  at('graph-caption').textContent = 'Links of this peer: ' + linked.size + ' of ' + s.members_count +
    (others.length < s.members_count && others.length === 64 ? ' members, 64 drawn' : ' members');
}

function show(s) {
  document.title = 'grapevine ' + s.peer.slice(0, 8);
  at('who').textContent = 'Peer ' + s.peer.slice(0, 8) + ' at ' + s.address;
  at('what').textContent = s.model + '; ' + s.averaging;
  at('alarms').replaceChildren(...(s.alarms || []).map(text => element('div', text, 'alarm')));
  showCards(s);
  showGraph(s);
  showRounds(s);
  showMembers(s);
}

/* A browser tries again by itself where the peer is gone, but not where it was refused. */
function listen() {
  const events = new EventSource('/events');
  events.addEventListener('points', e => { takePoints(JSON.parse(e.data)); drawCharts(); });
  events.addEventListener('point', e => { takePoint(JSON.parse(e.data)); drawCharts(); });
  events.addEventListener('status', e => show(JSON.parse(e.data)));
  events.onerror = () => {
    const isRefused = events.readyState === EventSource.CLOSED;
    at('alarms').replaceChildren(element('div', isRefused
      ? 'The peer does not serve this page: eight others may be open. Trying again.'
      : 'The peer does not answer: it may have stopped. Trying again.', 'alarm'));
    if (isRefused) setTimeout(listen, 5000);
  };
}
listen();
