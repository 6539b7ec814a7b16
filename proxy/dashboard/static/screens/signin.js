/** The way in where there is no ticket: the command that makes one, or the admin key. */

import { useState } from "preact/hooks";
import { html } from "../html.js";
import { useAction } from "../live.js";
import { S } from "../strings.js";
import { signIn } from "../token.js";
import { Check, Field, Said, Title } from "../ui.js";

const T = S.signin;

/** @param {{ failure: string }} props */
export function SignIn({ failure }) {
  const [key, setKey] = useState("");
  const [stay, setStay] = useState(false);
  const action = useAction();
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!key.trim() || action.busy) return;
    void action.run(async () => {
      try {
        await signIn({ key: key.trim() }, stay);
      } catch (error) {
        throw new Error(T.failed(error instanceof Error ? error.message : String(error)));
      }
    });
  };
  return html`<main id="content" class="signin">
    <${Title} text=${T.title} />
    ${failure ? html`<p class="note bad" role="alert">${T.failed(failure)}</p>` : null}
    <p>${T.how}</p>
    <pre tabindex="0"><code>${T.command}</code></pre>
    <form onSubmit=${submit}>
      <p>${T.or}</p>
      <${Field} type="password" label=${T.key} value=${key} onInput=${setKey} />
      <${Check} label=${T.stay} checked=${stay} onChange=${setStay} />
      <button class="button primary" type="submit">${T.enter}</button>
      <${Said} action=${action} />
    </form>
  </main>`;
}
