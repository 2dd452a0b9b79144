// What all charts share: Plotly and its settings, and who gets the wheel.

import { byId, debounced, element } from "./dom.js";

let loading = null;

/**
 * Plotly, or null where it cannot be loaded. It is run when it is first asked for: that takes the page's thread for a second,
 * which would hold up the first rows. A page with charts has it fetched early (`<link rel="preload" id="plotly">`).
 */
export function plotly() {
  loading ??= new Promise((done) => {
    const on = { load: () => done(window.Plotly ?? null), error: () => done(null) };
    document.head.append(element("script", { src: byId("plotly").href, on }));
  });
  return loading;
}

const BUTTONS = {
  flat: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
  solid: [["zoom3d", "pan3d", "orbitRotation", "tableRotation"], ["resetCameraDefault3d"]],
  none: [],
};

/**
 * Settings for a chart with axes ("flat"), a 3-D chart ("solid"), or one that nobody zooms ("none"); with a `filename`
 * a button saves its picture. Only the buttons that are listed exist: of those that Plotly adds by itself some lead to its makers' site.
 */
export function plotSettings(kind, filename = null) {
  return {
    displaylogo: false,
    responsive: true,
    showTips: false,
    showSendToCloud: false,
    plotlyServerURL: "",
    plotGlPixelRatio: Math.min(Math.max(devicePixelRatio, 1), 2), // Plotly would always draw four times as many pixels.
    modeBarButtons: [...(filename ? [["toImage"]] : []), ...BUTTONS[kind]],
    toImageButtonOptions: { filename, scale: 2 },
  };
}

/** A text as Plotly's labels show it: they read some HTML. */
export const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/** Plotly itself follows the window's size only: a chart follows its element's. */
export function followSize(node) {
  const fit = debounced(() => node.data && window.Plotly.Plots.resize(node), 100);
  new ResizeObserver(fit).observe(node);
}

/** The wheel scrolls the page unless this element, or something in it, has the focus; a press gives it the focus. */
export function keepWheelFromUnfocused(node) {
  node.addEventListener("wheel", (event) => node.contains(document.activeElement) || event.stopPropagation(), { capture: true });
  node.addEventListener("pointerdown", () => node.contains(document.activeElement) || node.focus({ preventScroll: true }), { capture: true });
}
