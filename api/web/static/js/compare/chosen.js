// Which targets are compared, and with what view: the address keeps it.

/** {targets: [ids], jobs: [ids], everywhere, sort} as the address says. */
export function readChosen() {
  const found = new URLSearchParams(location.search);
  return { targets: found.getAll("target"), jobs: found.getAll("job"), everywhere: found.has("everywhere"), sort: found.get("sort") };
}

/** Writes it into the address without a step in the history. */
export function keepChosen({ targets, everywhere, sort }) {
  const query = new URLSearchParams(targets.map((id) => ["target", id]));
  if (everywhere) query.set("everywhere", "");
  if (sort) query.set("sort", sort);
  const address = `${location.pathname}${query.size ? `?${query}` : ""}`;
  if (address !== location.pathname + location.search) history.replaceState(null, "", address);
}

/** The path of the comparison below `/v1`. */
export function comparisonPath(targets) {
  return `/v1/comparison?${new URLSearchParams(targets.map((id) => ["target", id]))}`;
}
