/** Icons as inline SVG: a server may have no font with emoji. Each is hidden from assistive technology; words name it. */

import { html } from "./html.js";

/** @type {Record<string, string>} */
const PATHS = {
  now: "M12 3v3M12 18v3M3 12h3M18 12h3M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8",
  conversations: "M4 5h16v11H9l-5 4z",
  versions: "M6 4v16M6 8h6a4 4 0 0 1 4 4v8M6 4m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0",
  curves: "M4 4v16h16M7 15l4-5 3 3 5-7",
  try: "M5 4l14 8-14 8z",
  system: "M4 6h10M18 6h2M4 12h2M10 12h10M4 18h8M16 18h4M14 4v4M8 10v4M12 16v4",
  privacy: "M12 3l8 3v6c0 5-3.5 8-8 9-4.5-1-8-4-8-9V6z",
  up: "M7 11v9H4v-9zM7 11l4-8c2 0 3 1 3 3v4h5c1.5 0 2 1 1.7 2.3l-1.7 6c-.3 1.2-1 1.7-2 1.7H7",
  down: "M17 13V4h3v9zM17 13l-4 8c-2 0-3-1-3-3v-4H5c-1.5 0-2-1-1.7-2.3l1.7-6C5.3 4.5 6 4 7 4h10",
  pause: "M8 5v14M16 5v14",
  play: "M8 5l10 7-10 7z",
  stop: "M6 6h12v12H6z",
  undo: "M9 7L4 12l5 5M4 12h10a6 6 0 0 1 6 6v1",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14M16 16l5 5",
  check: "M5 13l4 4L19 7",
  cross: "M6 6l12 12M18 6L6 18",
  alert: "M12 4L2.5 20h19zM12 10v4M12 17v.5",
  tool: "M14 6a4 4 0 0 0 5 5l-9 9-4-4 9-9zM14 6l3-3M19 11l2-3",
  branch: "M7 4v16M7 12h6a4 4 0 0 0 4-4V4",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  off: "M6 6l12 12M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18",
};

/**
 * @param {{ name: string }} props
 */
export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false"><path d=${PATHS[name] ?? ""} /></svg>`;
}
