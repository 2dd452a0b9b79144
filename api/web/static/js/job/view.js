// What the page shows of a job, in its address: a link shows somebody else the same.

const NAMES = ["target", "chart", "quality", "sort", "show", "find", "candidate"];

/** {target, chart, quality, sort, show, find, candidate} as the address says, each a text or null. */
export function readView() {
  const found = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(NAMES.map((name) => [name, found.get(name)]));
}

/** Writes it into the address without a step in the history; what is null is left out. `limits` are those of the sliders. */
export function keepView(view, limits) {
  const hash = new URLSearchParams(NAMES.filter((name) => view[name]).map((name) => [name, view[name]])).toString();
  const query = new URLSearchParams(limits).toString();
  const address = `${location.pathname}${query && `?${query}`}${hash && `#${hash}`}`;
  if (address !== location.pathname + location.search + location.hash) history.replaceState(null, "", address);
}
