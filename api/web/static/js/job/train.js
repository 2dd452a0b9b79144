// The dialog that has a candidate trained: data set, recipe and steps, and the service's word on them.

import { Away, randomKey, Refused, request } from "../shared/api.js";
import { byId, element, setText } from "../shared/dom.js";
import { count, millions, whole } from "../shared/format.js";

// The service's own choice, by family: models with memory read contiguous text.
const FIRST_RECIPE = { srupp: "quick", transformer_xl: "quick", gpt2: "modern" };
const FIRST_DATASET = "python";
// The task of a recipe decides which models it can train.
const TASKS = { generates: new Set(["streams", "sentences"]), encodes: new Set(["masked"]) };

export class TrainDialog {
  /** `onMade()` hears that a training was submitted, `inherits()` says whether the job searches parts of a model, which can begin with its weights. */
  constructor({ onMade, inherits }) {
    Object.assign(this, { onMade, inherits });
    byId("dataset").addEventListener("change", () => this.#explain());
    byId("recipe").addEventListener("change", () => this.#offerDatasets());
    byId("training-no").addEventListener("click", () => byId("training").close());
    byId("training-form").addEventListener("submit", (event) => {
      event.preventDefault(); // The dialog closes when the service has agreed.
      this.#submit();
    });
  }

  async open(candidate) {
    this.candidate = candidate;
    this.key = randomKey(); // A second click on the same question makes no second training.
    setText(byId("training-title"), `Train candidate ${whole(candidate.number)}`);
    setText(byId("training-problem"), "");
    byId("training-go").disabled = true;
    if (!byId("training").open) byId("training").showModal();
    try {
      this.choices = await Promise.all([request("/v1/catalogue/recipes"), request("/v1/datasets")]);
      this.#offer();
    } catch (error) {
      this.#refused("Recipes and data sets could not be loaded", error);
    }
  }

  #offer() {
    const wanted = this.candidate.generates ? TASKS.generates : TASKS.encodes;
    const { family } = this.candidate;
    const fits = ({ recipe }) => recipe.order === "shuffled" ? family === "gpt2" : recipe.architecture == null || familyOfScheme(recipe.initialisation) === family;
    // Of one candidate, a training takes the longer the more tokens it has.
    const inherits = this.inherits();
    this.recipes = this.choices[0].filter((recipe) => wanted.has(recipe.task) && (inherits || !heals(recipe))).sort((a, b) => heals(b) - heals(a) || fits(b) - fits(a) || a.tokens - b.tokens);
    const says = (recipe) => heals(recipe) ? " (heals: begins with my model's weights)" : fits(recipe) ? "" : " (of other models)";
    fill(byId("recipe"), this.recipes.map((recipe) => [recipe.name, recipe.name + says(recipe)]), inherits ? this.recipes[0]?.name : FIRST_RECIPE[family]);
    this.#offerDatasets();
  }

  /** The data sets that the recipe can use; several of one name are distinguished by their digests, as in the service. */
  #offerDatasets() {
    const sets = this.choices[1].filter((set) => set.parallel === (this.#recipe()?.task === "pairs"));
    const several = (name) => sets.filter((set) => set.name === name).length > 1;
    this.sets = new Map(sets.map((set) => [several(set.name) ? set.digest : set.name, set]));
    const titles = [...this.sets].map(([value, set]) => [value, several(set.name) ? `${set.name} (${set.level}, ${set.digest.slice(0, 8)})` : set.name]);
    fill(byId("dataset"), titles, FIRST_DATASET);
    this.#explain();
  }

  #recipe() {
    return this.recipes.find(({ name }) => name === byId("recipe").value);
  }

  #explain() {
    const [set, recipe] = [this.sets.get(byId("dataset").value), this.#recipe()];
    setText(byId("dataset-says"), set ? [set.title, `tokens: ${set.level}${set.vocab_size ? `, vocabulary of ${count(set.vocab_size, "token")}` : ""}`].filter(Boolean).join("; ") : "");
    setText(byId("recipe-says"), recipe ? `${recipe.title}; ${millions(recipe.tokens)} tokens${recipe.dataset ? `; published for ${recipe.dataset}` : ""}` : "No recipe fits this model.");
    byId("steps").placeholder = recipe ? String(recipe.steps) : "";
    byId("training-go").disabled = !set || !recipe;
  }

  /** What is asked for; null where the steps are no number. */
  get #body() {
    const steps = byId("steps").value.trim();
    if (byId("steps").validity.badInput || (steps && !/^[1-9]\d*$/.test(steps))) return null;
    return {
      candidate: this.candidate.id, dataset: byId("dataset").value, recipe: byId("recipe").value,
      ...(heals(this.#recipe()) ? { inherit: true } : {}),
      ...(steps ? { budget: { steps: Number(steps) } } : {}),
    };
  }

  async #submit() {
    const body = this.#body;
    if (body === null) {
      setText(byId("training-problem"), "Steps must be a whole number of at least 1, or empty.");
      byId("steps").focus();
      return;
    }
    byId("training-go").disabled = true;
    setText(byId("training-problem"), "");
    try {
      const steps = body.budget?.steps ?? "";
      const key = `${this.key}-${steps}-${body.recipe}-${body.dataset}`.slice(0, 200);
      await request("/v1/trainings", { method: "POST", body, headers: { "idempotency-key": key } });
      byId("training").close();
      this.onMade();
    } catch (error) {
      this.#refused("Not trained", error);
    } finally {
      byId("training-go").disabled = false;
    }
  }

  #refused(what, error) {
    if (!(error instanceof Away || error instanceof Refused)) throw error;
    setText(byId("training-problem"), `${what}: ${error.message}`);
  }
}

/** Whether a recipe trains a part of a model, with that model as its teacher. */
const heals = (choice) => choice?.recipe.distil != null;
/** The family of models (`shape.js`) that a recipe initialises. */
const familyOfScheme = (scheme) => FAMILIES.find(([begin]) => scheme.startsWith(begin))?.[1] ?? "gpt2";
const FAMILIES = [["transformer_xl", "transformer_xl"], ["srupp", "srupp"], ["bert", "encoder"]];

function fill(select, titles, first) {
  const chosen = select.value;
  select.replaceChildren(...titles.map(([value, title]) => element("option", { value, text: title })));
  const values = titles.map(([value]) => value);
  select.value = [chosen, first, values[0]].find((value) => values.includes(value)) ?? "";
}
