// One device: its health, what it does and what waits for it, its runtimes and its anchor.

import { AddDevice } from "../device/add.js";
import { showAnchor } from "../device/anchor.js";
import { DeviceControl } from "../device/control.js";
import { healthOf } from "../device/health.js";
import { showWork } from "../device/work.js";
import { Away, patiently, pause, Refused, showAccount } from "../shared/api.js";
import { byId, element, fillRows, setNotice, setText } from "../shared/dom.js";
import { ago, count, gigabytes, percent } from "../shared/format.js";

const FRESHEN_MS = 3000;
const ANCHOR_MS = 60000;

const path = `/v1/devices/${encodeURIComponent(document.body.dataset.device)}`;
let me = null;
let device = null;

function hardware({ facts }) {
  const gpus = facts.gpus.map((gpu) => gpu.name ?? "GPU");
  return [facts.cpu, count(facts.cores, "core"), `${gigabytes(facts.memory_bytes)} of memory`, ...gpus, facts.architecture, facts.system].join(" · ");
}

function runtimeRows({ facts }) {
  return facts.runtimes.flatMap(({ runtime, version, providers, numbers, memory_methods: methods }) => providers.map((provider) => element("tr", {},
    element("td", { text: runtime }), element("td", { text: version }), element("td", { text: provider }),
    element("td", { class: "wrap wide", text: (numbers[provider] ?? ["float32"]).join(", ") }),
    element("td", { class: "wrap", text: methods.join(", ") }))));
}

function show(found) {
  device = found;
  const { title, kind } = healthOf(device);
  setText(byId("name"), device.name);
  document.title = `${device.name} · edgefront`;
  byId("health").className = `badge ${kind}`;
  setText(byId("health"), title);
  byId("health").hidden = false;
  setText(byId("facts"), `${device.device_class} · ${device.state}${device.online || device.state === "revoked" ? "" : ", offline"} · owner ${device.owner}`);
  setNotice(byId("quarantine"), device.quarantine ? `In quarantine: ${device.quarantine}. When that is put right, its owner or an admin may trust it again (edgefront device trust ${device.name}).` : "", "bad");
  setText(byId("seen"), ago(device.last_seen_at));
  setText(byId("share"), percent(device.measuring_share));
  setText(byId("hardware"), hardware(device));
  fillRows(byId("runtimes"), runtimeRows(device));
  if (me) control.show(device, me);
}

const away = (error) => setNotice(byId("notice"), `${error.message}; trying again`, "warn");

async function freshen() {
  const [found, work] = await Promise.all([path, `${path}/work`].map((each) => patiently(each, away)));
  if (byId("notice").classList.contains("warn")) setNotice(byId("notice"), "");
  show(found);
  showWork(work, found);
  byId("device").hidden = false;
}

const control = new DeviceControl(path, (steered) => {
  show(steered);
  freshen();
});

async function start() {
  const dialog = new AddDevice(freshen);
  byId("reenrol").addEventListener("click", () => dialog.open(device));
  me = await showAccount();
  for (let drawn = -Infinity; ; await pause(FRESHEN_MS)) {
    if (document.hidden) continue;
    await freshen();
    if (Date.now() - drawn < ANCHOR_MS) continue;
    drawn = Date.now();
    showAnchor(await patiently(`${path}/anchor`, away));
  }
}

start().catch((error) => {
  if (!(error instanceof Away || error instanceof Refused)) throw error;
  setNotice(byId("notice"), `Could not load the device: ${error.message}`, "bad");
});
