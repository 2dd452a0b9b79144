// The shape of an architecture in a few words.

import { count, whole } from "./format.js";

/** Kinds of blocks → what people call them. */
export const KINDS = {
  attention: "attention",
  feed_forward: "feed-forward",
  srupp: "SRU++",
  sru: "SRU",
  short_conv: "short convolution",
  identity: "identity",
};

export const kindTitle = ({ kind }) => KINDS[kind] ?? kind;

/** The page of a CandidateView. */
export const candidateAddress = ({ job_id: job, id }) => `/jobs/${encodeURIComponent(job)}/candidates/${encodeURIComponent(id)}`;

/** How a candidate came to be: "first models, spread" or "generation 3, mutate". */
export const proposed = ({ role, generation, operator }) => (role === "baseline" ? "baseline" : `${generation === 0 ? "first models" : `generation ${whole(generation)}`}, ${operator}`);

/** "srupp", "transformer_xl", "encoder" or "gpt2": models that recipes train alike. */
export function familyOf({ blocks = [], positions, causal }) {
  if (blocks.some(({ kind }) => kind.startsWith("sru"))) return "srupp";
  if (causal === false) return "encoder";
  return positions?.kind === "relative" ? "transformer_xl" : "gpt2";
}

/** "6 layers × 512" where each is attention and feed-forward, else "2 attention, 9 feed-forward × 512". */
export function shapeOf(architecture) {
  if (!architecture?.blocks) return "unknown";
  const { blocks } = architecture;
  const pairs = blocks.every((block, at) => block.kind === ["attention", "feed_forward"][at % 2]) && blocks.length % 2 === 0;
  const counts = new Map();
  for (const { kind, attends } of blocks) {
    const name = kindTitle({ kind }) + (attends === "none" ? " without attention" : "");
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const words = [...counts].map(([name, count]) => `${count} ${name}`).join(", ");
  return `${pairs ? count(blocks.length / 2, "layer") : words} × ${architecture.d_model}`;
}
