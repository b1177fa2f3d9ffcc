// What all parts of the page use: numbers formatted for people, and elements.

/// Three significant digits: 0.00421, 34.2, 1 240.
export function three(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const decimals = Math.min(7, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)))));
  return grouped(value, decimals);
}

/// 12 345, with narrow spaces.
export const count = (value) => grouped(value, 0);

function grouped(value, decimals) {
  const digits = {minimumFractionDigits: decimals, maximumFractionDigits: decimals};
  return value.toLocaleString('en', digits).replaceAll(',', '\u202f');
}

/// Seconds as 0:42, 12:05 or 3:07:00.
export function clock(seconds) {
  const s = Math.max(0, Math.round(seconds));
  const two = (n) => String(n).padStart(2, '0');
  const hours = Math.floor(s / 3600);
  const minutes = Math.floor(s / 60) % 60;
  return hours > 0 ? `${hours}:${two(minutes)}:${two(s % 60)}` : `${minutes}:${two(s % 60)}`;
}

/// A moment, in seconds since 1970, as 14:05:12, or as "2 Jan 2026, 14:05" if it isn't of today.
export function moment(seconds) {
  const at = new Date(1000 * seconds);
  const today = at.toDateString() === new Date().toDateString();
  return at.toLocaleString('en-GB', today ? {timeStyle: 'medium'} : {dateStyle: 'medium', timeStyle: 'short'});
}

/// How long ago a moment is: "just now", "12 min ago".
export function ago(seconds) {
  const passed = Date.now() / 1000 - seconds;
  if (passed < 45) return 'just now';
  const [unit, size] = [['day', 86400], ['h', 3600], ['min', 60]].find(([, of]) => passed >= of) ?? ['min', 60];
  const number = Math.max(1, Math.round(passed / size));
  return `${number} ${unit}${unit === 'day' && number > 1 ? 's' : ''} ago`;
}

/// A colour by its name in app.css.
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/// The element of that id.
export const find = (id) => document.getElementById(id);

/// Sets an element's text only if it changes, which avoids needless layout.
export function say(id, text) {
  const element = find(id);
  if (element.textContent !== text) element.textContent = text;
}

/// A new element of that class.
export function make(tag, name, ...parts) {
  const element = document.createElement(tag);
  element.className = name;
  element.append(...parts);
  return element;
}

/// A new button that calls `press`.
export function makeButton(name, text, press) {
  const button = make('button', name, text);
  button.type = 'button';
  button.addEventListener('click', press);
  return button;
}
