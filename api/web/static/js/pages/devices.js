// The list of devices, kept fresh while it is looked at: their health, what they do, and how another is added.

import { AddDevice } from "../device/add.js";
import { healthOf } from "../device/health.js";
import { Away, eachPage, pause, Refused, showAccount } from "../shared/api.js";
import { byId, element, setNotice } from "../shared/dom.js";
import { ago, count, MISSING, percent } from "../shared/format.js";

const FRESHEN_MS = 5000;

function row(device) {
  const { title, kind, says } = healthOf(device);
  const runtimes = device.facts.runtimes.map(({ runtime }) => runtime).join(", ");
  return element("tr", { "data-id": device.id },
    element("td", { class: "wrap" }, element("a", { href: `/devices/${encodeURIComponent(device.id)}`, text: device.name }),
      element("span", { class: "under", text: device.device_class })),
    element("td", { class: "wrap" }, element("span", { class: `badge ${kind}`, text: title }), element("span", { class: "under", text: says })),
    element("td", { class: "wrap", text: device.leased ? `measures, ${count(device.leased, "launch", "es")} held` : MISSING }),
    element("td", { class: "wrap", text: runtimes }),
    element("td", { class: "number", text: percent(device.audits_held_share) }),
    element("td", { class: "date", text: ago(device.last_seen_at) }),
    element("td", { class: "wrap", text: device.owner }));
}

const away = (error) => setNotice(byId("notice"), `${error.message}; trying again`, "warn");

async function freshen() {
  const found = [];
  for await (const items of eachPage("/v1/devices", away)) found.push(...items);
  setNotice(byId("notice"), "");
  const focused = byId("devices").contains(document.activeElement) && document.activeElement.getAttribute("href");
  byId("devices").tBodies[0].replaceChildren(...found.map(row));
  if (focused) [...byId("devices").querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
  byId("devices").hidden = found.length === 0;
  byId("empty").hidden = found.length > 0;
  byId("loading").hidden = true;
}

async function start() {
  const dialog = new AddDevice(freshen);
  byId("add").addEventListener("click", () => dialog.open());
  const [{ role }] = await Promise.all([showAccount(), freshen()]);
  byId("add").hidden = role !== "admin";
  byId("add-who").hidden = role === "admin";
  for (;;) {
    await pause(FRESHEN_MS);
    if (!document.hidden) await freshen();
  }
}

start().catch((error) => {
  if (!(error instanceof Away || error instanceof Refused)) throw error;
  setNotice(byId("notice"), `Could not load devices: ${error.message}`, "bad");
});
