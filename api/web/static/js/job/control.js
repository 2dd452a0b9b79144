// The buttons that steer a job: pause, resume, cancel, delete.

import { request } from "../shared/api.js";
import { byId, setNotice, setText } from "../shared/dom.js";
import { withRoot } from "../shared/root.js";
import { isEnded } from "./target.js";

const QUESTIONS = {
  cancel: {
    title: "Cancel this job?", keep: "Keep it running", go: "Cancel the job",
    says: "No further candidates will be measured. Measurements, the frontier and downloads are kept. A cancelled job cannot be resumed.",
  },
  delete: {
    title: "Delete this job?", keep: "Keep it", go: "Delete the job",
    says: "Its candidates, frontier and log are deleted permanently; if it is running, it is stopped. What was measured is kept for other jobs.",
  },
};

export class JobControl {
  /** `path` of the job below `/v1`; `onSteered(job)` gets it as it is then. */
  constructor(path, onSteered) {
    this.path = path;
    this.onSteered = onSteered;
    for (const action of ["pause", "resume"]) byId(action).addEventListener("click", () => this.#steer(action));
    for (const action of Object.keys(QUESTIONS)) byId(action).addEventListener("click", () => this.#ask(action));
    byId("confirm").addEventListener("close", () => {
      if (byId("confirm").returnValue === "go") this.#steer(byId("confirm").dataset.action);
      byId("confirm").returnValue = "";
    });
  }

  /** Offers what is possible in this state of the job; null: nothing, there is no job. */
  show(state) {
    byId("pause").hidden = state !== "running";
    byId("resume").hidden = state !== "paused";
    byId("cancel").hidden = !state || isEnded(state);
    byId("delete").hidden = byId("duplicate").hidden = !state;
  }

  #ask(action) {
    const { title, says, keep, go } = QUESTIONS[action];
    for (const [name, text] of Object.entries({ title, says, keep, go })) setText(byId(`confirm-${name}`), text);
    byId("confirm").dataset.action = action;
    byId("confirm").showModal();
  }

  async #steer(action) {
    const button = byId(action);
    button.disabled = true;
    try {
      if (action === "delete") {
        await request(this.path, { method: "DELETE" });
        location.assign(withRoot("/jobs"));
        return;
      }
      this.onSteered(await request(`${this.path}/${action}`, { method: "POST" }));
    } catch (error) {
      setNotice(byId("notice"), `Could not ${action} the job: ${error.message}`, "bad");
    } finally {
      button.disabled = false;
    }
  }
}
