// The candidate table: filter, sort, and pages, so that thousands of candidates cost no more than fifty.

import { byId, element, setText } from "../shared/dom.js";
import { GROUPS, groupOf } from "./candidates.js";
import { latency, mebibytes, millions, MISSING, times, whole } from "../shared/format.js";

const PAGE = 50;
const TITLES = new Map(GROUPS.map(({ name, title }) => [name, title]));
const RANKS = new Map(GROUPS.map(({ name }, rank) => [name, rank]));
const FORMATS = [
  { format: "onnx", label: "ONNX", what: "onnx file" },
  { format: "onnx-prefill", label: "prefill", what: "onnx file for the prompt", generates: true },
  { format: "onnx-decode", label: "decode", what: "onnx file for token by token", generates: true },
  { format: "onnx-segment", label: "segment", what: "onnx file for segments after a memory", generates: true, memory: true },
  { format: "gguf", label: "GGUF", what: "gguf file", runtime: "llamacpp" },
  { format: "safetensors", label: "safetensors", what: "safetensors file" },
  { format: "architecture", label: "architecture" },
];

// `value` sorts (missing ones always last), `text` shows; a column without `text` fills its cell itself. One with
// `whenKnown` is there while it knows something of any candidate.
const COLUMNS = [
  { name: "number", title: "#", number: true, value: (c) => c.number },
  { name: "parameters", title: "Parameters", number: true, value: (c) => c.decoder_parameters, text: (c) => millions(c.decoder_parameters) },
  { name: "latency", title: "Latency", number: true, value: (c) => c.latency_ms, text: (c) => latency(c.latency_ms, c.latency_half_width_ms) },
  { name: "memory", title: "Memory", number: true, value: (c) => c.memory_bytes, text: (c) => mebibytes(c.memory_bytes) },
  { name: "speedup", title: "Speed-up", number: true, value: (c) => c.versus_baseline?.speedup, text: (c) => versus(c, "speedup") },
  { name: "saving", title: "Memory ratio", number: true, value: (c) => c.versus_baseline?.memory_ratio, text: (c) => versus(c, "memory_ratio") },
  { name: "trained", title: "Perplexity", number: true, value: (c) => c.trained?.value, whenKnown: (c) => c.trained !== undefined },
  { name: "state", title: "State", value: (c) => RANKS.get(groupOf(c)), wraps: true },
  { name: "shape", title: "Shape", value: (c) => c.shape, text: (c) => c.shape, wraps: true },
  { name: "download", title: "Download (untrained weights)" },
  { name: "lineage", title: "Lineage", value: (c) => c.generation },
  { name: "launches", title: "Launches", number: true, value: (c) => c.launches, text: (c) => whole(c.launches) },
  { name: "digest", title: "Digest", value: (c) => c.digest },
];

export class CandidateTable {
  /** `onPick(id)` hears which candidate was chosen, `onTrain()` that it is to be trained; `numberOf(id)` gives a parent's number, `protocolOf(id)` a target's. */
  constructor(table, { onPick, onTrain, numberOf, protocolOf }) {
    this.body = table.tBodies[0];
    this.onPick = onPick;
    this.onTrain = onTrain;
    this.numberOf = numberOf;
    this.protocolOf = protocolOf;
    this.candidates = [];
    this.rows = new Map(); // candidate id → {row, version, selected}, of this page only
    this.sort = { column: COLUMNS[1], down: false };
    this.group = "frontier";
    this.page = 0;
    this.selected = null;
    this.recommended = null;
    this.#makeHead(table.tHead);
    this.#makeFilter();
    byId("previous").addEventListener("click", () => this.#turn(this.page - 1));
    byId("next").addEventListener("click", () => this.#turn(this.page + 1));
  }

  show(candidates) {
    this.candidates = candidates;
    this.#draw();
  }

  /** Marks a candidate and turns to the page it is on, widening the filter if it hides it. */
  select(id) {
    this.selected = id;
    const candidate = this.candidates.find((each) => each.id === id);
    if (candidate && this.group !== "all" && groupOf(candidate) !== this.group) this.#setGroup("all");
    const index = this.#wanted().findIndex((each) => each.id === id);
    if (index >= 0) this.page = Math.floor(index / PAGE);
    this.#draw();
  }

  /** Marks the model that is recommended now; null: none. */
  recommend(id) {
    if (this.recommended === id) return;
    this.recommended = id;
    this.#draw();
  }

  #setGroup(group) {
    this.group = group;
    byId("filter").value = group;
  }

  #wanted() {
    const chosen = this.group === "all" ? [...this.candidates] : this.candidates.filter((c) => groupOf(c) === this.group);
    const { column, down } = this.sort;
    return chosen.sort((a, b) => compare(column.value(a), column.value(b), down) || a.number - b.number);
  }

  #turn(page) {
    this.page = page;
    this.#draw();
  }

  #draw() {
    this.#countGroups();
    this.#hideUnknown();
    const wanted = this.#wanted();
    const pages = Math.max(1, Math.ceil(wanted.length / PAGE));
    this.page = Math.min(Math.max(this.page, 0), pages - 1);
    this.#fill(wanted.slice(this.page * PAGE, (this.page + 1) * PAGE));
    setText(byId("page-label"), `Page ${whole(this.page + 1)} of ${whole(pages)}`);
    byId("previous").disabled = this.page === 0;
    byId("next").disabled = this.page === pages - 1;
    byId("previous").parentElement.hidden = pages === 1;
    byId("table-empty").hidden = wanted.length > 0;
    setText(byId("table-empty"), this.candidates.length ? "No candidate here yet." : "No candidates yet. The baselines are measured first.");
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
      setText(cellsOf(known.row).state, `${candidate.id === this.recommended ? "Recommended · " : ""}${stateText(candidate)}`);
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
    cells.number.append(pick, train);
    const record = recordOf(candidate);
    cells.digest.append(
      element("a", { href: record, title: candidate.digest, "aria-label": `${candidate.digest.slice(0, 10)}, record of candidate ${number}` },
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
    setText(cells.lineage, this.#lineage(candidate));
    cells.trained.replaceChildren(...trainedLink(candidate));
  }

  #lineage({ role, generation, operator, parents }) {
    if (role === "baseline") return "baseline";
    const names = parents.map((id) => (this.numberOf(id) === undefined ? id : `#${whole(this.numberOf(id))}`));
    return `generation ${whole(generation)}, ${operator}${names.length ? ` of ${names.join(" and ")}` : ""}`;
  }

  #makeHead(head) {
    const row = element("tr");
    for (const column of COLUMNS) {
      const cell = element("th", { scope: "col", class: classOf(column) });
      column.head = cell;
      if (column.value) cell.append(element("button", { type: "button", text: column.title, on: { click: () => this.#sortBy(column) } }));
      else cell.textContent = column.title;
      row.append(cell);
    }
    head.replaceChildren(row);
    this.#markSort();
  }

  #sortBy(column) {
    this.sort = { column, down: this.sort.column === column && !this.sort.down };
    this.page = 0;
    this.#markSort();
    this.#draw();
  }

  #markSort() {
    for (const column of COLUMNS) {
      if (column !== this.sort.column) column.head.removeAttribute("aria-sort");
      else column.head.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
    }
  }

  /** A column that would be empty takes no room. */
  #hideUnknown() {
    for (const column of COLUMNS.filter((each) => each.whenKnown)) {
      this.body.parentElement.classList.toggle(`without-${column.name}`, !this.candidates.some(column.whenKnown));
    }
  }

  #makeFilter() {
    const filter = byId("filter");
    this.options = new Map([...TITLES, ["all", "All"]].map(([value, title]) => [value, { title, node: element("option", { value, text: title }) }]));
    filter.replaceChildren(...[...this.options.values()].map(({ node }) => node));
    filter.value = this.group;
    filter.addEventListener("change", () => {
      this.group = filter.value;
      this.page = 0;
      this.#draw();
    });
  }

  #countGroups() {
    const counts = new Map([["all", this.candidates.length]]);
    for (const candidate of this.candidates) {
      const group = groupOf(candidate);
      counts.set(group, (counts.get(group) ?? 0) + 1);
    }
    for (const [value, { title, node }] of this.options) setText(node, `${title} (${whole(counts.get(value) ?? 0)})`);
  }
}

const classOf = (column) => [column.number && "number", column.wraps && "wrap", column.whenKnown && column.name].filter(Boolean).join(" ") || null;

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
    .filter((each) => !each.runtime || each.runtime === protocol.runtime)
    .map((each) => downloadLink(record, each, whole(candidate.number), numbersOf(protocol, each.format)));
}

const recordOf = (candidate) => `/v1/candidates/${encodeURIComponent(candidate.id)}`;

function downloadLink(record, { format, label, what }, number, numbers) {
  const inOthers = numbers !== "float32";
  const says = what ? `${what} of candidate ${number}${inOthers ? ` in ${numbers}` : ""}, untrained weights` : `Architecture of candidate ${number} as JSON`;
  return element("a", {
    href: `${record}/model?format=${format}${inOthers ? `&numbers=${numbers}` : ""}`, download: "",
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

function compare(a, b, down) {
  const [noA, noB] = [a === null || a === undefined, b === null || b === undefined];
  if (noA || noB) return noA - noB;
  const order = typeof a === "string" ? a.localeCompare(b) : a - b;
  return down ? -order : order;
}
