// The one command that enrols a device and starts its agent; `edgefront token create` prints the same.

const LOOPBACK = /^(localhost|.+\.localhost|127(\.\d+){3}|\[::1\])$/;

/** The URL of a service in a text that somebody typed; null if it is none. */
export function parseAddress(text) {
  try {
    const url = new URL(text.trim());
    return ["http:", "https:"].includes(url.protocol) ? url : null;
  } catch {
    return null;
  }
}

export const isLoopback = (url) => LOOPBACK.test(url.hostname);

/** A service's address, without a slash at its end; it may have a path. */
export const addressOf = (url) => `${url.origin}${url.pathname.replace(/\/+$/, "")}`;

/** Plain HTTP beyond the machine: the agent does that only with `--insecure`. */
export const needsInsecure = (url) => url.protocol === "http:" && !isLoopback(url);

const quoted = (text) => (/^[\w.:@+,/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);

/** `url` from `parseAddress`; `name` may be empty: then the device takes its host name. */
export function agentCommand(url, token, name) {
  return [
    `echo ${token} | edgefront agent --server ${quoted(addressOf(url))} --token-file -`,
    ...(name ? [`--name ${quoted(name)}`] : []),
    ...(needsInsecure(url) ? ["--insecure"] : []),
  ].join(" ");
}
