// How a device is, in a word and a sentence, and what it does.

import { count } from "../shared/format.js";

/** {title, kind, says} of a DeviceView; `kind` is the class of its badge. */
export function healthOf({ state, online, quarantine, conditions, leased, last_seen_at: seen }) {
  if (state === "revoked") return { title: "revoked", kind: "", says: "" };
  if (quarantine) return { title: "in quarantine", kind: "failed", says: quarantine };
  if (!online) return { title: seen ? "offline" : "not connected yet", kind: "paused", says: "" };
  if (state === "draining") return { title: "draining", kind: "paused", says: "It gets no further launches." };
  if (conditions?.startsWith("waits until")) return { title: "waiting", kind: "paused", says: `It ${conditions}.` };
  // Conditions are those of the latest launch: of an idle device nothing newer is known.
  if (conditions) return { title: leased ? "busy" : "was busy", kind: "paused", says: `Its latest launch was disturbed: ${conditions}.` };
  return { title: "healthy", kind: "finished", says: "" };
}

/** What it does now; nothing where it is away. */
export function workOf({ leased, online, state, conditions }) {
  if (leased) return `measures, ${count(leased, "launch", "es")} held`;
  return online && state === "active" && !conditions?.startsWith("waits until") ? "idle" : "";
}
