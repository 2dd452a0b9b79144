// The training budget of a recommendation: for how many tokens, or how long on which worker, the model is to be trained.

import { byId, element } from "../shared/dom.js";
import { hours, tokens } from "../shared/format.js";

const OFFERED = [1e8, 3e8, 1e9, 3e9, 1e10, 3e10, 1e11, 3e11, 1e12];
const HOURS = [1, 6, 24];
const BEYOND = 10; // so many times below and above what the law knows is offered
const FIELDS = ["train_tokens", "train_hours", "trainer", "train_time", "train_time.trainer"];

export class TrainingBudget {
  /** `onChange()` hears that the reader asks for another. */
  constructor(onChange) {
    this.parameters = readParameters(new URLSearchParams(location.search)); // of the address and of the recommendation; none: the job's own
    this.select = byId("train-tokens");
    this.select.addEventListener("change", () => {
      this.parameters = this.select.selectedIndex === 0 ? {} : Object.fromEntries(new URLSearchParams(this.select.value));
      onChange();
    });
  }

  get isOwn() {
    return Object.keys(this.parameters).length === 0;
  }

  /** The job's own again: none other is known here. */
  forget() {
    this.parameters = {};
  }

  /** Whether a refusal of this field is one of what the address asks for. */
  isRefused(field) {
    return !this.isOwn && FIELDS.includes(field);
  }

  /** Takes the TrainingBudgetView of a recommendation; null where the job's law knows one budget. */
  know(training) {
    this.select.closest(".limit").hidden = !training;
    if (!training) return;
    const { own, own_time: time, known_from: least, known_to: most, trainers } = training;
    const counts = OFFERED.filter((count) => count >= (least ?? count) / BEYOND && count <= (most ?? count) * BEYOND);
    const offered = [
      ...counts.map((count) => ({ train_tokens: count })),
      ...trainers.flatMap((trainer) => HOURS.map((each) => ({ train_hours: each, trainer }))),
      ...(this.isOwn ? [] : [this.parameters]),
    ];
    const first = time ? { train_hours: time.hours, trainer: time.trainer } : { train_tokens: own };
    const texts = new Map(offered.toSorted(byAmount).map((parameters) => [valueOf(parameters), textOf(parameters)]));
    texts.delete(valueOf(first));
    const options = [[valueOf(first), `${textOf(first)}, as the search`], ...texts];
    if (options.map(([, text]) => text).join() !== [...this.select.options].map(({ text }) => text).join()) {
      this.select.replaceChildren(...options.map(([value, text]) => element("option", { value, text })));
    }
    this.select.value = valueOf(this.isOwn ? first : this.parameters);
  }
}

const valueOf = (parameters) => new URLSearchParams(parameters).toString();
const textOf = ({ train_tokens: count, train_hours: time, trainer }) => (count === undefined ? `${hours(Number(time))} on ${trainer}` : tokens(Number(count)));

/** Tokens first, then the hours of each worker. */
function byAmount(first, second) {
  const [worker, another] = [first, second].map(({ trainer }) => trainer ?? "");
  if (worker !== another) return worker < another ? -1 : 1;
  return (first.train_tokens ?? first.train_hours) - (second.train_tokens ?? second.train_hours);
}

function readParameters(query) {
  const [count, time, trainer] = [Number(query.get("train_tokens")), Number(query.get("train_hours")), query.get("trainer")];
  if (Number.isSafeInteger(count) && count > 0) return { train_tokens: count };
  return Number.isFinite(time) && time > 0 && trainer ? { train_hours: time, trainer } : {};
}
