// The tiles of the engine: whether it keeps up, how well it predicts.
import {count, find, say, three} from './format.js';

export function showEngine(state) {
  const {frames, latency_ms: latency, rate, realtime, task, schedule} = state;
  say('engine-brief', [
    `${three(rate.predicted_fps)} frames per second`, `real time: ${verdict(realtime)[1].toLowerCase()}`, `${task}, ${schedule}`,
  ].join('  ·  '));
  showVerdict(state);
  state.accuracy ? showAccuracy(state) : showLoss(state);
  say('fps', three(rate.predicted_fps));
  say('fps-why', [
    realtime.F > 0 ? `of ${three(realtime.F)}` : '',
    rate.fps === 0 && rate.predicted_fps > 0 ? 'only predicted now' : '',
    `${count(frames.before + frames.trained)} learned`,
    `${count(frames.dropped)} dropped`,
    frames.predicted_only > 0 ? `${count(frames.predicted_only)} of them predicted` : '',
    frames.replayed > 0 ? `${count(frames.replayed)} replayed` : '',
  ].filter(Boolean).join(', '));
  say('latency', three(latency.recent_p50));
  say('latency-why', `p99 ${three(latency.recent_p99)}, max ${three(latency.max)}`);
  say('correction', ['Old gradients: ' + state.correction, state.local_note, rollBacks(state), eager(state)].filter(Boolean).join('; '));
}

function verdict({F, judged, holds}) {
  if (F > 0 && !judged) return ['rests', 'No verdict'];
  if (!(F > 0)) return ['rests', 'No rate to hold'];
  return holds ? ['good', 'Holds'] : ['bad', 'Fails'];
}

function showVerdict({realtime, timing_ms: timing}) {
  const {budget_ms: budget, judged, holds, reason} = realtime;
  const [mood, text] = verdict(realtime);
  const mean = find('gauge-mean');
  const busy = find('gauge-busy');
  busy.parentElement.hidden = !(budget > 0);
  busy.style.width = `${Math.min(100, timing.bottleneck / budget * 100 || 0)}%`;
  mean.style.left = `${Math.min(100, timing.T_over_N / budget * 100 || 0)}%`;
  find('verdict').dataset.mood = mood;
  say('verdict-text', text);
  say('verdict-why', judged && holds
      ? `slowest stage ${three(timing.bottleneck)} of ${three(budget)} ms, T/N ${three(timing.T_over_N)}` : reason);
}

function rollBacks({guard: {roll_backs: times, last_frame: frame, rate}, learning_rate: now}) {
  if (times === 0) return '';
  const left = rate < 1 ? `, learning rate ${three(now)} for now` : '';
  return `rolled back ${times === 1 ? 'once' : `${count(times)} times`}, last at frame ${count(frame)}${left}`;
}

function eager({capture_error: error}) {
  return error ? `steps run eagerly, and slowly, since recording failed: ${error}` : '';
}

function showLoss({loss: {recent}, learned: {yes, strongest, times}, psnr_db: psnr}) {
  say('loss', three(recent));
  const why = find('loss-why');
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
  find('loss-why').dataset.mood = yes ? 'good' : 'rests';
  say('loss-why', `majority class ${percent(majority.recent)}, loss ${three(loss.recent)}`
      + (strongest ? `; ${yes ? 'better' : 'no better'} than the ${strongest}` : ''));
}
