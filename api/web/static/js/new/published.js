// "Begin with published models": by which score, which of them, and in which formats and runtimes.

import { request } from "../shared/api.js";
import { byId, element, setText } from "../shared/dom.js";

/** The score that the chosen kind begins with. */
const firstScore = () => byId("published-kind").selectedOptions[0].dataset.score;
const RUNTIMES = ["llamacpp", "onnxruntime"]; // Those that are chosen at first, as far as the device has them.
const listed = (id) => byId(id).value.split(",").map((part) => part.trim()).filter(Boolean);

export class Published {
  /** `onChange()` hears that another kind of search was chosen. */
  constructor(onChange) {
    this.isRead = false;
    byId("begin").addEventListener("change", () => this.#show(onChange));
    byId("published-kind").addEventListener("change", () => (byId("score").value = firstScore()));
  }

  get isChosen() {
    return byId("begin").value === "published";
  }

  /** Fills the fields from a request's space and targets. */
  async take(space, targets) {
    byId("begin").value = "published";
    await this.#show(() => {});
    byId("score").value = space.published.score;
    byId("published-kind").value = space.published.kind ?? "any";
    byId("licence").value = space.published.licence ?? "";
    byId("min-context").value = space.published.min_context ?? "";
    byId("runtimes").value = [...new Set(targets.map(({ protocol }) => protocol.runtime))].join(", ");
  }

  /** The space of a request. */
  get space() {
    const published = {
      score: byId("score").value, kind: byId("published-kind").value,
      licence: byId("licence").value.trim() || null, min_context: byId("min-context").value === "" ? null : byId("min-context").valueAsNumber,
    };
    return { published: Object.fromEntries(Object.entries(published).filter(([, value]) => value !== null)) };
  }

  /** The target that stands for one in each runtime and format. */
  get variants() {
    return { runtimes: listed("runtimes"), formats: listed("formats"), kv_caches: listed("kv-caches") };
  }

  /** The runtimes that a device has, as the fields begin. */
  offerRuntimes(devices) {
    const had = new Set(devices.flatMap(({ facts }) => facts.runtimes.map(({ runtime }) => runtime)));
    byId("runtimes").value = RUNTIMES.filter((name) => had.has(name)).join(", ") || [...had][0];
  }

  async #show(onChange) {
    for (const field of document.querySelectorAll(".of-published")) field.hidden = !this.isChosen;
    for (const id of ["embedding-free", "full-weights"]) byId(id).hidden = this.isChosen;
    for (const id of ["runtime", "candidates"]) byId(id).closest("div").hidden = this.isChosen;
    if (this.isChosen) await this.#read();
    onChange();
  }

  /** The scores of the catalogue, table by table. */
  async #read() {
    if (this.isRead) return;
    const { models, tables } = await request("/v1/catalogue/published");
    const described = models.filter(({ not_expressible: lacking }) => !lacking);
    const counts = new Map();
    for (const { scores } of described) {
      for (const { table, values, weight_format: format } of scores) {
        if (format) continue;
        for (const name of Object.keys(values)) counts.set(`${table}:${name}`, (counts.get(`${table}:${name}`) ?? 0) + 1);
      }
    }
    const nameOf = (key) => key.slice(key.indexOf(":") + 1);
    const isRepeated = (name) => [...counts.keys()].filter((key) => nameOf(key) === name).length > 1;
    const titleOf = (id, key) => `${nameOf(key)}${isRepeated(nameOf(key)) ? ` of ${id}` : ""} (${counts.get(key)})`;
    const groups = tables.map(({ id, protocol }) => element("optgroup", { label: `${id}: ${protocol}`.slice(0, 120) },
      ...[...counts.keys()].filter((key) => key.startsWith(`${id}:`) && !key.endsWith(":ppl")).toSorted((one, other) => counts.get(other) - counts.get(one))
        .map((key) => element("option", { value: key, text: titleOf(id, key) }))));
    byId("score").replaceChildren(...groups.filter((group) => group.children.length));
    byId("score").value = firstScore();
    byId("licences").replaceChildren(...[...new Set(["permissive", ...models.map(({ licence }) => licence).filter(Boolean)])].map((value) => element("option", { value })));
    setText(byId("published-says"), `${described.length} of the catalogue's ${models.length} models have a description. Nothing is downloaded: their shapes are measured with random weights.`);
    this.isRead = true;
  }
}
