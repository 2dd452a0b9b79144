// The buttons that steer a device: drain, activate, trust, revoke.

import { Away, Refused, request } from "../shared/api.js";
import { byId, setNotice } from "../shared/dom.js";

const ACTIONS = ["drain", "activate", "trust", "revoke"];

export class DeviceControl {
  /** `path` of the device below `/v1`; `onSteered(device)` gets it as it is then. */
  constructor(path, onSteered) {
    this.path = path;
    this.onSteered = onSteered;
    for (const action of ACTIONS) byId(action).addEventListener("click", () => (action === "revoke" ? byId("confirm").showModal() : this.#steer(action)));
    byId("confirm").addEventListener("close", () => {
      if (byId("confirm").returnValue === "go") this.#steer("revoke");
      byId("confirm").returnValue = "";
    });
  }

  /** Offers what is possible for whoever asks, a MeView: the owner and admins steer a device. */
  show({ state, quarantine, owner }, me) {
    const may = me.role === "admin" || (me.role === "user" && me.owner === owner);
    byId("drain").hidden = !may || state !== "active";
    byId("activate").hidden = !may || state !== "draining";
    byId("trust").hidden = !may || state === "revoked" || !quarantine;
    byId("reenrol").hidden = !may;
    byId("revoke").hidden = !may || state === "revoked";
  }

  async #steer(action) {
    byId(action).disabled = true;
    try {
      this.onSteered(await request(`${this.path}/${action}`, { method: "POST" }));
    } catch (error) {
      if (!(error instanceof Away || error instanceof Refused)) throw error;
      setNotice(byId("notice"), `Could not ${action} the device: ${error.message}`, "bad");
    } finally {
      byId(action).disabled = false;
    }
  }
}
