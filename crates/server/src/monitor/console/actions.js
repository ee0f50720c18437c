// Actions: functions of the server that an administrator calls.

import { ask, call, decoded, lines } from "./server.js";
import { button, byId, bytes as size, count, dialog, element } from "./view.js";

// Title, meaning, function, and the question before it, if there is one.
const ACTIONS = [
  ["Sync", "Makes all changes durable on the disk now.", "sync"],
  ["Optimize", "Copies the whole database, which takes time and space.", "optimize",
    "Clients are served meanwhile, but may be slower."],
  ["Reload", "Reads users, certificates, settings and scripts again.", "reload"],
];

// Time between two looks at a verification, in milliseconds.
const CHECK_MS = 1000;

let db;
let timer;

// Shows the actions for a database.
export function show(chosen) {
  const isNew = db?.id !== chosen.id;
  db = chosen;
  if (!isNew) return;
  clearTimeout(timer);
  byId("result").hidden = true;
  const cards = ACTIONS.map(([title, meaning, name, question]) => {
    const act = (state) => run(state, async () => {
      const begun = performance.now();
      const results = await call(db.id, name, []);
      const seconds = (performance.now() - begun) / 1000;
      return `Done in ${seconds.toFixed(2)} s. ${results.join(" ")}`;
    });
    // The dialog does not wait for what it has begun.
    const asked = (state) => dialog(`${title}?`, [element("p", "", question)], title, () => { act(state); });
    return card(title, meaning, [[title, question ? asked : act]]);
  });
  const check = (what) => (state) => look(state, what);
  byId("actions").replaceChildren(card("Check", "Verifies every checksum of the database.",
    [["Start", check("start")], ["Stop", check("stop")]]),
    card("Back up", "Copies the database into the folder of copy-dir.", [["Back up", copy]]), ...cards);
}

// Shows the text that `act` returns, or why it failed.
async function run(state, act) {
  state.hidden = false;
  state.textContent = "under way";
  try {
    state.textContent = await act();
  } catch (error) {
    state.textContent = error.message;
  }
}

function card(title, meaning, acts) {
  const state = element("p", "note");
  state.role = "status";
  const buttons = acts.map(([text, act]) => button(text, "", () => act(state)));
  return element("section", "", element("h2", "", title), element("p", "", meaning),
    element("div", "buttons", ...buttons), state);
}

// Has the server copy its database, and shows how far that is.
function copy(state) {
  return run(state, async () => {
    let last = {};
    await lines(await ask("copy", { db: db.id }, { method: "POST" }), (line) => {
      last = line;
      if (line.of) state.textContent = `${size(line.bytes)} of ${size(line.of)}`;
    });
    if (!last.path) throw new Error(last.error ?? "The server has ended the copy.");
    return `${size(last.bytes)} are in ${last.path}`;
  });
}

// Shows how far the verification of all checksums is, after an order.
function look(state, what) {
  clearTimeout(timer);
  const { id } = db;
  return run(state, async () => {
    if (what) await call(id, "check", [what]);
    const results = await call(id, "check", ["state"]);
    const found = {};
    for (let at = 0; at + 1 < results.length; at += 2) found[results[at]] ??= results[at + 1];
    // Another database may have been chosen meanwhile.
    if (found.state === "running" && id === db.id) timer = setTimeout(look, CHECK_MS, state);
    return `${found.state}: ${count(Number(found.records))} records, `
      + `${size(Number(found.bytes))}, ${found.damages} damaged places`;
  });
}

byId("command").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("arguments").value;
  const name = byId("function").value.trim();
  const act = () => run(byId("result"), async () => {
    const values = text === "" ? [] : text.split("\n").map(decoded);
    const results = await call(db.id, name, values);
    return results.map((one, at) => `${at + 1}  ${one}`).join("\n") || "Done, without a result.";
  });
  if (name !== "vanish") act();
  else {
    const question = element("p", "", `This removes every record of ${db.name}.`);
    dialog("Remove all records?", [question], "Remove all", () => { act(); });
  }
});
