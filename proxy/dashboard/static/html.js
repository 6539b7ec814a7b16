/** Templates that make nodes, never markup: a text in them stays a text. */

import htm from "htm";
import { h } from "preact";

export const html = htm.bind(h);
