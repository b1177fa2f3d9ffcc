// The controls: commands for the run.
import {count, find, makeButton} from './format.js';

/// Sends the commands of the controls.
export function startControls() {
  const rate = find('rate');
  find('rate-form').addEventListener('submit', (event) => {
    event.preventDefault();
    const wanted = Number(rate.value.replace(',', '.'));
    rate.blur();
    if (rate.value.trim() !== '' && Number.isFinite(wanted)) ask({learning_rate: wanted});
  });
  rate.addEventListener('blur', () => { rate.dataset.shown = ''; });
  find('pause').addEventListener('click', (event) => {
    ask({action: event.currentTarget.dataset.action});
  });
  find('save').addEventListener('click', () => ask({action: 'save'}));
  find('forget').addEventListener('click', (event) => {
    ask({forget: event.currentTarget.dataset.label});
  });
}

// One button per class: pressed, it labels the frames of the next seconds; pressed again, none.
// While one is pressed, the button below them takes back all labels of its class.
function showLabels(names, label) {
  const buttons = find('labels');
  buttons.hidden = names.length === 0;
  if (buttons.children.length !== names.length) {
    buttons.replaceChildren(...names.map((name) => makeButton('', name, ({currentTarget: button}) => {
      ask({label: button.getAttribute('aria-pressed') === 'true' ? null : name});
    })));
  }
  for (const button of buttons.children)
    button.setAttribute('aria-pressed', String(button.textContent === label));
  const forget = find('forget');
  forget.hidden = !label;
  forget.dataset.label = label ?? '';
  forget.textContent = `Forget “${label}”`;
}

export function showControls({offered, pause_asked: asked, paused, learning_rate: now, notice, trouble, saves, label}) {
  showLabels(offered.labels, label);
  const rate = find('rate');
  const pause = find('pause');
  find('controls').hidden = !(offered.pause || offered.save);
  find('rate-form').hidden = !offered.learning_rate;
  pause.hidden = !offered.pause;
  find('save').hidden = !offered.save;
  pause.dataset.action = asked ? 'resume' : 'pause';
  pause.textContent = asked ? (paused ? 'Resume' : 'Pausing…') : 'Pause';
  if (document.activeElement !== rate && rate.dataset.shown !== String(now)) {
    rate.dataset.shown = String(now);
    rate.value = String(now);
  }
  if (trouble) return tell(trouble, true);
  tell(notice || (saves > 0 ? `saved ${saves === 1 ? 'once' : `${count(saves)} times`}` : ''));
}

const ask = (command) => order('/control', command);

/// POSTs a command; what is wrong with it appears as the notice.
export async function order(path, command) {
  try {
    const answer = await fetch(path, {
      method: 'POST',
      headers: {'Content-Type': 'application/json', 'X-Millrace': 'control'},
      body: JSON.stringify(command),
    });
    if (!answer.ok) tell((await answer.text()).trim(), true);
  } catch {
    tell('The run is unreachable.', true);
  }
}

let told = '';
let until = 0;

// Errors stay for 5 s and take precedence over notices.
function tell(text, wrong = false) {
  if (!wrong && Date.now() < until) return;
  if (wrong) until = Date.now() + 5000;
  if (text === told) return;
  told = text;
  const notice = find('notice');
  notice.textContent = text;
  notice.classList.toggle('wrong', wrong);
}
