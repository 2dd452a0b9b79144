// The blocks of an architecture, drawn one below the other in the order of a pass.

import { byId, element, setText, svg } from "../shared/dom.js";
import { millions, milliseconds, whole } from "../shared/format.js";
import { KINDS, kindTitle } from "../shared/shape.js";

const [WIDTH, HEIGHT, GAP] = [260, 22, 1.5];
const MOST_HEADS = 32; // Beyond, boxes would be narrower than their gaps.

/** The shape of one block: heads as boxes, a feed-forward as it widens and narrows, others as a bar. */
function drawing(block, dModel, most) {
  const scale = WIDTH / most;
  const [inside, outside] = [block.width * scale, dModel * scale];
  const left = (width) => (WIDTH - width) / 2;
  const title = `${kindTitle(block)}: ${sizes(block).join(", ")}`;
  const stream = svg("rect", { class: "stream", x: left(outside), y: 0, width: outside, height: HEIGHT });
  return svg("svg", { class: `block ${block.kind}`, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": title },
    stream, ...shapes(block, { inside, outside, left }));
}

function shapes(block, { inside, outside, left }) {
  if (block.heads && block.heads <= MOST_HEADS) {
    const each = inside / block.heads;
    const shared = block.kv_heads ? block.heads / block.kv_heads : 1;
    return Array.from({ length: block.heads }, (_, at) => svg("rect", {
      class: at % shared === 0 ? "" : "shared", x: left(inside) + at * each + GAP / 2, y: 4, width: Math.max(each - GAP, 0.5), height: HEIGHT - 8,
    }));
  }
  if (block.kind === "feed_forward") {
    const [near, far] = [left(outside), left(inside)];
    const corners = [[near, 2], [near + outside, 2], [far + inside, HEIGHT / 2 - 3], [far + inside, HEIGHT / 2 + 3], [near + outside, HEIGHT - 2], [near, HEIGHT - 2], [far, HEIGHT / 2 + 3], [far, HEIGHT / 2 - 3]];
    return [svg("polygon", { points: corners.map((corner) => corner.map((value) => value.toFixed(1)).join(",")).join(" ") })];
  }
  if (block.kind === "identity") return [];
  return [svg("rect", { x: left(inside), y: 4, width: inside, height: HEIGHT - 8, rx: block.kind.startsWith("sru") ? 7 : 0 })];
}

function sizes({ kind, width, heads, kv_heads: shared, notes }) {
  const inside = heads
    ? [`${whole(heads)} head${heads === 1 ? "" : "s"} × ${whole(width / heads)}`, ...(shared ? [`${whole(shared)} of keys and values`] : [])]
    : kind === "identity" ? ["nothing"] : [`${whole(width)} inside`];
  return [...inside, ...notes];
}

/** Shows the blocks of CandidateDetails. */
export function showBlocks({ blocks, d_model: dModel }) {
  const most = Math.max(dModel, ...blocks.map(({ width }) => width));
  const present = new Set(blocks.map(({ kind }) => kind));
  byId("kinds").replaceChildren(...Object.keys(KINDS).filter((kind) => present.has(kind)).map((kind) => element("li", {}, element("span", { class: `swatch block ${kind}` }), KINDS[kind])));
  byId("blocks").tBodies[0].replaceChildren(...blocks.map((block, at) => element("tr", {},
    element("td", { class: "number", text: whole(at + 1) }),
    element("td", { text: `${kindTitle(block)}${block.of_source ? " (source)" : ""}` }),
    element("td", {}, drawing(block, dModel, most)),
    element("td", { class: "wrap", text: sizes(block).join(", ") }),
    element("td", { class: "number", text: millions(block.parameters) }),
    element("td", { class: "number predicted", text: "–" }))));
}

/** Fills in what each block takes, from CandidateParts. */
export function showBlockTimes(parts) {
  const rows = byId("blocks").tBodies[0].rows;
  for (const { block, ms } of parts) if (block !== null && rows[block]) setText(rows[block].lastElementChild, milliseconds(ms));
}
