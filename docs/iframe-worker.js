// A page that is opened as a file may start no Worker, in which the search runs: its script runs in a frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.body.appendChild(document.createElement("iframe"));
      const inside = frame.contentWindow, script = inside.document.createElement("script");
      frame.hidden = true;
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      const loaded = new Promise(done => { script.onload = done; });
      this.postMessage = data => loaded.then(() => inside.dispatchEvent(new inside.MessageEvent("message", {data})));
      script.src = url;
      inside.document.body.append(script);
    }
    terminate() {}
  };
}
