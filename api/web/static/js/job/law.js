// The job's quality law: how far its predictions agree with trainings, and moving the job to a newer version.

import { patiently, pause, randomKey, request } from "../shared/api.js";
import { byId, element, fillRows, setNotice, setText } from "../shared/dom.js";
import { count, figure, MISSING } from "../shared/format.js";
import { splitTitle } from "../training/view.js";

const MOVING_MS = 700;

export class JobLaw {
  /** `onMoved()` is called when the job has been moved to another law: proxies, predictions and frontiers are new. */
  constructor(jobId, onMoved) {
    this.path = `/v1/jobs/${encodeURIComponent(jobId)}/law`;
    this.onMoved = onMoved;
    this.following = false;
    byId("law-probe").addEventListener("click", (event) => this.#probe(event.target));
  }

  /** Shows the law as it is now; follows a move until it has ended. */
  async look() {
    this.#show(await patiently(this.path));
  }

  /** A `law` event: the job was moved, or could not be. */
  hear({ error }) {
    if (error) setNotice(byId("law-notice"), `The job could not be moved: ${error}`, "bad");
    else this.onMoved();
    this.look();
  }

  #show(view) {
    byId("law").hidden = !view.law;
    if (!view.law) return;
    const { agreement } = view;
    setText(byId("law-facts"), `law ${view.law.law} · ${view.law.label && `${view.law.label} · `}${count(view.law.models, "model")} · ${view.law.relative_to ? `perplexity by that of ${view.law.relative_to}` : "perplexity"} on ${view.law.data}, ${view.law.split} · trained ${view.law.trained}`);
    const moving = view.moving_to ? `Moving to ${view.moving_to}: the candidates are being predicted again. ` : "";
    if (moving || !byId("law-notice").classList.contains("bad")) setNotice(byId("law-notice"), moving + view.note);
    byId("law-agreement").hidden = byId("law-scroll").hidden = !agreement;
    byId("law-none").hidden = Boolean(agreement);
    if (agreement) this.#showAgreement(agreement, view.law);
    byId("law-moves").replaceChildren(...(view.moving_to ? [] : view.newer.map((law) => this.#button(law))));
    if (view.moving_to && !this.following) this.#follow();
  }

  /** Pairs only where the law's models were trained alike: else the figures are of different things. */
  #showAgreement(agreement, law) {
    const { dataset, split, recipe, models, held, alike, ratio, spearman } = agreement;
    const order = spearman === null ? "" : ` Only their order can be compared: its rank correlation with the prediction is ${spearman.toFixed(2)}.`;
    byId("law-agreement").className = alike ? "summary" : "notice warn";
    setText(byId("law-agreement"), alike
      ? `${held} of ${count(models, "interval")} contain the trained perplexity (${dataset}, ${splitTitle(split)}, recipe ${recipe}).`
      : `Not comparable: these models were trained on ${dataset} (${splitTitle(split)}) with recipe ${recipe}, those of the law on ${law.data} (${law.split}), ${law.trained}. Trained is ${figure(ratio)} times predicted in the median.${order}`);
    fillRows(byId("law-table"), agreement.rows.map((row) => element("tr", {},
      element("td", { text: String(row.number), title: row.candidate_id }),
      element("td", { text: row.name }),
      element("td", { class: "number", text: alike ? figure(row.predicted) : MISSING }),
      element("td", { class: "number", text: alike ? `${figure(row.low)} to ${figure(row.high)}` : MISSING }),
      element("td", { class: "number" }, row.training_id === null ? figure(row.trained) : element("a", { href: `/trainings/${encodeURIComponent(row.training_id)}`, text: figure(row.trained) })),
      element("td", { text: alike ? `${row.held ? "holds" : "missed"}${row.learnt_from ? ", predicted without it" : ""}` : "not comparable" }),
    )));
  }

  #button(law) {
    const models = count(law.models, "model");
    return element("button", {
      type: "button", text: `Move to ${law.law}`,
      title: `${models}, ${law.data}, trained ${law.trained}. Candidates are predicted again and the frontier is recomputed; nothing is measured.`,
      on: { click: (event) => this.#move(law, event.target) },
    });
  }

  async #move({ name, version }, button) {
    button.disabled = true;
    try {
      setNotice(byId("law-notice"), "");
      this.#show(await request(this.path, { method: "POST", body: { law: name, version } }));
    } catch (error) {
      setNotice(byId("law-notice"), `Could not move the job: ${error.message}`, "bad");
      button.disabled = false;
    }
  }

  /** Trains the models that make the answer surest; a `law` event tells when the job has moved. */
  async #probe(button) {
    button.disabled = true;
    try {
      const { trainings, expected } = await request(this.path.replace(/law$/, "probe"), {
        method: "POST", body: { trainings: 5 }, headers: { "Idempotency-Key": randomKey() },
      });
      const [low, high] = [expected.low, expected.high].map((ratio) => (100 * ratio).toFixed(1));
      setNotice(byId("law-notice"), `${count(trainings.length, "training")} started. Expected after them: a predicted perplexity of ${low} to ${high} % of the stock model's${expected.label && ` (${expected.label})`}.`);
    } catch (error) {
      setNotice(byId("law-notice"), `Could not start trainings: ${error.message}`, "bad");
      button.disabled = false;
    }
  }

  async #follow() {
    this.following = true;
    let view;
    do {
      await pause(MOVING_MS);
      view = await patiently(this.path);
    } while (view.moving_to);
    this.following = false;
    this.#show(view);
    this.onMoved();
  }
}
