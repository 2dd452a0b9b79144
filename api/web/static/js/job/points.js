// The points of a target's chart as the service lays them out: a JSON header, then typed columns (`core.schemas.points`).

import { request } from "../shared/api.js";

const LENGTH = 4; // bytes of the header's length
const ALIGNED = 8;
const KINDS = { "<f8": Float64Array, "<i4": Int32Array, "|u1": Uint8Array };
const STATES = { outside: "out_of_bounds" }; // of the group that is named otherwise

/** Points of a job's target: {header, points}. `query` as of `GET /v1/jobs/{id}/points`; absent values are left out. */
export async function loadPoints(path, query) {
  const pairs = Object.entries(query).flatMap(([name, value]) => [value ?? []].flat().map((each) => [name, each]));
  return readPoints(await request(`${path}/points?${new URLSearchParams(pairs)}`, { as: "arrayBuffer" }));
}

function readPoints(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const { ids, ...header } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, LENGTH, length)));
  const columns = {};
  let at = LENGTH + length;
  for (const [name, kind] of Object.entries(header.columns)) {
    columns[name] = new KINDS[kind](buffer, at, header.rows);
    at += Math.ceil(columns[name].byteLength / ALIGNED) * ALIGNED;
  }
  return { header, points: ids.map((id, row) => pointOf(id, header, columns, row)) };
}

/** One point with the fields of a CandidateView that the charts read. */
function pointOf(id, header, columns, row) {
  const figure = (name) => {
    const value = columns[name]?.[row];
    return value === undefined || Number.isNaN(value) ? null : value;
  };
  const group = header.groups[columns.group[row]];
  const perplexity = figure("perplexity");
  return {
    id,
    target_id: header.target_id,
    number: columns.number[row],
    role: group === "baseline" ? "baseline" : "search",
    state: STATES[group] ?? "measured",
    on_frontier: group === "frontier",
    marked: columns.marked[row] === 1,
    latency_ms: figure("latency_ms"),
    latency_half_width_ms: figure("latency_half_width_ms"),
    memory_bytes: figure("memory_bytes"),
    decoder_parameters: figure("decoder_parameters"),
    proxy: figure("proxy"),
    predicted: perplexity === null ? null : { perplexity, relative_to: header.relative_to, label: header.label, perplexity_low: figure("perplexity_low"), perplexity_high: figure("perplexity_high") },
    first_token_ms: figure("first_token_ms"),
    first_token_half_width_ms: figure("first_token_half_width_ms"),
    token_ms: figure("token_ms"),
    token_half_width_ms: figure("token_half_width_ms"),
  };
}
