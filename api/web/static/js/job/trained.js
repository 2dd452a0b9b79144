// The trainings of a job's candidates, and the scores of the trained models.

import { eachPage, pause } from "../shared/api.js";
import { element } from "../shared/dom.js";
import { count, figure } from "../shared/format.js";
import { hasEnded, qualityOf, qualityText, splitTitle, stateTitle } from "../training/view.js";

const ROUND_MS = 3000; // While one of them runs.
const SLOW_ROUND_MS = 30000;

export class Trained {
  /** `onChange()` hears that something about them is new. */
  constructor(jobId, onChange) {
    this.address = `/v1/trainings?limit=200&job=${encodeURIComponent(jobId)}`;
    this.onChange = onChange;
    this.digests = new Map(); // digest → TrainingViews, newest first
    this.group = undefined; // of most of the trained models
    this.scores = new Map(); // candidate id → TrainedView: what its architecture scored in whatever training
    this.said = "[]";
  }

  /** Runs as long as the page is open: trainings may start long after a search has ended. */
  async follow() {
    for (;;) {
      if (!document.hidden) await this.look();
      const running = [...this.digests.values()].flat().some((each) => !hasEnded(each));
      await Promise.race([pause(running ? ROUND_MS : SLOW_ROUND_MS), new Promise((wake) => (this.wake = wake))]);
    }
  }

  /** Takes the TrainedViews of a frontier: scores outlive their trainings, and belong to the same architecture of other jobs too. */
  know(scores) {
    for (const score of scores) this.scores.set(score.candidate_id, score);
  }

  /** Looks at once: there is a new one. */
  lookNow() {
    this.wake?.();
  }

  async look() {
    const digests = new Map();
    for await (const page of eachPage(this.address)) {
      for (const training of page.filter((each) => each.digest)) {
        digests.set(training.digest, [...(digests.get(training.digest) ?? []), training]);
      }
    }
    this.digests = digests;
    this.group = largest([...digests.values()].map((found) => [...new Set(found.filter((each) => qualityOf(each)?.final).map(alike))]));
    this.like = [...digests.values()].flat().find((each) => qualityOf(each)?.final && alike(each) === this.group);
    const said = JSON.stringify([...digests].map(([digest, found]) => [digest, found.map((each) => [each.id, stateTitle(each), qualityOf(each)])]));
    if (said === this.said) return;
    this.said = said;
    this.onChange();
  }

  /**
   * What the table says of a candidate's trainings: `{text, value, href, title}`; undefined where there are none. Only
   * scores of models that were trained alike compare, so only those of the largest such group have a `value`.
   */
  of({ id, digest }) {
    const found = this.digests.get(digest) ?? [];
    const scored = found.filter((training) => qualityOf(training)?.final);
    const training = scored.find((each) => alike(each) === this.group) ?? scored[0];
    if (!training && this.scores.has(id)) return this.#elsewhere(this.scores.get(id));
    if (found.length === 0) return undefined;
    if (!training) return { text: stateTitle(found[0]), value: null, href: addressOf(found[0]), title: `training ${stateTitle(found[0])}` };
    const quality = qualityOf(training);
    const compares = alike(training) === this.group;
    return {
      text: `${qualityText(quality)}${compares ? "" : ` (${training.dataset})`}`, value: compares ? quality.value : null, href: addressOf(training),
      title: `${quality.name} on the ${splitTitle(quality.split)} split of ${training.dataset}, trained with recipe ${training.recipe.name} for ${count(training.step, "step")}`,
    };
  }

  #elsewhere({ training_id: id, dataset, split, recipe, perplexity }) {
    const compares = !this.like || (this.like.dataset === dataset && this.like.recipe.name === recipe);
    return {
      text: `${figure(perplexity)}${compares ? "" : ` (${dataset})`}`, value: compares ? perplexity : null,
      href: id === null ? null : addressOf({ id }), title: `perplexity on the ${splitTitle(split)} split of ${dataset}, trained with recipe ${recipe}`,
    };
  }

  /** Lists them in a line with links to their pages, where the trained weights are, or hides it. */
  list(node, { digest }) {
    const found = this.digests.get(digest) ?? [];
    node.hidden = found.length === 0;
    const links = found.slice(0, 5).flatMap((training, at) => [
      at ? ", " : " ",
      element("a", { href: addressOf(training), text: `${training.dataset}, ${training.recipe.name}` }),
      ` (${describe(training)})`,
    ]);
    const all = element("a", { href: `/trainings?digest=${encodeURIComponent(digest)}`, text: count(found.length, "training") });
    node.replaceChildren(all, ":", ...links, ...(found.length > 5 ? [" and more"] : []));
  }
}

/** Two with the same one were trained and scored alike. */
function alike(training) {
  const { name, split } = qualityOf(training);
  return [training.dataset_digest ?? training.dataset, training.recipe.name, training.step, name, split].join("\n");
}

function largest(groups) {
  const counts = new Map();
  for (const group of groups.flat()) counts.set(group, (counts.get(group) ?? 0) + 1);
  return [...counts].toSorted((a, b) => b[1] - a[1])[0]?.[0];
}

const addressOf = (training) => `/trainings/${encodeURIComponent(training.id)}`;

function describe(training) {
  const quality = qualityOf(training);
  if (!quality?.final) return stateTitle(training);
  return quality.name === "bpc" ? qualityText(quality) : `perplexity ${qualityText(quality)}`;
}
