// The list of trainings: newest first, kept fresh while it is looked at.

import { Away, keepFresh, patiently, Refused, request, showAccount } from "../shared/api.js";
import { byId, element, fillRows, setNotice, setText } from "../shared/dom.js";
import { duration, MISSING, moment, whole } from "../shared/format.js";
import { badgeOf, hasEnded, isImported, isLive, lossText, modelOf, progressOf, qualityOf, qualityText, recipeName, splitTitle, stateTitle, stepsOf, timeLeftOf } from "../training/view.js";

const FRESHEN_MS = 2000;

const asked = new URLSearchParams(location.search);
const older = []; // Trainings of the pages after the first, as they were when asked for.
let newest = [];
let nextCursor = null;
let round = 0; // An answer to what was asked before the filter changed is let go.

/** The URL of the list, with the filters of the page's own URL. */
function address(cursor) {
  const query = new URLSearchParams();
  for (const name of ["job", "digest", "state"]) if (asked.get(name)) query.set(name, asked.get(name));
  if (cursor) query.set("cursor", cursor);
  return `/v1/trainings?${query}`;
}

function row(training) {
  const quality = qualityOf(training);
  const last = training.last_metric;
  const running = isLive(training);
  const says = quality && `${quality.final ? "" : "last "}${splitTitle(quality.split)}`;
  return element("tr", { "data-id": training.id },
    element("td", { class: "wrap" },
      element("a", { href: `/trainings/${encodeURIComponent(training.id)}`, text: training.name }),
      element("span", { class: "under", text: modelOf(training) })),
    element("td", { class: "wrap untitled" }, element("span", { class: badgeOf(training), text: stateTitle(training) }), said(training)),
    element("td", { class: "untitled" }, isImported(training) ? "" :
      element("progress", { max: Math.max(stepsOf(training), 1), value: training.step, "aria-label": `Progress of ${training.name}` }),
      element("span", { class: "under", text: progressOf(training) })),
    element("td", { class: "number", text: lossText(last?.loss) }),
    element("td", { class: "number" }, qualityText(quality), says ? element("span", { class: "under", text: says }) : ""),
    element("td", { class: "number", text: running ? whole(last?.tokens_per_s) : "–" }),
    element("td", { class: "number", text: running ? timeLeftOf(training) : "–" }),
    element("td", { class: "wrap narrow", text: training.dataset ?? MISSING }),
    element("td", { class: "wrap narrow", text: recipeName(training) }),
    element("td", { class: "wrap narrow date", text: moment(training.started_at ?? training.created_at) }),
    element("td", { class: "wrap narrow", text: training.owner }));
}

/** Why it failed, or what it waits for; notes on a finished one are on its page. */
function said(training) {
  const text = training.state === "failed" ? training.reason : hasEnded(training) ? "" : training.note;
  return text ? element("span", { class: "under clipped", text }) : "";
}

function show() {
  const seen = new Set(newest.map((training) => training.id));
  const all = [...newest, ...older.filter((training) => !seen.has(training.id))];
  fillRows(byId("trainings"), all.map(row));
  byId("empty").hidden = all.length > 0;
  const narrowed = ["job", "digest", "state"].some((name) => asked.get(name));
  setText(byId("empty-says"), narrowed ? "No trainings match." : "No trainings yet.");
  byId("how").hidden = narrowed;
  byId("loading").hidden = true;
  byId("more").hidden = nextCursor === null;
}

const away = (error) => setNotice(byId("notice"), `${error.message}; trying again`, "warn");

async function freshen() {
  const mine = round;
  const page = await patiently(address(), away);
  if (mine !== round) return;
  setNotice(byId("notice"), "");
  newest = page.items;
  if (older.length === 0) nextCursor = page.next_cursor;
  show();
}

function refused(error) {
  if (!(error instanceof Away || error instanceof Refused)) throw error;
  setNotice(byId("notice"), `Could not load trainings: ${error.message}`, "bad");
}

byId("more").addEventListener("click", async () => {
  const mine = round;
  try {
    const page = await request(address(nextCursor));
    if (mine !== round) return;
    older.push(...page.items);
    nextCursor = page.next_cursor;
    show();
  } catch (error) {
    refused(error);
  }
});

byId("filter").addEventListener("change", () => {
  round += 1;
  older.length = 0;
  if (byId("filter").value) asked.set("state", byId("filter").value);
  else asked.delete("state");
  history.replaceState(null, "", asked.size ? `?${asked}` : location.pathname);
  freshen().catch(refused);
});

function showNarrowed() {
  byId("filter").value = asked.get("state") ?? "";
  const [job, digest] = [asked.get("job"), asked.get("digest")];
  const parts = [];
  if (job) parts.push("of ", element("a", { href: `/jobs/${encodeURIComponent(job)}`, text: "one job" }), " ");
  if (digest) parts.push("of the architecture ", element("code", { text: digest.slice(0, 10) }), " ");
  byId("narrowed").hidden = parts.length === 0;
  if (parts.length) byId("narrowed").replaceChildren("Only trainings ", ...parts, "· ", element("a", { href: "/trainings", text: "show all" }));
}

showAccount();
showNarrowed();
keepFresh(freshen, FRESHEN_MS, refused);
