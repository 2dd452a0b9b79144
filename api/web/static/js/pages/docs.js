// The API's documentation: Swagger UI over this service's own document. Its requests carry the session's cookie.

import { request, showAccount } from "../shared/api.js";
import { byId, setNotice } from "../shared/dom.js";

async function start() {
  showAccount();
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
