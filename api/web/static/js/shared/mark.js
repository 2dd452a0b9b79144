// The sign of a marked result, for tables and for charts.

import { element } from "./dom.js";

const SIGN = "⚠";
const SAYS = "Marked: a launch of it was measured under conditions out of the ordinary. The candidate's page shows the launches.";

/** What follows the latency of a candidate: its sign where it is marked, else nothing. */
export const markOf = ({ marked }) => (marked ? [" ", element("span", { class: "mark", role: "img", title: SAYS, "aria-label": "marked", text: SIGN })] : []);

/** The same as text, for a chart. */
export const markText = ({ marked }) => (marked ? ` ${SIGN} marked` : "");
