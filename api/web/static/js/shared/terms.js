// Words that are explained where they stand: a press on one shows its title beside it, also by keyboard and by finger.

import { byId, setText } from "./dom.js";

const EDGE = 8; // pixels that stay free at the window's edges
let shown = null; // the button whose title is shown

function hide() {
  if (!shown) return;
  byId("term").hidePopover();
  shown.removeAttribute("aria-expanded");
  shown = null;
}

/** Below its word, or above it where there is no room; nowhere once the word is out of sight. */
function place() {
  if (!shown) return;
  byId("term").style.left = 0; // as wide as it can be
  const [word, box] = [shown.getBoundingClientRect(), byId("term").getBoundingClientRect()];
  if (word.bottom < 0 || word.top > innerHeight) return hide();
  const fitsBelow = word.bottom + box.height + EDGE < innerHeight;
  byId("term").style.left = `${Math.max(EDGE, Math.min(word.left, innerWidth - box.width - EDGE))}px`;
  byId("term").style.top = `${fitsBelow ? word.bottom + EDGE / 2 : Math.max(EDGE, word.top - box.height - EDGE / 2)}px`;
}

function show(button) {
  hide();
  shown = button;
  setText(byId("term"), button.title);
  byId("term").showPopover();
  button.setAttribute("aria-expanded", "true");
  place();
}

addEventListener("click", ({ target }) => {
  const button = target.closest("button.term");
  if (button?.title && button !== shown) show(button);
  else hide();
});
addEventListener("focusin", ({ target }) => target !== shown && hide());
addEventListener("scroll", place);
addEventListener("resize", place);
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !shown) return;
  event.stopImmediatePropagation(); // Escape means something else on some pages.
  hide();
}, { capture: true });
