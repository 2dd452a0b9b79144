// The job list: newest first, kept fresh while it is looked at.

import { showJobs } from "../job/list.js";
import { Away, keepFresh, patiently, Refused, request, showAccount } from "../shared/api.js";
import { byId, setNotice } from "../shared/dom.js";

const FRESHEN_MS = 5000;
const ROWS = 25; // at once

const older = []; // Jobs of the pages after the first, as they were when asked for.
let newest = [];
let nextCursor = null;

function show() {
  const seen = new Set(newest.map((job) => job.id));
  showJobs([...newest, ...older.filter((job) => !seen.has(job.id))]);
  byId("more").hidden = nextCursor === null;
}

const away = (error) => setNotice(byId("notice"), `${error.message}; trying again`, "warn");

async function freshen() {
  const page = await patiently(`/v1/jobs?limit=${ROWS}`, away);
  setNotice(byId("notice"), "");
  newest = page.items;
  if (older.length === 0) nextCursor = page.next_cursor;
  show();
}

function refused(error) {
  if (!(error instanceof Away || error instanceof Refused)) throw error;
  setNotice(byId("notice"), `Could not load jobs: ${error.message}`, "bad");
}

byId("more").addEventListener("click", async () => {
  try {
    const page = await request(`/v1/jobs?limit=${ROWS}&cursor=${encodeURIComponent(nextCursor)}`);
    older.push(...page.items);
    nextCursor = page.next_cursor;
    show();
  } catch (error) {
    refused(error);
  }
});

showAccount();
keepFresh(freshen, FRESHEN_MS, refused);
