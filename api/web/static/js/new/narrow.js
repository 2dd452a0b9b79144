// Narrowing a search space: a field for each gene, in which values are written as on the command line.

import { byId, element, setText } from "../shared/dom.js";

const RANGE = /^(\d+)\.\.(\d+)(?::(\d+))?$/;
const idOf = (gene) => `gene-${gene}`;

export class Narrowing {
  constructor() {
    this.described = {}; // name → gene, of the space that is shown
  }

  get genes() {
    return Object.keys(this.described);
  }

  /** Ids of the fields. */
  get inputs() {
    return this.genes.map(idOf);
  }

  /** The field that a path of a refusal is about; undefined where it is no gene's. */
  fieldOf(path) {
    const [, gene] = /^space\.narrow\.([^.]+)/.exec(path) ?? [];
    return this.genes.includes(gene) ? idOf(gene) : undefined;
  }

  /** Fields for the genes of a space: name → {min, max, step} or {values}, `options` where one is fixed unless freed. */
  offer(genes) {
    this.described = genes;
    byId("genes").replaceChildren(...Object.entries(genes).map(([name, gene]) => element("div", {},
      element("label", { for: idOf(name), text: gene.per_layer ? `${name} (each layer)` : name }),
      element("input", { id: idOf(name), type: "text", autocomplete: "off", spellcheck: "false", placeholder: written(gene), "aria-describedby": `${idOf(name)}-says ${idOf(name)}-problem` }),
      element("p", { id: `${idOf(name)}-says`, class: "hint", text: gene.options ? `may be ${inShort(gene.options)}` : "" }),
      element("p", { id: `${idOf(name)}-problem`, class: "problem", role: "alert" }))));
  }

  /** Fills the fields from a request's narrowing. */
  fill(narrow) {
    for (const gene of this.genes) byId(idOf(gene)).value = gene in narrow ? written(narrow[gene], this.described[gene]) : "";
    byId("narrowing").open = Object.keys(narrow).length > 0;
    this.count();
  }

  /** What is written, as a request has it: gene → values or {min, max, step}. */
  get narrow() {
    return Object.fromEntries(this.genes.map((gene) => [gene, byId(idOf(gene)).value.trim()]).filter(([, text]) => text).map(([gene, text]) => [gene, read(text)]));
  }

  count() {
    const narrowed = Object.keys(this.narrow).length;
    setText(byId("narrowing-title"), narrowed ? `Narrow its genes (${narrowed})` : "Narrow its genes");
  }
}

/** `2..6` and `128..512:64` are ranges, `2,4` and `d_model,128` values. */
function read(text) {
  const range = RANGE.exec(text);
  if (!range) return text.split(",").map((part) => part.trim()).filter(Boolean).map((part) => (/^\d+$/.test(part) ? Number(part) : part));
  const [min, max, step] = range.slice(1).map((part) => part && Number(part));
  return step ? { min, max, step } : { min, max };
}

const FEW = 5;

/** `0, 128 to 8192 in steps of 64`: the numbers at the end that are evenly spaced, if they are more than a few, in short. */
function inShort(options) {
  const step = options.at(-1) - options.at(-2);
  let first = options.length - 1;
  while (first > 0 && options[first] - options[first - 1] === step) first -= 1;
  if (!(step > 0) || options.length - first <= FEW) return options.join(", ");
  const range = `${options[first]} to ${options.at(-1)}${step === 1 ? "" : ` in steps of ${step}`}`;
  return [...options.slice(0, first), range].join(", ");
}

/** Values of a gene as text; what a range leaves open is that of the whole gene. */
function written(values, whole = values) {
  if (Array.isArray(values)) return values.join(",");
  if (typeof values !== "object") return String(values);
  if (values.values) return values.values.join(",");
  const [least, most] = whole.values ? [Math.min(...whole.values), Math.max(...whole.values)] : [whole.min, whole.max];
  return `${values.min ?? least}..${values.max ?? most}${values.step > 1 ? `:${values.step}` : ""}`;
}
