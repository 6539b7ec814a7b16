/** A component whose module is loaded when it is first shown. */

import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { S } from "./strings.js";

/** @param {{ load: () => Promise<unknown>, props: object }} props */
export function Later({ load, props }) {
  const [found, setFound] = useState(/** @type {{ component: any } | null} */ (null));
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    load().then((component) => setFound({ component }), () => setFailed(true));
  }, []);
  if (found) return html`<${found.component} ...${props} />`;
  return html`<p class="note">${failed ? S.away : S.loading}</p>`;
}
