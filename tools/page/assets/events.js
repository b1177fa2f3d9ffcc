// What it found: the list of events, with their pictures.
import {ago, find, make, makeButton, moment, say, three} from './format.js';
import {order} from './controls.js';

const REASONS = {
  local: 'Something new', picture: 'The picture changed', frozen: 'The picture is frozen', covered: 'The camera is covered',
  moved: 'The camera moved', light: 'The light changed', camera: 'The camera was lost',
};

let revision = null;
let found = [];  // newest first, as /events gives them
let teachable = false;

/// What happened, in words.
export function reasonOf({reason, zone}) {
  return (REASONS[reason] ?? 'Something unexpected') + (zone ? ` at ${zone}` : '');
}

/// The newest event, or undefined.
export const lastFound = () => found[0];

export function startEvents() {
  find('all-seen').addEventListener('click', () => order('/events', {mark: 'seen'}));
  const shown = find('shown');
  shown.addEventListener('click', ({target}) => { if (target === shown) shown.close(); });
  setInterval(showTimes, 20000);
}

/// Fetches the list again when the run says that it has changed.
export function showEvents({events}) {
  if (events.revision === revision) return;
  revision = events.revision;
  teachable = events.teachable;
  say('unseen', `${events.unseen} new`);
  find('unseen').hidden = find('all-seen').hidden = events.unseen === 0;
  document.title = events.unseen > 0 ? `(${events.unseen}) Millrace` : 'Millrace';
  fetchEvents().catch(() => { revision = null; });  // again with the next state
}

async function fetchEvents() {
  const answer = await fetch('/events');
  if (!answer.ok) throw new Error(`events: ${answer.status}`);
  found = (await answer.json()).events;
  find('none-found').hidden = found.length > 0;
  // What is shown already stays, so that pictures aren't loaded again.
  const list = find('events');
  const before = new Map([...list.children].map((row) => [row.dataset.name, row]));
  list.replaceChildren(...found.map((event) => {
    const row = before.get(event.name) ?? makeRow(event);
    fill(row, event);
    return row;
  }));
  showTimes();
}

function makeRow(event) {
  const picture = Object.assign(new Image(), {loading: 'lazy', src: event.picture, alt: `The picture of frame ${event.frame ?? event.event}`});
  picture.addEventListener('load', () => place(picture, event));
  const thumb = makeButton('thumb', picture, () => enlarge(event));
  const row = make('li', 'event', thumb, make('div', 'about',
      make('b', 'reason'), make('time', ''), make('p', 'small detail'), make('p', 'marks')));
  row.dataset.name = event.name;
  return row;
}

// A snapshot is a strip of several pictures: only the frame itself is shown, with its box.
function place(picture, {crop, box, size}) {
  const [x, y, width, height] = crop ?? [0, 0, picture.naturalWidth, picture.naturalHeight];
  const thumb = picture.parentElement;
  thumb.style.aspectRatio = `${width} / ${height}`;
  Object.assign(picture.style, {
    width: `${100 * picture.naturalWidth / width}%`, left: `${-100 * x / width}%`, top: `${-100 * y / height}%`,
  });
  if (!box || !size || thumb.querySelector('i')) return;
  const frame = make('i', 'box');
  const percent = (v, of) => `${100 * v / of}%`;
  Object.assign(frame.style, {left: percent(box[0], size[0]), top: percent(box[1], size[1]),
                              width: percent(box[2], size[0]), height: percent(box[3], size[1])});
  thumb.append(frame);
}

function fill(row, event) {
  row.classList.toggle('marked', Boolean(event.mark));
  row.querySelector('.reason').textContent = reasonOf(event);
  row.querySelector('.detail').textContent = [
    Number.isFinite(event.deviation) ? `deviation ${three(event.deviation)}` : '',
    Number.isFinite(event.frame) ? `frame ${event.frame}` : '', event.this_run ? '' : 'earlier run',
  ].filter(Boolean).join('  ·  ');
  const marks = row.querySelector('.marks');
  const offers = [['seen', 'Mark seen', !event.mark],
                  ['normal', 'This is normal', teachable && event.this_run && event.mark !== 'normal']];
  marks.replaceChildren(...offers.filter(([, , offered]) => offered).map(
      ([mark, text]) => makeButton(mark, text, () => order(event.picture, {mark}))));
  if (event.mark) marks.prepend(make('span', 'mark', event.mark === 'seen' ? 'Seen' : 'Learned as normal'));
}

function showTimes() {
  const times = document.querySelectorAll('#events time');
  times.forEach((time, i) => {
    const at = found[i].time;
    time.textContent = moment(at) + (Date.now() / 1000 - at < 86400 ? `  ·  ${ago(at)}` : '');
  });
}

function enlarge(event) {
  find('shown-picture').src = event.picture;
  say('shown-what', `${reasonOf(event)}, ${moment(event.time)}`);
  find('shown').showModal();
}

/// Draws a line in `chart` wherever the number of events in `counts`, [[t, events], ...], grows.
export function markEvents(context, area, chart, counts, colour) {
  context.save();
  context.strokeStyle = context.fillStyle = colour;
  for (let i = 1; i < counts.length; ++i) {
    if (!(counts[i][1] > counts[i - 1][1])) continue;
    const x = Math.round(chart.toDomXCoord(counts[i][0])) + 0.5;
    context.globalAlpha = 0.55;
    context.beginPath();
    context.moveTo(x, area.y + 4);
    context.lineTo(x, area.y + area.h);
    context.stroke();
    context.globalAlpha = 1;
    context.beginPath();
    context.arc(x, area.y + 4, 4, 0, 7);
    context.fill();
  }
  context.restore();
}
