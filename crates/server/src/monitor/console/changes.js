// Changes: those of a database as they are made, the last ones in a list.

import { ask, decoded, lines, shown } from "./server.js";
import { byId, bytes as size, fail, fill } from "./view.js";

// Rows of the list.
const ROWS_MAX = 200;

// Time between two pictures of the list, in milliseconds.
const DRAWN_MS = 250;

let db;
let ending;
let timer;
let rows = [];

// Shows the changes of a database from now on.
export function show(chosen) {
  if (db?.id !== chosen.id) rows = [];
  db = chosen;
  hide();
  follow();
}

// Ends the stream, so that the server sends no more.
export function hide() {
  ending?.abort();
  ending = undefined;
  draw();
}

async function follow() {
  const own = new AbortController();
  ending = own;
  draw();
  try {
    await lines(await ask("changes", { db: db.id }, { signal: own.signal }), (change) => {
      if (change.error) throw new Error(change.error);
      rows.unshift([
        new Date(change.time * 1000).toLocaleTimeString(),
        change.command + (change.failed ? ", failed" : ""),
        [change.key === null ? "" : shown(decoded(change.key)), "key"],
        [size(change.bytes), "number"],
      ]);
      rows.length = Math.min(rows.length, ROWS_MAX);
      timer ??= setTimeout(draw, DRAWN_MS);
    });
    throw new Error("The server has ended the list.");
  } catch (error) {
    // A pause is not a failure.
    if (ending !== own) return;
    fail(error.message);
    hide();
  }
}

function draw() {
  clearTimeout(timer);
  timer = undefined;
  byId("pause").textContent = ending ? "Pause" : "Go on";
  fill(byId("changes"), rows, ending ? "No change yet." : "None.");
}

byId("pause").addEventListener("click", () => (ending ? hide() : show(db)));
