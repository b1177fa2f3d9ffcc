// Events: runs of frames that the network failed to predict, with pictures of each.
import {clock} from './format.js';

const SHOWN = 12;  // events with pictures; the charts mark all

let known = null;  // events seen so far; null: no state yet
const pictures = [];  // {t, urls}

function urlOf(id) {
  const canvas = document.getElementById(id);
  return canvas.width > 0 && !canvas.parentElement.hidden ? canvas.toDataURL('image/jpeg', 0.8) : '';
}

/// When an event begins, keeps the target frame and its error map.
export function showEvents({t, novelty}) {
  if (known !== null && novelty.events > known) {
    pictures.push({t, urls: [urlOf('target') || urlOf('input'), urlOf('error')].filter(Boolean)});
    if (pictures.length > SHOWN) pictures.shift();
    draw();
  }
  known = novelty.events;
}

function draw() {
  const list = document.getElementById('events');
  list.parentElement.hidden = pictures.length === 0;
  list.replaceChildren(...pictures.map(({t, urls}) => {
    const figure = document.createElement('figure');
    const caption = Object.assign(document.createElement('figcaption'), {textContent: clock(t)});
    figure.append(...urls.map((src) => Object.assign(new Image(), {src, alt: `Unexpected at ${clock(t)}`})), caption);
    return figure;
  }));
}

/// Draws a line in `chart` wherever the number of events in `counts`, [[t, events], ...], grows.
export function markEvents(context, area, chart, counts, colour) {
  context.save();
  context.strokeStyle = colour;
  context.setLineDash([2, 3]);
  for (let i = 1; i < counts.length; ++i) {
    if (!(counts[i][1] > counts[i - 1][1])) continue;
    const x = Math.round(chart.toDomXCoord(counts[i][0])) + 0.5;
    context.beginPath();
    context.moveTo(x, area.y);
    context.lineTo(x, area.y + area.h);
    context.stroke();
  }
  context.restore();
}
