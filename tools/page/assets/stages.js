// The stages as rows: their load, and a staircase that shows one frame pass through them. Each
// column is a step; a stage's bar is as long as its median compute plus hand-off time.
import {colour, count, find, make, three} from './format.js';

let rows = [];

export function showStages(state) {
  if (rows.length !== state.stages.length) {
    rows = state.stages.map((_, i) => makeRow(i));
    find('stage-rows').replaceChildren(...rows.map((row) => row.element));
  }
  const oldest = Math.max(1, ...state.stages.map((stage) => stage.gradient_age));
  state.stages.forEach((stage, i) => {
    const row = rows[i];
    const load = Math.round(stage.load * 100);
    row.device.textContent = stage.replicas > 1 ? `${stage.device} ×${stage.replicas}` : stage.device;
    row.load.textContent = `${load} %`;
    row.meter.style.width = `${load}%`;
    row.time.textContent = `${three(stage.compute_ms)} + ${three(stage.handoff_ms)} ms`;
    row.age.textContent = `age ${stage.gradient_age}`;
    row.updates.textContent = `${count(stage.updates)} updates`;
    row.misses.textContent = stage.misses ? `${count(stage.misses)} late` : '';
    row.dead.textContent = stage.dead_units ? `${stage.dead_units} of ${stage.units} units dead` : '';
    row.element.classList.toggle('slowest', i === state.timing_ms.bottleneck_stage);
    row.age.style.setProperty('--age', stage.gradient_age / oldest);
    drawLane(row.lane, state, stage, i);
  });
}

function makeRow(index) {
  const row = {
    device: make('span', 'device'), meter: make('i', ''), load: make('span', 'percent'), lane: make('canvas', 'lane'),
    time: make('p', 'time'), age: make('span', 'age'), updates: make('span', 'updates'), misses: make('span', 'misses'),
    dead: make('span', 'dead'),
  };
  row.age.title = 'Frames between the one whose loss gave the gradient and the one it is applied at';
  row.element = make('div', 'stage', make('p', 'name', make('b', '', `Stage ${index}`), row.device),
      make('p', 'load', make('span', 'track', row.meter), row.load), row.lane, row.time,
      make('p', 'facts', row.age, row.updates, row.misses, row.dead));
  return row;
}

function drawLane(canvas, state, stage, index) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (width === 0) return;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const draw = canvas.getContext('2d');
  draw.setTransform(ratio, 0, 0, ratio, 0, 0);
  draw.clearRect(0, 0, width, height);
  const period = Math.max(state.timing_ms.step_p50, state.timing_ms.bottleneck);
  if (!(period > 0)) return;
  const stages = state.stages.length;
  const columns = Math.max(stages + 2, Math.round(width / 130));
  const scale = width / (columns * period);  // pixels per millisecond
  const narrowest = Math.min(...state.stages.map((one) => one.compute_ms / one.replicas)) * scale;
  const numbered = narrowest > 60;  // all bars or none
  drawBudget(draw, state.realtime.budget_ms * scale, width, height);
  for (let column = 0; column < columns; ++column) {
    const followed = column - index === 1;  // highlight this frame's steps
    const x = column * period * scale;
    drawBar(draw, x, height, stage, scale, followed);
    const sample = state.frames.trained + column - index;
    if (sample >= 0 && numbered) drawNumber(draw, x + 8, height, sample, followed);
  }
}

function drawBudget(draw, budget, width, height) {
  if (!(budget > 3)) return;
  draw.strokeStyle = colour('mean');
  draw.globalAlpha = 0.7;
  draw.lineWidth = 1;
  draw.setLineDash([2, 3]);
  draw.beginPath();
  for (let x = budget; x < width - 1; x += budget) {
    draw.moveTo(Math.round(x) - 0.5, 0);
    draw.lineTo(Math.round(x) - 0.5, height);
  }
  draw.stroke();
  draw.setLineDash([]);
  draw.globalAlpha = 1;
}

function drawBar(draw, x, height, stage, scale, followed) {
  const share = 1 / stage.replicas;
  const compute = Math.max(1, stage.compute_ms * share * scale - 1);
  const handoff = Math.max(1, stage.handoff_ms * share * scale);
  draw.globalAlpha = followed ? 1 : 0.28;
  draw.fillStyle = colour('net');
  draw.fillRect(x + 1, 4, compute, height - 8);
  draw.globalAlpha = followed ? 1 : 0.6;
  draw.fillStyle = colour('warm');
  draw.fillRect(x + 1 + compute, 4, handoff, height - 8);
  draw.globalAlpha = 1;
}

function drawNumber(draw, x, height, sample, followed) {
  draw.fillStyle = colour(followed ? 'on-net' : 'text');
  draw.font = `${followed ? 600 : 400} 12px ${getComputedStyle(document.body).fontFamily}`;
  draw.textBaseline = 'middle';
  draw.fillText(count(sample), x, height / 2 + 0.5);
}
