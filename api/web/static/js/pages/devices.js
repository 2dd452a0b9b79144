// The list of devices, kept fresh while it is looked at: their health, what they do, and how another is added.

import { AddDevice } from "../device/add.js";
import { healthOf, workOf } from "../device/health.js";
import { Away, eachPage, keepFresh, Refused, showAccount } from "../shared/api.js";
import { byId, element, fillRows, setNotice } from "../shared/dom.js";
import { ago } from "../shared/format.js";

const FRESHEN_MS = 5000;

function row(device) {
  const { title, kind, says } = healthOf(device);
  const runtimes = device.facts.runtimes.map(({ runtime }) => runtime).join(", ");
  return element("tr", { "data-id": device.id },
    element("td", { class: "wrap" }, element("a", { href: `/devices/${encodeURIComponent(device.id)}`, text: device.name }),
      element("span", { class: "under", text: device.device_class })),
    element("td", { class: "wrap untitled" }, element("span", { class: `badge ${kind}`, text: title }), element("span", { class: "under", text: says })),
    element("td", { class: "wrap", text: workOf(device) }),
    element("td", { class: "wrap", text: runtimes }),
    element("td", { class: "date", text: ago(device.last_seen_at) }),
    element("td", { class: "wrap", text: device.owner }));
}

const away = (error) => setNotice(byId("notice"), `${error.message}; trying again`, "warn");

async function freshen() {
  const found = [];
  for await (const items of eachPage("/v1/devices", away)) found.push(...items);
  setNotice(byId("notice"), "");
  fillRows(byId("devices"), found.map(row));
  byId("empty").hidden = found.length > 0;
  byId("loading").hidden = true;
}

function refused(error) {
  if (!(error instanceof Away || error instanceof Refused)) throw error;
  setNotice(byId("notice"), `Could not load devices: ${error.message}`, "bad");
}

async function offerAdding() {
  const dialog = new AddDevice(freshen);
  byId("add").addEventListener("click", () => dialog.open());
  const { role } = await showAccount();
  byId("add").hidden = role !== "admin";
  byId("add-who").hidden = role === "admin";
}

offerAdding().catch(refused);
keepFresh(freshen, FRESHEN_MS, refused);
