// The recommended model on another device: what it would take there, predicted at once, and how it is measured there.

import { Away, eachPage, Refused, request } from "../shared/api.js";
import { byId, element, setText } from "../shared/dom.js";
import { megabytes, milliseconds } from "../shared/format.js";

export class Elsewhere {
  constructor(jobId) {
    this.jobId = jobId;
    this.asked = 0; // only the latest question is answered
    byId("elsewhere").addEventListener("change", () => this.#predict());
  }

  /** Takes the recommended model's CandidateView, and the target that it was measured on. */
  async show(model, target) {
    const isNew = this.model?.digest !== model.digest || this.target?.id !== target.id;
    Object.assign(this, { model, target });
    this.devices ??= this.#load();
    const others = (await this.devices).filter(({ name, id }) => ![name, id].includes(this.target.device));
    byId("elsewhere-field").hidden = others.length === 0;
    const names = ["", ...others.map(({ name }) => name)];
    if ([...byId("elsewhere").options].map(({ value }) => value).join("\n") !== names.join("\n")) {
      byId("elsewhere").replaceChildren(...names.map((name) => element("option", { value: name, text: name || "another device…" })));
    }
    if (isNew) this.#predict();
  }

  async #load() {
    const found = [];
    try {
      for await (const page of eachPage("/v1/devices?limit=500")) found.push(...page.filter(({ state }) => state !== "revoked"));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    }
    return found;
  }

  async #predict() {
    const [question, device, says] = [++this.asked, byId("elsewhere").value, byId("elsewhere-says")];
    says.hidden = !device;
    if (!device) return;
    setText(says, "Predicting…");
    const measure = `Measure it there: edgefront job extend ${this.jobId} --target ${/^[\w.@:-]+$/.test(device) ? device : `'${device}'`}`;
    try {
      const body = { device, protocol: this.target.protocol, architectures: [this.model.architecture] };
      const { predictions: [{ predicted, measured, beyond_measured: beyond }], note } = await request("/v1/predictions", { method: "POST", body });
      const figures = measured ? `measured ${milliseconds(measured.latency_ms)} and ${megabytes(measured.memory_bytes)}`
        : `predicted ${span(predicted, "latency", "ms", milliseconds)} and ${span(predicted, "memory", "bytes", megabytes)}`;
      if (question === this.asked) setText(says, [`On ${device}: ${figures}.`, ...(beyond ? ["It is unlike what was measured there."] : []), note, ...(measured ? [] : [measure])].filter(Boolean).join(" "));
    } catch (error) {
      if (!(error instanceof Away || error instanceof Refused)) throw error;
      if (question === this.asked) setText(says, `No prediction for ${device}: ${error.message}. ${measure}`);
    }
  }
}

function span(predicted, name, unit, text) {
  const [value, low, high] = ["", "low_", "high_"].map((part) => predicted[`${name}_${part}${unit}`]);
  return `${text(value)} (${text(low)} to ${text(high)})`;
}
