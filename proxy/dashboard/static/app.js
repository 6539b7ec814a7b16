/** The page: sign-in, navigation, and the screen that the address names. */

import { render } from "preact";
import { useCallback, useEffect, useState } from "preact/hooks";
import { follow, isAway } from "./api.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { useAway } from "./live.js";
import { SCREENS, address, parsePlace } from "./router.js";
import { Compare } from "./screens/compare.js";
import { Conversations } from "./screens/conversations.js";
import { Now } from "./screens/now.js";
import { Privacy } from "./screens/privacy.js";
import { Review } from "./screens/review.js";
import { SignIn } from "./screens/signin.js";
import { System } from "./screens/system.js";
import { Try } from "./screens/try.js";
import { Versions } from "./screens/versions.js";
import { S } from "./strings.js";
import { findToken, onToken, signIn, signOut, stays, takeTicket, token } from "./token.js";
import { Later } from "./later.js";

/** @typedef {{ place: import("./router.js").Place, go: (address: string) => void }} Shown */

/** @type {Record<string, (props: Shown) => unknown>} */
const COMPONENTS = {
  now: Now,
  conversations: Conversations,
  review: Review,
  versions: Versions,
  compare: Compare,
  // The library that draws them is larger than all else: it is loaded with the screen.
  curves: (props) => html`<${Later} load=${() => import("./screens/curves.js").then((found) => found.Curves)} props=${props} />`,
  try: Try,
  system: System,
  privacy: Privacy,
};

/** @param {{ failure: string }} props */
function App({ failure }) {
  const [signedIn, setSignedIn] = useState(Boolean(token()));
  useEffect(() => onToken(() => setSignedIn(Boolean(token()))), []);
  return signedIn ? html`<${Frame} />` : html`<${SignIn} failure=${failure} />`;
}

function Frame() {
  const [place, setPlace] = useState(parsePlace(location.hash));
  const away = useAway(isAway());
  useEffect(() => {
    const moved = () => setPlace(parsePlace(location.hash));
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  useEffect(() => {
    const controller = new AbortController();
    void follow(controller.signal);
    return () => controller.abort();
  }, []);
  /** Change the address without a step back for each letter of a search. */
  const go = useCallback((/** @type {string} */ to) => {
    history.replaceState(null, "", to);
    setPlace(parsePlace(to));
  }, []);
  const Screen = COMPONENTS[place.screen] ?? Now;
  const parent = { review: "conversations", compare: "versions" }[place.screen] ?? place.screen;
  const skip = (/** @type {Event} */ event) => {
    event.preventDefault();
    document.getElementById("content")?.focus();
  };
  return html`<a class="skip" href="#content" onClick=${skip}>${S.skip}</a>
    <nav aria-label=${S.nav}>
      <p class="product">${S.product}</p>
      <ul role="list">
        ${SCREENS.map((name) => html`<li key=${name}>
          <a href=${address(name)} aria-current=${name === parent ? "page" : undefined}><${Icon} name=${name} /><span>${S.screens[name]}</span></a>
        </li>`)}
      </ul>
      <button type="button" class="button quiet out" onClick=${signOut}>${S.signOut}</button>
    </nav>
    <main id="content" tabindex="-1">
      <div role="status" class="away">${away ? html`<p class="note bad"><${Icon} name="alert" /> ${S.away}</p>` : null}</div>
      <${Screen} key=${place.screen} place=${place} go=${go} />
    </main>`;
}

async function start() {
  const root = document.getElementById("app");
  if (!root) return;
  let failure = "";
  const ticket = takeTicket();
  if (ticket) await signIn({ ticket }, stays()).catch((error) => (failure = error instanceof Error ? error.message : String(error)));
  else await findToken();
  render(html`<${App} failure=${failure} />`, root);
}

void start();
