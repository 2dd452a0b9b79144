// The badge in a page's head that shows whether the page is live, and its event stream.

import { byId, setText } from "./dom.js";
import { EventStream } from "./stream.js";

export function setLive(state, text) {
  byId("live").className = `live ${{ live: "on", lost: "off" }[state] ?? ""}`;
  setText(byId("live"), text);
}

/** The events below `path` behind `after`: `hear` gets each, and `refresh` is called whenever they come (again). */
export function followLive(path, after, hear, refresh) {
  const stream = new EventStream((number) => `${path}/events?after=${number}`, after, hear, (state) => {
    if (state === "live") setLive("live", "live");
    else if (state === "lost") setLive("lost", "connection lost; reconnecting");
    else setLive("", "");
    if (state === "live") refresh();
  });
  stream.open();
  return stream;
}
