/** Texts of the screens for the person who operates the service. */

import { counted, listed } from "./format.js";

export const OPERATOR = {
  system: {
    title: "System",
    checks: "Checks",
    settings: "Settings",
    filter: "Filter",
    settingColumns: ["Setting", "Value", "From", "Meaning"],
    masked: "(hidden)",
    leaves: "What leaves this machine",
    leavesNothing: "Nothing leaves this machine.",
    processes: "Processes",
    processColumns: ["Process", "State", "Process id", "Restarts", "Doing"],
    alive: "alive",
    gone: "gone",
    logs: "Logs",
    process: "Process",
    limits: "Limits and keys in use",
    limitColumns: ["Limit", "Taken", "Waiting", "Refused"],
    key: (/** @type {number} */ place) => `Key ${place}`,
    sessions: "Sessions",
    dialects: "Responses and Messages",
    noLimits: "No key is in use at the moment.",
    spending: "Spending",
    keys: "Keys",
    keyColumns: ["Name", "Scopes", "Last used"],
    entry: "Entry for openclaw.json",
    entryHow: "openclaw-rl connect openclaw writes this for you, with a client key in place of the words in capitals.",
    copy: "Copy",
    copied: "Copied.",
    stay: "Stay signed in on this browser: now until this sign-in ends, later for a week",
  },

  privacy: {
    title: "Privacy",
    kept: "What is kept",
    total: (/** @type {string} */ size) => `${size} on this machine`,
    oldest: (/** @type {string} */ time) => `The oldest turn is of ${time}.`,
    nothing: "Nothing is kept.",
    days: (/** @type {number} */ days) => `Conversations are forgotten after ${counted(days, "day")}.`,
    partColumns: ["Part", "Size"],
    countColumns: ["Kept", "Number"],
    forget: "Forget a conversation",
    pick: "Conversation",
    find: "Search",
    forgetOldTitle: "Forget old conversations",
    forgetOld: "Forget what is older than (days)",
    look: "See what would go",
    consequences: (/** @type {number} */ turns, /** @type {number[]} */ versions) =>
      `${counted(turns, "turn")} would be deleted, with everything derived from ${turns === 1 ? "it" : "them"}. ` +
      (versions.length
        ? `Version ${listed(versions)} learned from ${turns === 1 ? "it" : "them"}: weights do not forget, so go back to an earlier version too, if that matters.`
        : "No version has learned from it."),
    sure: "Forget for ever",
    question: "Forget this conversation?",
    questionOld: "Forget all of these?",
    forgot: (/** @type {number} */ turns) => `Forgotten: ${counted(turns, "turn")}.`,
    download: "Download",
    downloadOf: (/** @type {string} */ title) => `Download “${title}”, without secrets and personal data`,
    none: "No conversation is kept.",
  },
};
