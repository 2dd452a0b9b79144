// Talking to /v1 with the session cookie.

import { withRoot } from "./root.js";

/** An error response: `detail` is its message, `status` the HTTP status. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the service answered ${status}`);
    this.status = status;
    this.kind = problem.kind || "";
    this.field = problem.field || "";
    this.allowed = problem.allowed || "";
    this.retryAfter = 0;
  }
}

/** The service is unreachable or unavailable: try again. */
export class Away extends Error {}

export function toLogin() {
  const here = location.pathname + location.search + location.hash;
  location.replace(`${withRoot("/login")}?next=${encodeURIComponent(here)}`);
}

/** JSON from `path`, such as "/v1/me", or with `as` "text" or "arrayBuffer" that. Throws `Away` for temporary errors, `Refused` for permanent ones; 401 leads to the login. */
export async function request(path, { method = "GET", body, headers = {}, as = "json" } = {}) {
  const options = { method, headers: { accept: as === "json" ? "application/json" : "*/*", ...headers }, credentials: "same-origin" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(withRoot(path), options);
  } catch {
    throw new Away("the service cannot be reached");
  }
  if (answer.ok) return answer.status === 204 ? null : answer[as]();
  if (answer.status === 401 && !path.startsWith("/v1/session")) {
    toLogin();
    return new Promise(() => {}); // The page is being left: nobody continues with half an answer.
  }
  if ([429, 502, 503, 504].includes(answer.status)) throw new Away(`the service is busy (${answer.status})`);
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, problem);
}

/** For a request that must not be done twice. Also where a page has no `crypto.randomUUID`: over plain HTTP. */
export const randomKey = () => [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(36)).join("");

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** As `request`, for a path or a function, but retries while the service is unavailable; `onAway` is called at each failure. */
export async function patiently(path, onAway = () => {}) {
  const ask = typeof path === "function" ? path : () => request(path);
  for (let wait = 500; ; wait = Math.min(wait * 2, 15000)) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof Away)) throw error;
      onAway(error);
      await pause(wait * (0.5 + Math.random()));
    }
  }
}

/** Calls `freshen` at once and every `ms` milliseconds while the page is looked at; `refused(error)` hears why it ended. */
export async function keepFresh(freshen, ms, refused) {
  document.addEventListener("visibilitychange", () => document.hidden || freshen().catch(refused));
  try {
    for (;;) {
      if (!document.hidden) await freshen();
      await pause(ms);
    }
  } catch (error) {
    refused(error);
  }
}

/** Every item of a paged list, page by page. */
export async function* eachPage(path, onAway) {
  const joint = path.includes("?") ? "&" : "?";
  let cursor = null;
  do {
    const page = await patiently(cursor === null ? path : `${path}${joint}cursor=${encodeURIComponent(cursor)}`, onAway);
    yield page.items;
    cursor = page.next_cursor;
  } while (cursor);
}

/** The signed-in owner in the page's head, and the way out; gives the MeView. */
export async function showAccount() {
  const leave = document.getElementById("leave");
  leave.addEventListener("click", async () => {
    await request("/v1/session", { method: "DELETE" }).catch(() => {});
    location.assign(withRoot("/login"));
  });
  const me = await patiently("/v1/me");
  document.getElementById("owner").textContent = `${me.name || me.owner || ""}${me.role === "viewer" ? ", reads only" : ""}`;
  document.body.dataset.role = me.role; // The style sheet hides from a viewer what would change something.
  leave.hidden = false;
  return me;
}
