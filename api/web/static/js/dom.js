// Building and filling elements. Data only ever becomes text: nothing here reads HTML.

export const byId = (id) => document.getElementById(id);

/** A new element. `attributes`: `class`, `text`, `on` ({event: listener}), and any attribute by its own name. */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

/** Sets text only where it changed, so that screen readers and selections are left in peace. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Shows `text` in a notice, or hides it when there is none. `kind`: "", "warn" or "bad". */
export function setNotice(node, text, kind = "") {
  node.className = `notice ${kind}`.trim();
  setText(node, text);
  node.hidden = !text;
}

/** `work` at once, then at most every `pause()` milliseconds however often it is asked for; the last call is not lost. */
export function throttled(work, pause) {
  let timer = null;
  let last = -Infinity;
  return () => {
    if (timer !== null) return;
    timer = setTimeout(() => {
      timer = null;
      last = performance.now();
      work();
    }, Math.max(0, last + pause() - performance.now()));
  };
}
