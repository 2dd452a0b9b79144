// The candidate table: the service filters, sorts and pages, so that 100,000 candidates cost no more than fifty.

import { patiently, Refused } from "../shared/api.js";
import { byId, debounced, element, setText, throttled } from "../shared/dom.js";
import { GROUPS, groupOf } from "./candidates.js";
import { candidateAddress, proposed } from "../shared/shape.js";
import { markOf } from "../shared/mark.js";
import { labelledTitle, perplexityLabel, perplexityText, perplexityTitle } from "../shared/perplexity.js";
import { energy, latency, memory, millions, MISSING, rate, times, whole } from "../shared/format.js";

const PAGE = 50;
const TITLES = new Map(GROUPS.map(({ name, title }) => [name, title]));
const REFRESH_MS = 1000; // While events arrive.
const TYPED_MS = 250; // A search text at rest for so long is asked for.
const FORMATS = [
  { format: "onnx", label: "ONNX", what: "onnx file" },
  { format: "onnx-prefill", label: "prefill", what: "onnx file for the prompt", generates: true },
  { format: "onnx-decode", label: "decode", what: "onnx file for token by token", generates: true },
  { format: "onnx-generate", label: "generate", what: "onnx file that writes its cache in place", generates: true, inPlace: true },
  { format: "onnx-segment", label: "segment", what: "onnx file for segments after a memory", generates: true, memory: true },
  { format: "gguf", label: "GGUF", what: "gguf file", runtime: "llamacpp" },
  { format: "safetensors", label: "safetensors", what: "safetensors file" },
  { format: "architecture", label: "architecture" },
];

const generated = (candidate) => candidate.token_ms != null;

// `by` is the service's name of what sorts (candidates without it always last), `value` the same of a point, `text` shows;
// a column without `text` fills its cell itself. One with `whenKnown` is there while it knows something of any candidate. A
// `roomy` one has no place on a phone: a candidate's page has all.
const COLUMNS = [
  { name: "number", title: "#", number: true, by: "number", value: (c) => c.number },
  { name: "parameters", roomy: "parameters roomy-if-predicted", title: "Parameters", number: true, by: "decoder_parameters", value: (c) => c.decoder_parameters, text: (c) => millions(c.decoder_parameters) },
  { name: "latency", title: "Latency", number: true, wraps: true, by: "latency_ms", value: (c) => c.latency_ms, text: (c) => latency(c.latency_ms, c.latency_half_width_ms) },
  { name: "first-token", roomy: "roomy", title: "First token", number: true, by: "first_token_ms", value: (c) => c.first_token_ms, text: (c) => latency(c.first_token_ms, c.first_token_half_width_ms), wraps: true, whenKnown: generated },
  { name: "token", roomy: "roomy", title: "Further token", number: true, by: "token_ms", value: (c) => c.token_ms, text: (c) => latency(c.token_ms, c.token_half_width_ms), wraps: true, whenKnown: generated },
  { name: "rate", roomy: "roomy", title: "Tokens a second", number: true, by: "tokens_per_s", text: (c) => rate(c.tokens_per_s), whenKnown: generated },
  { name: "energy", roomy: "roomy", title: "Energy a token", number: true, by: "energy_token_mj", text: (c) => energy(c.energy_token_mj), whenKnown: (c) => c.energy_token_mj != null },
  { name: "memory", title: "Memory", number: true, by: "memory_bytes", value: (c) => c.memory_bytes, text: (c) => memory(c.memory_bytes), wraps: true },
  { name: "speedup", roomy: "roomy searched", title: "Speed-up", number: true, by: "speedup", text: (c) => versus(c, "speedup") },
  { name: "saving", roomy: "roomy searched", title: "Memory ratio", number: true, by: "memory_ratio", text: (c) => versus(c, "memory_ratio") },
  { name: "trained", title: "Trained perplexity", number: true, by: "perplexity", value: (c) => c.trained?.value, whenKnown: (c) => c.trained !== undefined },
  { name: "predicted", title: "Predicted perplexity", number: true, text: (c) => perplexityText(c.predicted), whenKnown: (c) => c.predicted?.perplexity != null },
  { name: "state", roomy: "roomy", title: "State", by: "group", wraps: true },
  { name: "shape", roomy: "roomy", title: "Shape", text: (c) => c.shape, wraps: true },
  { name: "download", roomy: "roomy searched", title: "Download (untrained weights)" },
  { name: "lineage", roomy: "roomy searched", title: "Lineage", by: "generation", wraps: true },
  { name: "launches", roomy: "roomy", title: "Launches", number: true, by: "launches", text: (c) => whole(c.launches) },
  { name: "digest", roomy: "roomy", title: "Digest", by: "digest", wraps: true },
];

const FIRST_SORT = COLUMNS[1];
const FIRST_GROUP = "frontier";

export class CandidateTable {
  /**
   * `path` of the job below `/v1`; `candidates` are the page's (`Candidates`). `onPick(id)` hears which candidate was chosen,
   * `onTrain()` that it is to be trained, `onArrange()` that it was sorted or filtered, `onLoad()` that other candidates are
   * listed; `protocolOf(id)` gives a target's.
   */
  constructor(table, path, candidates, { onPick, onTrain, onArrange, onLoad, protocolOf }) {
    this.body = table.tBodies[0];
    Object.assign(this, { path, candidates, onPick, onTrain, onArrange, onLoad, protocolOf });
    this.target = null;
    this.place = null; // of the page: {offset, total, groups}
    this.items = []; // ids
    this.numbers = {}; // of their parents, by id
    this.rows = new Map(); // candidate id → {row, version, selected}, of this page only
    this.sort = { column: FIRST_SORT, down: false };
    this.group = FIRST_GROUP;
    this.text = "";
    this.asked = 0; // only the latest question is answered
    this.selected = null;
    this.recommended = null;
    this.refresh = throttled(() => this.load(), () => REFRESH_MS);
    this.redraw = throttled(() => this.#draw(), () => REFRESH_MS / 4);
    this.#makeHead(table.tHead);
    this.#makeFilter();
    byId("previous").addEventListener("click", () => this.load({ offset: Math.max(0, this.place.offset - PAGE) }));
    byId("next").addEventListener("click", () => this.load({ offset: this.place.offset + PAGE }));
  }

  /** Its order and filters as the address keeps them, `{sort, show, find}`; null where they are the first ones. */
  get arranged() {
    const { column, down } = this.sort;
    const isFirst = column === FIRST_SORT && !down;
    return {
      sort: isFirst ? null : `${down ? "-" : ""}${column.name}`,
      show: this.group === FIRST_GROUP ? null : this.group,
      find: this.text || null,
    };
  }

  arrange({ sort, show, find }) {
    const column = COLUMNS.find(({ name, by }) => by && name === sort?.replace("-", "")) ?? FIRST_SORT;
    this.sort = { column, down: Boolean(sort?.startsWith("-")) };
    this.#setGroup(this.options.has(show) ? show : FIRST_GROUP);
    this.#setText(find ?? "");
    this.#markSort();
    return this.load({ offset: 0 });
  }

  /** Turns to another target. */
  async turn(target) {
    if (this.target === target) return;
    Object.assign(this, { target, selected: null, recommended: null, place: null, items: [] });
    this.#clear();
    await this.load({ offset: 0 });
  }

  /** Marks a candidate and turns to the page it is on, widening the filters if they hide it. */
  async select(id) {
    this.selected = id;
    if (id === null || this.items.includes(id)) return this.#draw();
    this.#draw();
    await this.load({ around: id });
    if (this.selected !== id || this.items.includes(id)) return;
    this.#setGroup("all");
    this.#setText("");
    await this.load({ around: id });
    this.onArrange();
  }

  /** Marks the model that is recommended now; null: none. */
  recommend(id) {
    if (this.recommended === id) return;
    this.recommended = id;
    this.#draw();
  }

  /** Asks for the candidates at `offset`, or for the page that `around` is on; else for those of the same page again. */
  async load({ offset = this.place?.offset ?? 0, around = null } = {}) {
    if (!this.target) return;
    const question = ++this.asked;
    try {
      const page = await this.#loadPage({ offset, around });
      if (question !== this.asked) return;
      for (const view of page.items) this.candidates.put(view);
      this.numbers = page.place.numbers;
      this.items = page.items.map(({ id }) => id);
      this.place = page.place;
      this.#draw();
      this.onLoad();
    } catch (error) {
      if (!(error instanceof Refused)) throw error; // The page says what was refused.
    } finally {
      if (question === this.asked) this.body.parentElement.removeAttribute("aria-busy");
    }
  }

  #loadPage({ offset, around }) {
    const { column, down } = this.sort;
    const query = new URLSearchParams({ target: this.target, sort: `${down ? "-" : ""}${column.by}`, limit: PAGE, offset });
    if (this.group !== "all") query.set("group", this.group);
    if (this.text) query.set("text", this.text);
    if (around) query.set("around", around);
    return patiently(`${this.path}/candidates?${query}`);
  }

  #setGroup(group) {
    this.group = group;
    byId("filter").value = group;
  }

  #setText(text) {
    this.text = text;
    if (byId("find") !== document.activeElement) byId("find").value = text;
  }

  /** No rows, until those of the target are there. */
  #clear() {
    this.#fill([]);
    this.#countGroups({});
    this.body.parentElement.setAttribute("aria-busy", "true");
    byId("previous").parentElement.hidden = byId("table-empty").hidden = true;
  }

  #draw() {
    if (!this.place) return;
    const { offset, total, groups } = this.place;
    this.#countGroups(groups);
    const shown = this.items.map((id) => this.candidates.record(id)).filter(Boolean);
    this.#hideUnknown(shown);
    this.#fill(shown);
    const pages = Math.max(1, Math.ceil(total / PAGE));
    setText(byId("page-label"), `Page ${whole(offset / PAGE + 1)} of ${whole(pages)}`);
    byId("previous").disabled = offset === 0;
    byId("next").disabled = offset + PAGE >= total;
    byId("previous").parentElement.hidden = pages === 1;
    byId("table-empty").hidden = total > 0;
    const some = Object.values(groups).some((count) => count > 0);
    const none = this.group === FIRST_GROUP ? "No candidate is on the frontier yet: it begins with the first searched model within the limits." : "No candidate is in this group.";
    setText(byId("table-empty"), this.text ? "No candidate matches." : some ? none : "No candidates yet. The baselines are measured first.");
  }

  /** Rows are kept and only changed where needed, so that focus and selection survive the stream of events. */
  #fill(candidates) {
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    const rows = new Map();
    candidates.forEach((candidate, index) => {
      const selected = candidate.id === this.selected;
      let known = this.rows.get(candidate.id);
      if (!known) known = { row: this.#makeRow(candidate), version: 0 };
      if (known.version !== candidate.version) this.#update(known.row, candidate);
      known.version = candidate.version;
      known.row.classList.toggle("selected", selected);
      known.row.classList.toggle("recommended", candidate.id === this.recommended);
      setText(cellsOf(known.row).state, `${candidate.id === this.recommended ? "Recommended, " : ""}${stateText(candidate)}`);
      known.row.querySelector("button.pick").setAttribute("aria-pressed", selected);
      rows.set(candidate.id, known);
      if (this.body.children[index] !== known.row) this.body.insertBefore(known.row, this.body.children[index] ?? null);
    });
    for (const [id, { row }] of this.rows) if (!rows.has(id)) row.remove();
    this.rows = rows;
    if (focused && focused.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
  }

  #makeRow(candidate) {
    const row = element("tr", { "data-id": candidate.id });
    for (const column of COLUMNS) {
      row.append(element("td", { class: classOf(column) }));
    }
    const cells = cellsOf(row);
    const number = whole(candidate.number);
    const pick = element("button", {
      type: "button", class: "pick", text: number, "aria-label": `Candidate ${number}: show in the chart`,
      on: { click: () => this.onPick(candidate.id) },
    });
    // Beside the row that is selected, where the keyboard finds it next.
    const train = element("button", {
      type: "button", class: "train", text: "Train…", "aria-label": `Train candidate ${number}`, on: { click: () => this.onTrain() },
    });
    cells.number.append(pick, candidate.model ? element("span", { class: "under", text: candidate.model }) : train);
    const record = recordOf(candidate);
    cells.digest.append(
      element("a", { href: candidateAddress(candidate), title: candidate.digest, "aria-label": `${candidate.digest.slice(0, 10)}, page of candidate ${number}` },
        element("code", { text: candidate.digest.slice(0, 10) })),
      " ",
      element("a", { href: `${record}/launches`, text: "samples", "aria-label": `raw samples of candidate ${number}` }),
    );
    cells.download.append(element("span", { class: "links" }, ...modelLinks(candidate, this.protocolOf(candidate.target_id))));
    return row;
  }

  #update(row, candidate) {
    const cells = cellsOf(row);
    for (const column of COLUMNS) if (column.text) setText(cells[column.name], column.text(candidate));
    cells.latency.append(...markOf(candidate));
    setText(cells.lineage, this.#lineage(candidate));
    cells.trained.replaceChildren(...trainedLink(candidate));
  }

  #lineage({ role, generation, operator, parents }) {
    if (role === "baseline") return "baseline";
    const names = parents.map((id) => (id in this.numbers ? `#${whole(this.numbers[id])}` : id));
    return `${proposed({ generation, operator })}${names.length ? ` of ${names.join(" and ")}` : ""}`;
  }

  #makeHead(head) {
    const row = element("tr");
    for (const column of COLUMNS) {
      const cell = element("th", { scope: "col", class: classOf(column) });
      column.head = cell;
      if (column.by) cell.append(element("button", { type: "button", text: column.title, on: { click: () => this.#sortBy(column) } }));
      else cell.textContent = column.title;
      row.append(cell);
    }
    head.replaceChildren(row);
    this.#markSort();
  }

  #sortBy(column) {
    this.sort = { column, down: this.sort.column === column && !this.sort.down };
    this.#markSort();
    this.load({ offset: 0 });
    this.onArrange();
  }

  #markSort() {
    for (const column of COLUMNS) {
      if (column !== this.sort.column) column.head.removeAttribute("aria-sort");
      else column.head.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
    }
  }

  /** A column that would be empty takes no room. */
  #hideUnknown(shown) {
    const known = [...shown, ...this.candidates.all];
    const { head, title } = COLUMNS.find(({ name }) => name === "predicted");
    const predictions = known.map(({ predicted }) => predicted);
    if (head.textContent !== labelledTitle(title, predictions)) {
      const label = perplexityLabel(predictions);
      head.replaceChildren(perplexityTitle(title, predictions), ...(label ? [" ", element("span", { class: "label", text: `(${label})` })] : []));
    }
    for (const column of COLUMNS.filter((each) => each.whenKnown)) {
      this.body.parentElement.classList.toggle(`without-${column.name}`, !known.some(column.whenKnown));
    }
  }

  #makeFilter() {
    const filter = byId("filter");
    this.options = new Map([...TITLES, ["all", "All"]].map(([value, title]) => [value, { title, node: element("option", { value, text: title }) }]));
    filter.replaceChildren(...[...this.options.values()].map(({ node }) => node));
    filter.value = this.group;
    filter.addEventListener("change", () => {
      this.group = filter.value;
      this.load({ offset: 0 });
      this.onArrange();
    });
    byId("find").addEventListener("input", debounced(() => {
      this.text = byId("find").value.trim();
      this.load({ offset: 0 });
      this.onArrange();
    }, TYPED_MS));
  }

  #countGroups(groups) {
    const all = Object.values(groups).reduce((sum, count) => sum + count, 0);
    for (const [value, { title, node }] of this.options) setText(node, `${title} (${whole(value === "all" ? all : groups[value] ?? 0)})`);
  }
}

const classOf = (column) => [column.number && "number", column.wraps && "wrap", column.roomy, column.whenKnown && column.name].filter(Boolean).join(" ") || null;

const cellsOf = (row) => Object.fromEntries(COLUMNS.map(({ name }, index) => [name, row.cells[index]]));

/** The number format of the file that was measured; float32 of files that the runtime does not read. */
function numbersOf({ runtime, dtype, weights }, format) {
  const reads = { onnxruntime: "onnx", openvino: "onnx", llamacpp: "gguf" }[runtime];
  if (!reads || !format.startsWith(reads)) return "float32";
  return weights === "full" ? dtype : weights.replace("_8bit", "");
}

/** Links to the files of a candidate's model that suit the protocol it was measured by. */
export function modelLinks(candidate, protocol) {
  const record = recordOf(candidate);
  return FORMATS
    .filter((each) => candidate.generates || !each.generates)
    .filter((each) => !each.memory || (protocol.mode === "forward" && protocol.memory_length > 0))
    .filter((each) => !each.inPlace || (protocol.mode === "generate" && candidate.inPlace))
    .filter((each) => !each.runtime || each.runtime === protocol.runtime)
    .map((each) => downloadLink(record, each, whole(candidate.number), numbersOf(protocol, each.format)));
}

const recordOf = (candidate) => `/v1/candidates/${encodeURIComponent(candidate.id)}`;

function downloadLink(record, { format, label, what }, number, numbers) {
  const inOthers = numbers !== "float32";
  const says = what ? `${what} of candidate ${number}${inOthers ? ` in ${numbers}` : ""}, untrained weights` : `Architecture of candidate ${number} as JSON`;
  return element("a", {
    href: `${record}/model?format=${format}`, download: "", // As it was measured.
    text: inOthers ? `${label} ${numbers}` : label, "aria-label": says,
  });
}

/** Its score once trained, lower is better; else the progress of its training. */
function trainedLink({ trained, number }) {
  if (!trained) return [];
  if (!trained.href) return [element("span", { title: trained.title, text: trained.text })]; // deleted: its score stays
  return [element("a", { href: trained.href, title: trained.title, "aria-label": `${trained.text}, ${trained.title}: training of candidate ${whole(number)}`, text: trained.text })];
}

function stateText(candidate) {
  const title = TITLES.get(groupOf(candidate));
  if (candidate.state === "infeasible" || candidate.state === "failed" || candidate.state === "cancelled") {
    return candidate.reason ? `${candidate.state}: ${candidate.reason}` : candidate.state;
  }
  return candidate.role === "baseline" && candidate.state !== "measured" ? `${title}, ${candidate.state.replaceAll("_", " ")}` : title;
}

function versus(candidate, name) {
  const value = candidate.versus_baseline?.[name];
  if (value === undefined || value === null) return MISSING;
  return candidate.versus_baseline.extrapolated ? `≈ ${times(value)}` : times(value);
}
