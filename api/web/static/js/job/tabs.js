// One tab for each target of the job (the WAI-ARIA tabs pattern: arrows move, Home and End jump).

import { byId, element, setText } from "../shared/dom.js";
import { whole } from "../shared/format.js";

export class TargetTabs {
  constructor(list, onChoose) {
    this.list = list;
    this.onChoose = onChoose;
    this.tabs = new Map(); // target id → {tab, name, count}
    list.addEventListener("keydown", (event) => this.#move(event));
  }

  show(targets, chosenId) {
    for (const target of targets) {
      let known = this.tabs.get(target.id);
      if (!known) {
        known = { name: element("span"), count: element("span", { class: "count" }) };
        known.tab = element("button", {
          type: "button", role: "tab", id: `tab-${target.id}`, "aria-controls": "panel", "data-target": target.id,
          on: { click: () => this.onChoose(target.id) },
        }, known.name, known.count);
        this.tabs.set(target.id, known);
        this.list.append(known.tab);
      }
      setText(known.name, target.name);
      setText(known.count, `${whole(target.settled)}${target.planned === null ? "" : `/${whole(target.planned)}`}`);
      known.tab.setAttribute("aria-selected", target.id === chosenId);
      known.tab.tabIndex = target.id === chosenId ? 0 : -1;
    }
    byId("panel").setAttribute("aria-labelledby", `tab-${chosenId}`);
  }

  #move(event) {
    const all = [...this.tabs.keys()];
    const here = all.indexOf(event.target.closest("[data-target]")?.dataset.target);
    const there = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: all.length - 1 }[event.key];
    if (here < 0 || there === undefined) return;
    event.preventDefault();
    const id = all[(there + all.length) % all.length];
    this.onChoose(id);
    this.tabs.get(id).tab.focus();
  }
}
