import { register } from "./plugin.js";

/** The plug-in as OpenClaw loads it. */
export default {
  id: "openclaw-rl",
  name: "openclaw-rl",
  description:
    "Adds session and turn headers to requests for your openclaw-rl service, and the commands /good, /bad and /rl.",
  register,
};
