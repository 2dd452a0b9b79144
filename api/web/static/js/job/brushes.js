// Brushes on the axes of a parallel chart: which range of each is kept, as the page's address holds it.

const NUMBER = "-?\\d+(?:\\.\\d+)?(?:e[+-]?\\d+)?";
const FORM = new RegExp(`^(.+):(${NUMBER})\\.\\.(${NUMBER})$`);

/** `latency:3..5,d_model:128..256` → Map of axis → [low, high]; what cannot be read is left out. */
export function readBrushes(text) {
  const found = (text ?? "").split(",").map((part) => FORM.exec(part)).filter(Boolean);
  return new Map(found.map(([, name, low, high]) => [name, [Number(low), Number(high)]]).filter(([, [low, high]]) => low <= high));
}

/** The same as text; null without any. */
export function writeBrushes(brushes) {
  return [...brushes].map(([name, [low, high]]) => `${name}:${low}..${high}`).join(",") || null;
}

/** A range in five digits, never narrower: so much the address holds. */
export function rounded([low, high]) {
  return [digits(low, Math.floor), digits(high, Math.ceil)];
}

function digits(value, round) {
  if (value === 0) return 0;
  const unit = 10 ** (Math.floor(Math.log10(Math.abs(value))) - 4);
  return Number((round(value / unit - (round === Math.ceil ? 1e-9 : -1e-9)) * unit).toPrecision(6));
}

/** Whether the row `at` of these axes is within every brush. An axis that is not there keeps nobody out. */
export function isWithin(axes, brushes, at) {
  return axes.every(({ name, values }) => {
    const range = brushes.get(name);
    return !range || (values[at] !== null && values[at] >= range[0] && values[at] <= range[1]);
  });
}
