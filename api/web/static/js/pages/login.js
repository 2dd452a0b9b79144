// Trades an API key for a session: one typed in, or one from the address's fragment, which no server ever sees.

import { Refused, request } from "../shared/api.js";
import { byId, setText } from "../shared/dom.js";
import { withRoot } from "../shared/root.js";

let wanted = new URLSearchParams(location.search).get("next");

/** Removes the fragment from the address bar and the history first; returns its key. */
function takeFragment() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const isLink = fragment.has("key") || fragment.has("next");
  // What the browser carried over from the page that was wanted: it holds what is to be shown there.
  if (!isLink && wanted && !wanted.includes("#")) wanted += location.hash;
  wanted = fragment.get("next") ?? wanted;
  history.replaceState(null, "", location.pathname + (wanted ? `?next=${encodeURIComponent(wanted)}` : ""));
  return fragment.get("key");
}

/** Only ever a page of this service. */
function destination() {
  const address = new URL(wanted || withRoot("/"), location.origin);
  const isHere = address.origin === location.origin && address.pathname.startsWith(withRoot("/"));
  const isPage = isHere && !address.pathname.startsWith(withRoot("/login"));
  return isPage ? address.href : withRoot("/"); // With its origin: a path of its own may be "//elsewhere".
}

async function signIn(key) {
  const button = byId("login").querySelector("button");
  button.disabled = true;
  setText(byId("problem"), "");
  try {
    await request("/v1/session", { method: "POST", body: { key } });
    location.replace(destination());
  } catch (error) {
    const refused = error instanceof Refused && [401, 403, 422].includes(error.status);
    setText(byId("problem"), refused ? "This key is not valid, or it was revoked or has expired." : `Could not sign in: ${error.message}`);
    button.disabled = false;
    byId("key").focus();
  }
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("key").value.trim();
  if (key) signIn(key);
  else setText(byId("problem"), "Type or paste a key.");
});

function start() {
  const key = takeFragment();
  if (key) signIn(key);
  else byId("key").focus();
}

addEventListener("hashchange", start); // A link with a key, opened where this page is open already.
start();
