// The pictures: a large one of what the camera sees, with marks on it, and the four of the engine.
import {find, make} from './format.js';

const NAMES = ['input', 'target', 'prediction', 'error', 'camera'];
const SVG = 'http://www.w3.org/2000/svg';

/// Shows a message: the sample's number (8 bytes), five lengths (4 bytes each), five JPEG files.
export async function showPictures(message, state, all) {
  const view = new DataView(message);
  const sample = view.getBigUint64(0, true);
  // Else the network's own: the newest frame is the one to be predicted.
  const seen = view.getUint32(24, true) > 0 ? 'camera' : state?.task === 'next-frame' ? 'target' : 'input';
  const mapped = state?.classes.length > 0 ? 'prediction' : '';
  let at = 8 + 4 * NAMES.length;
  const pictures = await Promise.all(NAMES.map((name, i) => {
    const length = view.getUint32(8 + 4 * i, true);
    const file = new Blob([new Uint8Array(message, at, length)], {type: 'image/jpeg'});
    at += length;
    return length > 0 && (all || name === seen || name === mapped) ? createImageBitmap(file) : null;
  }));
  pictures.forEach((picture, i) => {
    const canvas = find(NAMES[i]);
    if (all && canvas) canvas.parentElement.hidden = !picture;  // a class is not a picture
    if (!picture) return;
    if (NAMES[i] === seen) draw('scene', picture, sample);
    if (NAMES[i] === mapped) draw('map', picture, sample);
    if (canvas) draw(NAMES[i], picture, sample);
    picture.close();
  });
}

function draw(id, picture, sample) {
  const canvas = find(id);
  if (canvas.width !== picture.width) canvas.width = picture.width;
  if (canvas.height !== picture.height) canvas.height = picture.height;
  canvas.style.setProperty('--aspect', picture.width / picture.height);
  if (id === 'scene') canvas.parentElement.style.setProperty('--aspect', picture.width / picture.height);
  canvas.getContext('2d').drawImage(picture, 0, 0);
  canvas.dataset.sample = sample;
}

let marked = '';

/// Outlines the zones, what is ignored, and the box of a current event.
export function showMarks({novelty, zones = [], ignore = [], classes}) {
  showClasses(classes);
  const {width, height, dataset} = find('scene');
  if (!dataset.sample) return;
  const last = novelty.in_event ? novelty.last ?? {} : null;
  const text = JSON.stringify([zones, ignore, last, width, height]);
  if (text === marked) return;
  marked = text;
  const marks = find('marks');
  marks.setAttribute('viewBox', `0 0 ${width} ${height}`);
  const outline = (points, name) => {
    const shape = add(marks, 'polygon', name);
    shape.setAttribute('points', points.map(([x, y]) => `${x * width},${y * height}`).join(' '));
  };
  marks.replaceChildren();
  ignore.forEach((points) => outline(points.points ?? points, 'ignored'));
  for (const {name, points} of zones) {
    outline(points, 'zone');
    const label = add(marks, 'text', 'zone');
    label.setAttribute('x', Math.min(...points.map(([x]) => x)) * width + width / 100);
    label.setAttribute('y', Math.min(...points.map(([, y]) => y)) * height + height / 22);
    label.setAttribute('font-size', height / 26);
    label.textContent = name;
  }
  find('scene').classList.toggle('alarm', Boolean(last));
  if (!last?.box) return;
  const [x, y, wide, high] = last.box.map((v, i) => v / last.size[i % 2] * (i % 2 ? height : width));
  const box = add(marks, 'rect', 'box');
  Object.entries({x, y, width: wide, height: high, rx: width / 150}).forEach(([key, v]) => box.setAttribute(key, v));
}

function add(parent, tag, name) {
  const element = document.createElementNS(SVG, tag);
  element.setAttribute('class', name);
  parent.append(element);
  return element;
}

// The colours of pixel classes, which tint the picture and don't change during a run.
function showClasses(classes) {
  const legend = find('classes');
  if (!legend.hidden || classes.length === 0) return;
  legend.hidden = find('map').hidden = false;
  document.querySelector('#error + figcaption small').hidden = true;
  legend.replaceChildren(...classes.map(({name, colour}) => {
    const one = make('span', '', name);
    one.style.setProperty('--colour', colour);
    return one;
  }));
}
