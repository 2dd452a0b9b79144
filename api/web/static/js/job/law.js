// The job's scaling law: how far its predictions agree with trainings.

import { patiently } from "../shared/api.js";
import { byId, element, fillRows, setText } from "../shared/dom.js";
import { count, figure, MISSING } from "../shared/format.js";
import { splitTitle } from "../training/view.js";

export class JobLaw {
  constructor(jobId) {
    this.path = `/v1/jobs/${encodeURIComponent(jobId)}/law`;
  }

  /** Shows the law as it is now. */
  async look() {
    const { law, answers, agreement } = await patiently(this.path);
    byId("law").hidden = !answers;
    if (!answers) return;
    const searched = answers.law === law.law ? "" : ` · the search ranked by ${law.law}`;
    setText(byId("law-facts"), `law ${answers.law} · ${answers.label && `${answers.label} · `}${count(answers.models, "model")} · ${answers.relative_to ? `perplexity by that of ${answers.relative_to}` : "perplexity"} on ${answers.data}, ${answers.split} · trained ${answers.trained}${searched}`);
    byId("law-agreement").hidden = byId("law-scroll").hidden = !agreement;
    byId("law-none").hidden = Boolean(agreement);
    if (agreement) this.#showAgreement(agreement, answers);
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
}
