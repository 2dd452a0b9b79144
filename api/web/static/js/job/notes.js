// What a person should know of a target, the most important first: read at once, or folded away below the answer.

import { byId, setNotice, setText } from "../shared/dom.js";

const NOTICES = ["target-note", "caveat"]; // In this order, wherever they are.
const SENTENCES = /(?<=\.) (?=[A-Z*])/;

/** Shows a notice; one that only explains the answer is folded away. */
export function showNote(id, text, kind, isFolded) {
  setNotice(byId(id), text, kind);
  const place = byId(isFolded ? "folded" : "said");
  if (byId(id).parentElement === place) return;
  place.append(...NOTICES.map(byId).filter((notice) => notice.id === id || notice.parentElement === place));
}

const OPTIONS = / \(((?:--|edgefront )[^)]+)\)/g; // A sentence names the options of a command so (`core.services.jobs.answers`).

/** Shows a sentence without the options of the command line in it, and those in `line`, whose fold is hidden where there are none. */
export function setWords(node, text, line) {
  setText(node, text.replace(OPTIONS, ""));
  setText(line, [...text.matchAll(OPTIONS)].map(([, option]) => option).join("\n"));
  line.parentElement.hidden = !line.textContent;
}

/** Of a text what none of the notices says: nothing is on the page twice. */
export function unsaid(text) {
  const said = NOTICES.map((id) => byId(id).textContent).join(" ");
  return text.split(SENTENCES).filter((sentence) => !said.includes(sentence.replaceAll("`", "")));
}
