/*
 * charts: draws charts from plain data (README.md has its form) by uPlot, for a peer's live page and
 * the report of a run. Whatever it is given becomes text or numbers, never markup.
 */
'use strict';
const charts = (() => {
  const COLOURS = 8, HEIGHT = 210, LEGEND_MOST = 8;
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const scaled = (value, base, units, digits) => {
    let i = 0;
    while (Math.abs(value) >= base && i < units.length - 1) { value /= base; i++; }
    return value.toLocaleString('en', {maximumFractionDigits: i ? digits : 0}) + '\u202f' + units[i];
  };
  const plain = (value, digits) => value.toLocaleString('en', {maximumFractionDigits: digits});
  const significant = value => value === 0 ? '0' : value.toLocaleString('en', {maximumSignificantDigits: 3});
  const bytes = value => scaled(value, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB'], 1);
  const seconds = value => {
    const s = Math.round(value * 10) / 10, all = Math.round(value);
    if (value < 1) return plain(1000 * value, 0) + '\u202fms';
    if (s < 100) return plain(s, 1) + '\u202fs';
    if (all < 3600) return Math.floor(all / 60) + ':' + String(all % 60).padStart(2, '0') + '\u202fmin';
    return Math.floor(all / 3600) + ':' + String(Math.floor(all % 3600 / 60)).padStart(2, '0') + '\u202fh';
  };
  const forms = {
    plain: significant,
    count: value => plain(value, 0),
    percent: value => plain(100 * value, 2) + '\u202f%',
    bytes,
    rate: value => bytes(value) + '/s',
    s: seconds,
  };
  const form = name => forms[name] || significant;

  /* Vertical lines at the faults of a run. */
  const marks = at => ({hooks: {draw: u => {
    const {ctx} = u;
    ctx.save();
    ctx.strokeStyle = css('--bad');
    ctx.setLineDash([4, 4]);
    for (const x of at || []) {
      const left = u.valToPos(x, 'x', true);
      if (left < u.bbox.left || left > u.bbox.left + u.bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(left, u.bbox.top);
      ctx.lineTo(left, u.bbox.top + u.bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }}});

  const axis = (name, size) => ({
    stroke: () => css('--soft'), grid: {stroke: () => css('--line'), width: 1},
    ticks: {show: false}, size, font: '11px system-ui, sans-serif', gap: 4,
    values: (u, splits) => splits.map(value => value === null ? '' : form(name)(value)),
  });
  /* Of a logarithm: at powers of ten alone. */
  const decades = (u, splits) => splits.map(value =>
    value !== null && Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-6 ? value : null);

  /* Losses and distances fall by powers of ten: then their logarithm is drawn. */
  const isWide = chart => {
    let low = Infinity, high = 0;
    if (chart.y !== 'plain') return false;
    for (const one of chart.series) {
      for (const value of one.points[1]) {
        if (value === null) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    return low > 0 && high > 50 * low;
  };

  /* Ticks at round seconds, or at round KiB, MiB... */
  const steps = {
    s: [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800],
    bytes: [...Array(48).keys()].map(power => 2 ** power),
    count: [...Array(15).keys()].flatMap(power => [1, 2, 5].map(digit => digit * 10 ** power)),
  };

  const incrs = {rate: steps.bytes, bytes: steps.bytes, count: steps.count};

  /* One table of all series: x in order, null where a series has no point. */
  const aligned = series => series.length === 0 ? [[]]
    : uPlot.join(series.map(one => [one.points[0], one.points[1]]));

  const sharesX = chart => chart.series.every(one => one.points[0] === chart.series[0].points[0]);
  const alone = data => data[0].length === 1;
  const kindOf = (chart, data) => JSON.stringify([chart.series.map(one => one.name), alone(data), isWide(chart)]);

  const options = (chart, width, isSmall) => ({
    width, height: HEIGHT, plugins: [marks(chart.marks)],
    legend: {show: chart.series.length <= LEGEND_MOST, live: sharesX(chart)},
    cursor: {focus: {prox: 24}, y: false, drag: {x: true, y: false}},
    focus: {alpha: chart.series.length > 1 ? 0.3 : 1},
    scales: {x: {time: false}, y: isWide(chart) ? {distr: 3} : {range: (u, low, high) => {
      if (low === null) return [0, 1];
      const room = high > low ? (high - low) * 0.06 : Math.abs(high) * 0.1 || 0.5;
      return [low >= 0 && low < room * 4 ? 0 : low - room, high + room];
    }}},
    axes: [{...axis(chart.x, 26), space: 56, incrs: steps[chart.x]},
           {...axis(chart.y, 66), ...(isWide(chart) ? {filter: decades, grid: {filter: decades, stroke: () => css('--line'), width: 1}} : {}),
            ...(incrs[chart.y] ? {incrs: incrs[chart.y]} : {})}],
    series: [{label: chart.x === 's' ? 'time' : 'sent',
              value: (u, value) => value === null ? '\u2013' : form(chart.x)(value)},
             ...chart.series.map((one, i) => ({
               label: String(one.name), stroke: () => css('--c' + (one.colour ?? i) % COLOURS),
               width: 1.7, spanGaps: true, points: {show: isSmall, size: 5},
               value: (u, value) => value === null || value === undefined ? '\u2013' : form(chart.y)(value)}))],
  });

  /* A figure of one chart; `update` takes a chart of the same series. */
  const figure = (parent, first) => {
    const box = document.createElement('figure'), caption = document.createElement('figcaption');
    const place = document.createElement('div');
    let chart = first, plot = null, kind = '';
    caption.textContent = chart.title;
    box.append(caption, place);
    parent.append(box);
    const width = () => Math.max(160, place.clientWidth);
    const build = () => {
      const data = aligned(chart.series);
      if (plot) plot.destroy();
      plot = new uPlot(options(chart, width(), alone(data)), data, place);
      showLast(data);
      kind = kindOf(chart, data);
    };
    const update = next => {
      chart = next;
      const data = aligned(chart.series);
      if (kindOf(chart, data) !== kind) build();
      else plot.setData(data);
      showLast(data);
    };
    /* Without a pointer the legend tells the last values. */
    const showLast = data => {
      if (!sharesX(chart)) return;
      if (plot.cursor.left < 0 || plot.cursor.left === undefined) plot.setLegend({idx: data[0].length - 1}, false);
    };
    build();
    new ResizeObserver(() => plot.setSize({width: width(), height: HEIGHT})).observe(place);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', build);
    return update;
  };

  /* All charts of `page`, below `parent`; again to show newer data. */
  const drawn = new Map();
  const draw = (parent, page) => {
    for (const chart of page.charts) {
      if (!chart.series.some(one => one.points[0].length > 0)) continue;
      const update = drawn.get(chart.title);
      if (update) update(chart);
      else drawn.set(chart.title, figure(parent, chart));
    }
  };
  return {draw, form};
})();
