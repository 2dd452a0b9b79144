// The API's documentation: Swagger UI over this service's own document. Its requests carry the session's cookie.

import { request, showAccount } from "../shared/api.js";
import { byId, setNotice } from "../shared/dom.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const showScheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches); // Swagger UI's own name

async function start() {
  showAccount();
  showScheme();
  dark.addEventListener("change", showScheme);
  window.SwaggerUIBundle({
    spec: await request("/v1/openapi.json"),
    dom_id: "#api",
    deepLinking: true,
    docExpansion: "list",
    filter: true,
    tryItOutEnabled: true,
    validatorUrl: null, // its badge would send this address to another site
  });
  byId("loading").hidden = true;
}

start().catch((error) => setNotice(byId("notice"), error.message, "bad"));
