// The charts: the page fetches the history when it connects and adds points as they arrive.
import {markEvents} from './events.js';
import {colour, find, make, three} from './format.js';

const SERIES = {
  'chart-novelty': {
    zero: true,
    lines: [['deviation', 'deviation', 'net'], ['threshold', 'threshold', 'mean', true]],
  },
  'chart-loss': {
    log: true,
    lines: [['loss', 'network', 'net'], ['mean_frame', 'mean frame', 'mean', true]],
  },
  'chart-rate': {
    zero: true,
    lines: [['fps', 'learned', 'net'], ['dropped_fps', 'dropped', 'bad'], ['F', 'F', 'mean', true]],
  },
  'chart-time': {
    zero: true,
    lines: [['T_over_N', 'T/N', 'net'], ['bottleneck', 'slowest', 'warm'], ['budget', '1/F', 'mean', true]],
  },
  'chart-latency': {
    zero: true,
    lines: [['latency_p50', 'p50', 'net'], ['latency_p99', 'p99', 'warm']],
  },
};
const RECENT = 300;  // points, one per second
const REFRESH_MS = 30000;  // of the whole run, whose points the run merges

let columns = [];  // names of a row's values, in order
const past = {recent: [], whole: []};
let span = 'recent';
let fetched = 0;
let began = 0;  // the run, in seconds since 1970
let threshold = null;
const charts = new Map();

const timeOf = (row) => new Date(1000 * (began + row[0]));

// Called with the first points: an empty chart has no scale.
function makeChart(id, rows) {
  const {log, zero, lines} = SERIES[id];
  const at = find(id);
  const chart = new Dygraph(at, rows, {
    labels: ['t', ...lines.map((line) => line[1])],
    logscale: Boolean(log),
    includeZero: Boolean(zero),
    labelsDiv: at.parentElement.querySelector('.key'),
    legend: 'always',
    legendFormatter: (data) => keyOf(id, data),
    interactionModel: {},  // so that a finger scrolls the page, not the chart
    axes: {
      x: {drawGrid: false, pixelsPerLabel: 80},
      y: {axisLabelWidth: 44, ...(log ? {ticker: decadeTicks} : {pixelsPerLabel: 30})},
    },
    axisLabelFontSize: 12,
    xRangePad: 2,
    yRangePad: 6,
    strokeWidth: 2,
    highlightCircleSize: 3,
    connectSeparatedPoints: false,
    underlayCallback: (context, area, drawn) => markEvents(context, area, drawn, eventCounts(), colour('event')),
  });
  charts.set(id, chart);
  new ResizeObserver(() => chart.resize()).observe(at);
  paint(id, chart);
}

/// Applies the theme's colours.
export function paintCharts() {
  for (const [id, chart] of charts) paint(id, chart);
}

function paint(id, chart) {
  const series = {};
  for (const [, label, name, dashed] of SERIES[id].lines) {
    series[label] = {color: colour(name), strokePattern: dashed ? [5, 4] : null,
                     strokeWidth: dashed ? 1.5 : 2};
  }
  chart.updateOptions({series, axisLineColor: colour('line'), gridLineColor: colour('line')});
}

/// Fetches the history. Throws on failure.
export async function fetchPast() {
  const answer = await fetch('/history');
  if (!answer.ok) throw new Error(`history: ${answer.status}`);
  const history = await answer.json();
  columns = history.columns;
  past.recent = history.recent;
  past.whole = history.whole;
  fetched = Date.now();
  drawCharts();
}

/// Adds the state's point, a row of the history, unless it is there already.
export function addPoint({t, point, novelty}) {
  began = Date.now() / 1000 - t;
  threshold = novelty.threshold ?? null;
  if (columns.length === 0 || !point || point[0] <= past.recent.at(-1)?.[0]) return;
  past.recent.push(point);
  if (past.recent.length > RECENT) past.recent.shift();
  if (span === 'whole') past.whole.push(point);
  if (span === 'whole' && Date.now() - fetched > REFRESH_MS) {
    fetchPast().catch(() => {});
  } else {
    drawCharts();
  }
}

/// "recent" or "whole".
export function showSpan(name) {
  span = name;
  drawCharts();
  if (span === 'whole') fetchPast().catch(() => {});
}

/// Draws those that are visible.
export function drawCharts() {
  const rows = past[span];
  if (rows.length === 0) return;
  const column = Object.fromEntries(columns.map((name, i) => [name, i]));
  const value = (row, name) => {
    if (name === 'threshold') return threshold;
    if (name === 'F') return row[column.budget] > 0 ? 1000 / row[column.budget] : null;
    const v = row[column[name]];
    return v === 0 && (name === 'budget' || name === 'loss') ? null : v;
  };
  for (const [id, {lines}] of Object.entries(SERIES)) {
    if (!find(id).offsetParent) continue;
    const file = rows.map((row) => [timeOf(row), ...lines.map(([name]) => value(row, name))]);
    if (charts.has(id)) charts.get(id).updateOptions({file});
    else makeChart(id, file);
  }
}

// [time, events so far] for each row.
function eventCounts() {
  const at = columns.indexOf('events');
  return past[span].map((row) => [timeOf(row), row[at]]);
}

// The legend above a chart: the values under the pointer, else the latest.
function keyOf(id, data) {
  const chart = charts.get(id);
  const key = document.createDocumentFragment();
  SERIES[id].lines.forEach(([, label, name], i) => {
    const shown = data.series.find((one) => one.label === label);
    const y = data.x !== undefined ? shown?.y : chart?.getValue(chart.numRows() - 1, i + 1);
    if (y === null || y === undefined) return;
    key.append(make('span', name, `${label} `, make('b', '', three(y))));
  });
  return key;
}

// 1, 2 and 5 times each power of ten; on wide ranges the powers alone.
function decadeTicks(from, to) {
  const ticks = [];
  const wide = Math.log10(to / from) > 2;
  for (let decade = Math.floor(Math.log10(from)); decade <= Math.ceil(Math.log10(to)); ++decade) {
    for (const digit of wide ? [1] : [1, 2, 5]) {
      const v = digit * 10 ** decade;
      if (v >= from && v <= to) ticks.push({v, label: three(v).replace(/(\.\d*?)0+$/, '$1')});
    }
  }
  return ticks;
}
