// The page's connection to the run, and the tiles at the top.
import {addPoint, fetchPast, paintCharts, showSpan} from './charts.js';
import {showControls, startControls} from './controls.js';
import {showEvents} from './events.js';
import {clock, count, say, three} from './format.js';
import {showStages} from './stages.js';

const PICTURES = ['input', 'target', 'prediction', 'error'];
const RETRY_MS = [500, 1000, 2000, 5000];

let socket = null;
let failures = 0;
let latest = null;

function connect() {
  if (socket || document.hidden) return;
  const mine = socket = new WebSocket(`${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/live`);
  mine.binaryType = 'arraybuffer';
  mine.onopen = () => {
    failures = 0;
    fetchPast().catch(() => {});
  };
  mine.onmessage = async ({data}) => {
    try {
      await (typeof data === 'string' ? show(JSON.parse(data)) : showPictures(data));
    } finally {
      mine.send('next');  // the run sends only on request
    }
  };
  mine.onclose = () => {
    if (socket !== mine) return;
    socket = null;
    goOffline();
    setTimeout(connect, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
  };
}

function goOffline() {
  document.body.classList.add('offline');
  setVerdict('away', 'Disconnected', 'the run has ended or is unreachable; retrying');
}

// A hidden page disconnects, so it costs the run nothing.
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) return connect();
  const mine = socket;
  socket = null;
  mine?.close();
});

function show(state) {
  latest = state;
  document.body.classList.remove('offline');
  const {frames, latency_ms: latency, rate, realtime} = state;
  say('run', [
    state.source, state.task, state.schedule, clock(state.t),
    `frame ${count(frames.before + frames.trained)}`
  ].join('  ·  '));
  showVerdict(state);
  state.accuracy ? showAccuracy(state) : showLoss(state);
  say('fps', three(rate.fps));
  say('fps-why', (realtime.F > 0 ? `of ${three(realtime.F)}, ` : '') + `${count(frames.dropped)} dropped`
      + (frames.predicted_only > 0 ? `, ${count(frames.predicted_only)} of them only predicted` : '')
      + (frames.replayed > 0 ? `, ${count(frames.replayed)} replayed` : ''));
  say('latency', three(latency.recent_p50));
  say('latency-why', `p99 ${three(latency.recent_p99)}, max ${three(latency.max)}`);
  showClasses(state.classes);
  showStages(state);
  say('correction', ['Old gradients: ' + state.correction, state.local_note, rollBacks(state)].filter(Boolean).join('; '));
  showControls(state.controls);
  showEvents(state);
  addPoint(state);
}

function showVerdict({realtime, timing_ms: timing, stream, controls, frames}) {
  const {F, budget_ms: budget, judged, holds, reason} = realtime;
  const mean = document.getElementById('gauge-mean');
  const busy = document.getElementById('gauge-busy');
  busy.parentElement.hidden = !(budget > 0);
  busy.style.width = `${Math.min(100, timing.bottleneck / budget * 100 || 0)}%`;
  mean.style.left = `${Math.min(100, timing.T_over_N / budget * 100 || 0)}%`;
  const times = `slowest stage ${three(timing.bottleneck)} of ${three(budget)} ms`;
  if (!stream.connected) {
    setVerdict('away', 'Source away', stream.last_error || 'waiting for the source to come back');
  } else if (controls.paused) {
    setVerdict('rests', 'Paused', `at frame ${count(frames.before + frames.trained)}`);
  } else if (frames.trained === 0) {
    setVerdict('rests', 'Starting', 'waiting for the first frame');
  } else if (F > 0 && !judged) {
    setVerdict('rests', 'No frames', reason);
  } else if (!(F > 0)) {
    setVerdict('rests', 'No rate to hold', `slowest stage ${three(timing.bottleneck)} ms`);
  } else if (holds) {
    setVerdict('good', 'Holds', `${times}, T/N ${three(timing.T_over_N)}`);
  } else {
    setVerdict('bad', 'Fails', reason);
  }
}

function setVerdict(mood, text, why) {
  document.getElementById('verdict').dataset.mood = mood;
  say('verdict-text', text);
  say('verdict-why', why);
}

function rollBacks({guard: {roll_backs: times, last_frame: frame, rate}, learning_rate: now}) {
  if (times === 0) return '';
  const left = rate < 1 ? `, learning rate ${three(now)} for now` : '';
  return `rolled back ${times === 1 ? 'once' : `${count(times)} times`}, last at frame ${count(frame)}${left}`;
}

function showLoss({loss: {recent}, learned: {yes, strongest, times}, psnr_db: psnr}) {
  say('loss', three(recent));
  const why = document.getElementById('loss-why');
  why.dataset.mood = yes ? 'good' : 'rests';
  say('loss-why', strongest && times > 0
      ? `${three(yes ? times : 1 / times)}× ${yes ? 'better' : 'worse'} than the ${strongest}` : ' ');
  // PSNR in dB, also of the trivial predictors.
  const beside = psnr && [[psnr.mean_frame.recent, 'mean'], [psnr.last_frame.recent, 'last frame']]
    .filter(([db]) => Number.isFinite(db)).map(([db, who]) => `${who} ${db.toFixed(1)}`).join(', ');
  why.title = psnr && Number.isFinite(psnr.recent) ? `PSNR ${psnr.recent.toFixed(1)} dB; ${beside}` : '';
}

function showAccuracy({accuracy, iou, loss, learned: {yes, strongest}}) {
  const {recent, majority} = iou ?? accuracy;
  const percent = (share) => `${Math.round(100 * share)} %`;
  say('loss-title', iou ? 'IoU' : 'Accuracy');
  say('loss', percent(recent));
  document.getElementById('loss-why').dataset.mood = yes ? 'good' : 'rests';
  say('loss-why', `majority class ${percent(majority.recent)}, loss ${three(loss.recent)}`
      + (strongest ? `; ${yes ? 'better' : 'no better'} than the ${strongest}` : ''));
}

// The colours of pixel classes, which don't change during a run.
function showClasses(classes) {
  const legend = document.getElementById('classes');
  legend.hidden = classes.length === 0;
  document.querySelector('#error + figcaption small').hidden = !legend.hidden;
  const text = JSON.stringify(classes);
  if (legend.dataset.shown === text) return;
  legend.dataset.shown = text;
  legend.replaceChildren(...classes.map(({name, colour}) => {
    const one = document.createElement('span');
    one.style.setProperty('--colour', colour);
    one.textContent = name;
    return one;
  }));
}

// A message: the sample's number (8 bytes), four lengths (4 bytes each), four JPEG files.
async function showPictures(message) {
  const view = new DataView(message);
  const sample = view.getBigUint64(0, true);
  let at = 8 + 4 * PICTURES.length;
  const pictures = await Promise.all(PICTURES.map((_, i) => {
    const length = view.getUint32(8 + 4 * i, true);
    const file = new Blob([new Uint8Array(message, at, length)], {type: 'image/jpeg'});
    at += length;
    return length > 0 ? createImageBitmap(file) : null;
  }));
  pictures.forEach((picture, i) => {
    const canvas = document.getElementById(PICTURES[i]);
    canvas.parentElement.hidden = !picture;  // a class is not a picture
    if (!picture) return;
    if (canvas.width !== picture.width) canvas.width = picture.width;
    if (canvas.height !== picture.height) canvas.height = picture.height;
    canvas.style.setProperty('--aspect', picture.width / picture.height);
    canvas.getContext('2d').drawImage(picture, 0, 0);
    canvas.dataset.sample = sample;
    picture.close();
  });
}

function startTheme() {
  const system = matchMedia('(prefers-color-scheme: light)');
  const apply = () => {
    const chosen = localStorage.getItem('theme');
    document.documentElement.dataset.theme = chosen ?? (system.matches ? 'light' : 'dark');
    paintCharts();
    if (latest) showStages(latest);
  };
  system.addEventListener('change', apply);
  document.getElementById('theme').addEventListener('click', () => {
    localStorage.setItem('theme', document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
    apply();
  });
  apply();
}

for (const button of document.querySelectorAll('[data-span]')) {
  button.addEventListener('click', () => {
    for (const other of document.querySelectorAll('[data-span]')) {
      other.setAttribute('aria-pressed', String(other === button));
    }
    showSpan(button.dataset.span);
  });
}
startTheme();
startControls();
connect();
