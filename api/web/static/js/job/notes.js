// What a person should know of a target, the most important first: read at once, or folded away below the answer.

import { byId, setNotice } from "../shared/dom.js";

const NOTICES = ["target-note", "caveat"]; // In this order, wherever they are.
const SENTENCES = /(?<=\.) (?=[A-Z*])/;

/** Shows a notice; one that only explains the answer is folded away. */
export function showNote(id, text, kind, isFolded) {
  setNotice(byId(id), text, kind);
  const place = byId(isFolded ? "folded" : "said");
  if (byId(id).parentElement === place) return;
  place.append(...NOTICES.map(byId).filter((notice) => notice.id === id || notice.parentElement === place));
}

/** Of a text what none of the notices says: nothing is on the page twice. */
export function unsaid(text) {
  const said = NOTICES.map((id) => byId(id).textContent).join(" ");
  return text.split(SENTENCES).filter((sentence) => !said.includes(sentence)).join(" ");
}
