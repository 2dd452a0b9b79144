// Counts of training tokens as people write them: 10B, 300M, 1e9.

const UNITS = { "": 1, k: 1e3, m: 1e6, b: 1e9, t: 1e12 };
const WRITTEN = /^([0-9]{1,30}(?:\.[0-9]{1,18})?(?:e\+?[0-9]{1,3})?)([kmbt]?)$/i;
const MOST = 1e15; // Whole numbers beyond it are not exact here; the service takes up to 10^18.

export const TOKENS_ALLOWED = "Must be a count of tokens such as 300M, 10B or 1e9, or empty.";

/** The count that a text stands for; null where it is none. */
export function tokenCount(text) {
  const match = WRITTEN.exec(text);
  const count = match ? Number(match[1]) * UNITS[match[2].toLowerCase()] : NaN;
  const whole = Math.round(count);
  return whole >= 1 && whole <= MOST && Math.abs(count - whole) <= 1e-9 * whole ? whole : null;
}
