// The page's connection to the run, and what is at the top.
import {addPoint, drawCharts, fetchPast, paintCharts, showSpan} from './charts.js';
import {showControls, startControls} from './controls.js';
import {showEngine} from './engine.js';
import {lastFound, reasonOf, showEvents, startEvents} from './events.js';
import {ago, clock, find, say, three} from './format.js';
import {showMarks, showPictures} from './pictures.js';
import {showStages} from './stages.js';

const RETRY_MS = [500, 1000, 2000, 5000];
const MANY_DROPPED = 0.1;  // share of frames

const engine = find('engine');
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
      await (typeof data === 'string' ? show(JSON.parse(data)) : showPictures(data, latest, engine.open));
    } finally {
      mine.send('next');  // the run sends only on request
    }
  };
  mine.onclose = () => {
    if (socket !== mine) return;
    socket = null;
    document.body.classList.add('offline');
    setStatus('away', 'Disconnected', 'the run has ended or is unreachable; retrying');
    setTimeout(connect, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
  };
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
  say('run', `${state.source}  ·  ${clock(state.t)}`);
  showEvents(state);
  showStatus(state);
  showMarks(state);
  showAnswer(state);
  showControls(state.controls);
  showEngine(state);
  if (engine.open) showStages(state);
  addPoint(state);
}

function showStatus({stream, controls, frames, rate, realtime, novelty, t}) {
  const found = lastFound();
  if (!stream.connected) {
    setStatus('away', 'Source away', stream.last_error || 'waiting for it to come back');
  } else if (controls.paused) {
    setStatus('rests', 'Paused', 'nothing is learned or reported');
  } else if (!(frames.trained > 0 || rate.predicted_fps > 0)) {
    setStatus('rests', 'Starting', 'waiting for the first frame');
  } else if (rate.predicted_fps === 0 && t > 5) {
    setStatus('rests', 'No frames', 'the picture stands still');
  } else if (novelty.in_event) {
    setStatus('event', reasonOf(novelty.last ?? {}), 'now');
  } else if (rate.dropped_fps > MANY_DROPPED * realtime.F) {
    setStatus('rests', 'Watching, but can’t keep up', `${three(rate.dropped_fps)} of ${three(realtime.F)} frames per second are dropped`);
  } else {
    setStatus('good', 'Watching', found ? `last event ${ago(found.time)}` : 'nothing new so far');
  }
}

function setStatus(mood, text, why) {
  find('status').dataset.mood = mood;
  say('status-text', text);
  say('status-why', why);
}

// The class of what it sees, where the task is to know one.
function showAnswer({answer, frames, controls: {label, offered}}) {
  find('answer').hidden = !answer && offered.labels.length === 0;
  const sure = answer?.class != null && Number.isFinite(answer.probability) ? answer.probability : 0;
  say('answer-class', answer?.class ?? (answer?.neither ? 'None of them' : '–'));
  find('answer-bar').style.width = `${100 * sure}%`;
  say('answer-why', [
    sure > 0 ? `${Math.min(99, Math.round(100 * sure))} % sure` : answer?.neither ? 'unlike all that it was taught'
        : frames.trained === 0 ? 'nothing taught yet' : '',
    label ? `now learning “${label}”` : '',
  ].filter(Boolean).join('  ·  '));
}

function startTheme() {
  const system = matchMedia('(prefers-color-scheme: light)');
  const apply = () => {
    const chosen = localStorage.getItem('theme');
    document.documentElement.dataset.theme = chosen ?? (system.matches ? 'light' : 'dark');
    paintCharts();
    if (latest && engine.open) showStages(latest);
  };
  system.addEventListener('change', apply);
  find('theme').addEventListener('click', () => {
    localStorage.setItem('theme', document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
    apply();
  });
  apply();
}

// What is folded is not drawn.
function startEngine() {
  engine.open = localStorage.getItem('engine') === 'open';
  engine.addEventListener('toggle', () => {
    localStorage.setItem('engine', engine.open ? 'open' : 'folded');
    drawCharts();
    if (latest && engine.open) showStages(latest);
  });
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
startEngine();
startControls();
startEvents();
connect();
