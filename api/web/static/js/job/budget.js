// The training budget of a recommendation: for how many tokens the recommended model is to be trained.

import { byId, element } from "../shared/dom.js";
import { tokens } from "../shared/format.js";

const OFFERED = [1e8, 3e8, 1e9, 3e9, 1e10, 3e10, 1e11, 3e11, 1e12];
const BEYOND = 10; // so many times below and above what the law knows is offered

export class TrainingBudget {
  /** `onChange()` hears that the reader asks for another. */
  constructor(onChange) {
    this.asked = readCount(new URLSearchParams(location.search).get("train_tokens")); // null: the job's own
    this.select = byId("train-tokens");
    this.select.addEventListener("change", () => {
      this.asked = this.select.selectedIndex === 0 ? null : Number(this.select.value);
      onChange();
    });
  }

  /** As parameters of the address, of the page and of the recommendation. */
  get parameters() {
    return this.asked === null ? {} : { train_tokens: this.asked };
  }

  /** The job's own again: none other is known here. */
  forget() {
    this.asked = null;
  }

  /** Takes the TrainingBudgetView of a recommendation; null where the job's law knows one budget. */
  know(training) {
    this.select.closest(".limit").hidden = !training;
    if (!training) return;
    const { own, known_from: least, known_to: most } = training;
    const counts = OFFERED.filter((count) => count >= (least ?? count) / BEYOND && count <= (most ?? count) * BEYOND);
    if (this.asked !== null) counts.push(this.asked);
    const others = [...new Set(counts)].filter((count) => count !== own).toSorted((a, b) => a - b);
    const options = [[own, `${tokens(own)}, as the search`], ...others.map((count) => [count, tokens(count)])];
    if (options.map(([, text]) => text).join() !== [...this.select.options].map(({ text }) => text).join()) {
      this.select.replaceChildren(...options.map(([value, text]) => element("option", { value, text })));
    }
    this.select.value = String(this.asked ?? own);
  }
}

function readCount(text) {
  const count = Number(text);
  return Number.isSafeInteger(count) && count > 0 ? count : null;
}
