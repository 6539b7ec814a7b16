import { register } from "./plugin.js";

/** The plug-in as OpenClaw loads it. */
export default {
  id: "openclaw-rl",
  name: "openclaw-rl",
  description: "Names session and turn on requests to your openclaw-rl service, and brings /good, /bad and /rl.",
  register,
};
