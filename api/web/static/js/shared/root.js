// The path below which a proxy serves the service.

/** Empty where there is no such path. */
export const ROOT = document.documentElement.dataset.root;

/** The address of a path of the service, such as "/jobs" or "/v1/me", for the browser. */
export const withRoot = (path) => `${ROOT}${path}`;
