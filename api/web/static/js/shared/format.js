// Numbers as people read them. A missing value is an en dash.

export const MISSING = "–";

const number = (digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const formats = [0, 1, 2, 3].map(number);

/** Three significant digits, never an exponent. */
export function figure(value) {
  const size = Math.abs(value);
  return formats[size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3].format(value);
}

const known = (format) => (value) => (value === null || value === undefined ? MISSING : format(value));

export const whole = known((value) => formats[0].format(value));
export const count = (number, noun, plural = "s") => `${whole(number)} ${noun}${number === 1 ? "" : plural}`;
export const milliseconds = known((value) => `${figure(value)} ms`);
export const megabytes = known((value) => `${figure(value / 1e6)} MB`);
export const gigabytes = known((value) => `${formats[1].format(value / 1e9)} GB`);
export const millions = known((value) => `${figure(value / 1e6)} M`);
export const times = known((value) => `${formats[2].format(value)}×`);
/** Counts of tokens, to three digits: "30 billion tokens". */
export const tokens = known((value) => {
  const [size, name] = [[1e12, " trillion"], [1e9, " billion"], [1e6, " million"]].find(([least]) => value >= least) ?? [1, ""];
  return `${size === 1 ? formats[0].format(value) : Number((value / size).toPrecision(3))}${name} tokens`;
});
export const hours = known((value) => `${value} ${value === 1 ? "hour" : "hours"}`);
export const rate = known((value) => `${figure(value)}/s`);
export const energy = known((value) => `${figure(value)} mJ`);

/** What a generation took, part by part; nothing of what did not generate. */
export const generationOf = (candidate) => [
  ["first_token", (value, half) => `first token ${latency(value, half)}`],
  ["token", (value, half) => `each further ${latency(value, half)}`],
].filter(([name]) => candidate[`${name}_ms`] != null)
  .map(([name, words]) => words(candidate[`${name}_ms`], candidate[`${name}_half_width_ms`]))
  .concat(candidate.tokens_per_s == null ? [] : [`${figure(candidate.tokens_per_s)} further tokens a second`])
  .concat(candidate.energy_token_mj == null ? [] : [`${energy(candidate.energy_token_mj)} a token`]);

export const percent = known((value) => `${formats[0].format(100 * value)} %`);

const WIDE = 0.4; // Half-width on the logarithm above which ± would mislead.
const MEMORY_SPREAD = 0.005; // As in the answers (`core.search.pareto.options`).

/** Half of a figure's interval, on the logarithm. */
export const spreadOf = (value, halfWidth) => Math.asinh((halfWidth ?? 0) / value);

/** The ends of a figure's interval. */
export const ends = (value, halfWidth) => [-1, 1].map((side) => value * Math.exp(side * spreadOf(value, halfWidth)));

export const memoryHalf = (bytes) => bytes * Math.sinh(MEMORY_SPREAD);

/** A median with half of its interval on the logarithm, as on a terminal: "31.2 ± 0.9", or by the ends of a wide one: "96 (63 to 150)". */
export function withInterval(value, spread) {
  if (spread > WIDE) {
    const [middle, low, high] = [0, -spread, spread].map((end) => String(Number((value * Math.exp(end)).toPrecision(2))));
    return `${middle} (${low} to ${high})`;
  }
  const halfWidth = value * Math.sinh(spread);
  const exponent = Math.floor(Math.log10(halfWidth)); // to the first digit of the half-width, the second of 1 and 2
  const digits = Math.min(Math.max((halfWidth / 10 ** exponent < 2.95 ? 1 : 0) - exponent, 0), 3);
  return `${value.toFixed(digits)} ± ${halfWidth.toFixed(digits)}`;
}

export const latency = (value, halfWidth) => (value == null || !halfWidth ? milliseconds(value) : `${withInterval(value, Math.asinh(halfWidth / value))} ms`);
/** A measured peak memory with its interval. */
export const memory = known((bytes) => `${withInterval(bytes / 1e6, MEMORY_SPREAD)} MB`);

export const duration = known((seconds) => {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
});

const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
export const moment = known((text) => clock.format(new Date(text)));

/** How long ago that was. */
export const ago = known((text) => {
  const seconds = Math.max(0, (Date.now() - Date.parse(text)) / 1000);
  if (seconds < 10) return "just now";
  return seconds < 48 * 3600 ? `${duration(seconds)} ago` : moment(text);
});

/** A size of a file. */
export function fileSize(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 2 ** 20 ? `${figure(bytes / 1024)} KiB` : bytes < 2 ** 30 ? `${figure(bytes / 2 ** 20)} MiB` : `${figure(bytes / 2 ** 30)} GiB`;
}
