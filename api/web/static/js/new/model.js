// "Start from my model": a config.json of Hugging Face, or a description, read from a file or from what was pasted.

import { Away, Refused, request } from "../shared/api.js";
import { byId, setText } from "../shared/dom.js";
import { millions } from "../shared/format.js";
import { shapeOf } from "../shared/shape.js";

const MOST_BYTES = 2 ** 20;

export class MyModel {
  /** `onRead()` hears that there is another model, or none. */
  constructor(onRead) {
    this.onRead = onRead;
    this.architecture = null;
    this.questions = 0; // only the latest is answered
    byId("begin").addEventListener("change", () => {
      this.#show();
      onRead();
    });
    byId("config-file").addEventListener("change", ({ target }) => target.files[0] && this.#readFile(target.files[0]));
    byId("model").addEventListener("input", (event) => {
      event.stopPropagation(); // The form asks for an estimate once the model is read.
      this.#read(byId("model").value);
    });
    this.#show();
  }

  get isChosen() {
    return byId("begin").value === "model";
  }

  /** The model of another job's request. */
  take(architecture) {
    byId("begin").value = "model";
    this.architecture = architecture;
    this.#show();
    setText(byId("model-says"), `The model of that job: ${shapeOf(architecture)}.`);
  }

  #show() {
    byId("model-fields").hidden = !this.isChosen;
    for (const id of ["space-field", "space-says", "narrowing"]) byId(id).hidden = byId("begin").value !== "space";
  }

  async #readFile(file) {
    const question = ++this.questions;
    if (file.size > MOST_BYTES) return this.#refuse(`${file.name} has ${file.size} bytes: a config.json has a few thousand.`);
    const text = await file.text();
    if (question !== this.questions) return;
    byId("model").value = text;
    await this.#read(text);
  }

  async #read(text) {
    const question = ++this.questions;
    this.architecture = null;
    setText(byId("model-says"), "");
    setText(byId("model-problem"), "");
    byId("model").removeAttribute("aria-invalid");
    if (!text.trim()) return this.onRead();
    let value;
    try {
      value = JSON.parse(text);
    } catch (error) {
      return this.#refuse(`This is not JSON: ${error.message}`);
    }
    try {
      const isDescription = value?.blocks !== undefined;
      const architecture = isDescription ? value : (await request("/v1/models/import", { method: "POST", body: value })).architecture;
      const { total_parameters: parameters } = await request("/v1/catalogue/describe", { method: "POST", body: architecture });
      if (question !== this.questions) return;
      this.architecture = architecture;
      const shape = Array.isArray(architecture.blocks) ? `${shapeOf(architecture)}, ` : "";
      setText(byId("model-says"), `Read as ${isDescription ? "a description" : "a config.json"}: ${shape}${millions(parameters)} parameters.`);
      this.onRead();
    } catch (error) {
      if (!(error instanceof Away || error instanceof Refused)) throw error;
      if (question === this.questions) this.#refuse(error.message);
    }
  }

  #refuse(text) {
    this.architecture = null;
    setText(byId("model-problem"), text);
    byId("model").setAttribute("aria-invalid", true);
    this.onRead();
  }
}
