// The dialog that adds a device: a token, the one command for it, and the news that the device is there.

import { Away, patiently, pause, Refused, request } from "../shared/api.js";
import { byId, element, setNotice, setText } from "../shared/dom.js";
import { count } from "../shared/format.js";
import { copyText } from "../shared/share.js";
import { addressOf, agentCommand, isLoopback, needsInsecure, parseAddress } from "./command.js";

const LOOK_AGAIN_MS = 2000;
const MINUTES = 60;

export class AddDevice {
  /** `onAdded()` hears that a device has connected. */
  constructor(onAdded) {
    this.onAdded = onAdded;
    byId("add-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#makeToken();
    });
    byId("add-copy").addEventListener("click", (event) => copyText(event.currentTarget, byId("add-command").textContent));
    byId("add-close").addEventListener("click", () => byId("adding").close());
    byId("adding").addEventListener("close", () => (this.token = null)); // Nobody waits for it any more.
    for (const name of ["add-address", "add-name"]) byId(name).addEventListener("input", () => this.#write());
  }

  /** For a new device, or with `known`, a DeviceView, for its enrolment again. */
  async open(known = null) {
    this.known = known;
    this.token = null;
    setText(byId("add-title"), known ? `Enrol ${known.name} again` : "Add a device");
    byId("add-name").value = known?.name ?? "";
    byId("add-name").disabled = Boolean(known);
    for (const name of ["add-problem", "add-note", "add-insecure"]) setText(byId(name), "");
    byId("add-made").hidden = true;
    byId("add-go").hidden = false;
    setNotice(byId("add-state"), "");
    byId("add-link").replaceChildren();
    byId("adding").showModal();
    byId("add-go").disabled = true; // Until the proposed address is there: an empty one would be refused.
    await this.#tried(async () => {
      this.address = await request("/v1/address");
      byId("add-address").value = this.address.url;
      this.#write();
    });
    byId("add-go").disabled = false;
  }

  async #makeToken() {
    if (!this.#url() || this.token) return;
    const name = byId("add-name").value.trim();
    byId("add-go").disabled = true;
    await this.#tried(async () => {
      const made = this.known
        ? await this.#post(`/v1/devices/${encodeURIComponent(this.known.id)}/reenrol`, { minutes: MINUTES })
        : await this.#post("/v1/enrolment-tokens", { minutes: MINUTES, uses: 1, ...(name ? { name } : {}) });
      this.token = made;
      byId("add-go").hidden = true;
      byId("add-made").hidden = false;
      setText(byId("add-copy"), "Copy the command");
      this.#write();
      byId("add-copy").focus();
    });
    byId("add-go").disabled = false;
    if (this.token) await this.#tried(() => this.#watch(this.token));
  }

  #post(path, body) {
    return request(path, { method: "POST", body });
  }

  /** The command for the address and name of now, and what to know of that address. */
  #write() {
    const url = this.#url();
    const proposed = url && addressOf(url) === this.address?.url;
    setText(byId("add-note"), proposed ? this.address.note : url && isLoopback(url) ? "Only an agent on the service's own machine reaches this address." : "");
    setText(byId("add-insecure"), url && needsInsecure(url) ? "Plain HTTP: the device's credential and results can be read in the network. --insecure allows that." : "");
    if (this.token) setText(byId("add-command"), url ? agentCommand(url, this.token.token, byId("add-name").value.trim()) : "");
  }

  #url() {
    const url = parseAddress(byId("add-address").value);
    byId("add-address").setAttribute("aria-invalid", String(!url));
    setText(byId("add-problem"), url ? "" : "The address must be a URL that begins with http or https.");
    return url;
  }

  /** Until the device has connected, the token has expired, or the dialog is closed. */
  async #watch(token) {
    const path = `/v1/enrolment-tokens/${encodeURIComponent(token.id)}`;
    setNotice(byId("add-state"), "Waiting for the device …");
    byId("add-link").replaceChildren();
    while (this.token === token) {
      const device = await this.#enrolled(path);
      if (this.token !== token) return;
      if (device?.online) {
        this.#connected(device);
        return;
      }
      if (!device && Date.now() > Date.parse(token.expires_at)) {
        setNotice(byId("add-state"), "The token has expired. Close this and make another.", "bad");
        return;
      }
      if (device) setNotice(byId("add-state"), `${device.name} has enrolled and is about to connect …`);
      await pause(LOOK_AGAIN_MS);
    }
  }

  /** The device that has enrolled with the token; null as long as there is none. */
  async #enrolled(path) {
    const again = this.known;
    if (!again) {
      const [id] = (await patiently(path)).enrolled;
      return id ? patiently(`/v1/devices/${encodeURIComponent(id)}`) : null;
    }
    const device = await patiently(`/v1/devices/${encodeURIComponent(again.id)}`);
    return device.enrolled_at === again.enrolled_at ? null : device;
  }

  #connected(device) {
    const runtimes = device.facts.runtimes.map(({ runtime, version }) => `${runtime} ${version}`).join(", ");
    setNotice(byId("add-state"), `Connected: ${device.name}. ${device.facts.cpu}, ${count(device.facts.cores, "core")}; it measures with ${runtimes}.`, "good");
    byId("add-link").replaceChildren(element("a", { href: `/devices/${encodeURIComponent(device.id)}`, text: `Show ${device.name}` }));
    this.onAdded();
  }

  async #tried(work) {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Away || error instanceof Refused)) throw error;
      setText(byId("add-problem"), error.message);
    }
  }
}
