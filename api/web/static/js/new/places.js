// Devices and their runtimes in words: whether they can measure now, and with what.

import { count, gigabytes, moment } from "../shared/format.js";

const STATES = { draining: "draining: it takes no new work" };

/** A device in a list: its name, and why it would not measure now. */
export function titleOf({ name, online, state, quarantine }) {
  const words = [...(online ? [] : ["offline"]), ...(state === "active" ? [] : [state]), ...(quarantine ? ["in quarantine"] : [])];
  return words.length ? `${name} (${words.join(", ")})` : name;
}

/** The state of one device, or of a class's. */
export function describeDevices(devices) {
  if (devices.length > 1) {
    const ready = devices.filter(({ online, state, quarantine }) => online && state === "active" && !quarantine);
    return `${count(ready.length, "device")} of ${devices.length} ready; ${atWork(devices)}.`;
  }
  const [{ online, state, quarantine, last_seen_at: seen, facts }] = devices;
  const parts = [
    online ? "Online" : seen ? `Offline since ${moment(seen)}: its launches wait` : "Never seen yet",
    ...(STATES[state] ? [STATES[state]] : []), ...(quarantine ? [`in quarantine: ${quarantine}`] : []),
    facts.cpu, count(facts.cores, "core"), gigabytes(facts.memory_bytes), atWork(devices),
  ];
  return `${parts.join("; ")}.`;
}

function atWork(devices) {
  const leased = devices.reduce((sum, device) => sum + device.leased, 0);
  return leased ? `${count(leased, "launch", "es")} at work` : "nothing at work";
}

/** Versions of a runtime on these devices, and the number formats of its provider. */
export function describeRuntime(devices, chosen) {
  const [name, provider] = chosen.split(" ");
  const found = devices.flatMap(({ facts }) => facts.runtimes).filter(({ runtime, providers }) => runtime === name && providers.includes(provider));
  const all = (values) => [...new Set(values)].join(", ");
  return found.length ? `Version ${all(found.map(({ version }) => version))}; computes in ${all(found.flatMap(({ numbers }) => numbers[provider] ?? ["float32"]))}.` : "";
}
