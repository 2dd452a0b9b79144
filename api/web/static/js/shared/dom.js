// Building and filling elements. Data only ever becomes text: nothing here reads HTML.

import { MISSING } from "./format.js";
import { withRoot } from "./root.js";

export const byId = (id) => document.getElementById(id);

/** A new element. `attributes`: `class`, `text`, `on` ({event: listener}), `href` (a path of the service), and any attribute by its own name. */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === "href") node.href = withRoot(value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

/** A new element of a drawing, as `element` makes those of a page. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** A colour of the style sheet, by its name there, as it is in the scheme of now. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Sets text only where it changed, so that screen readers and selections are left in peace. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets text whose `commands` stand between backticks. */
export const setCoded = (node, text) => node.replaceChildren(...text.split("`").map((part, at) => (at % 2 ? element("code", { text: part }) : part)));

/** Replaces the rows of a table, and hides it where there are none. A link in it that had the focus keeps it. */
export function fillRows(table, rows) {
  const focused = table.contains(document.activeElement) && document.activeElement.getAttribute("href");
  const titles = Array.from(table.tHead.rows[0].cells, (cell) => cell.textContent);
  for (const row of rows) {
    for (const [at, cell] of [...row.cells].entries()) {
      cell.dataset.title = titles[at]; // shown where a narrow screen has no columns
      cell.classList.toggle("none", ["", MISSING].includes(cell.textContent) && !cell.firstElementChild);
    }
  }
  table.tBodies[0].replaceChildren(...rows);
  table.hidden = rows.length === 0;
  if (focused) [...table.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
}

/** Shows `text`, as `setCoded` does, in a notice, or hides it when there is none. `kind`: "", "warn" or "bad". */
export function setNotice(node, text, kind = "") {
  node.className = `notice ${kind}`.trim();
  if (node.textContent !== text.replaceAll("`", "")) setCoded(node, text);
  node.hidden = !text;
}

/**
 * `work`, however often it is asked for, at most once in `pause()` milliseconds and in at most a fifth of the time; the
 * last call is not lost.
 */
export function throttled(work, pause) {
  let timer = null;
  let next = 0;
  return () => {
    if (timer !== null) return;
    timer = setTimeout(() => {
      timer = null;
      const began = performance.now();
      work();
      const ended = performance.now();
      next = Math.max(began + pause(), ended + 4 * (ended - began));
    }, Math.max(0, next - performance.now()));
  };
}

/** `work`, once it has not been asked for in so many milliseconds. */
export function debounced(work, ms) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, ms);
  };
}
