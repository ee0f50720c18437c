// Dashboard: asks the server for its figures, and shows them. Chooses the view and the database.

import * as actions from "./actions.js";
import * as changes from "./changes.js";
import * as records from "./records.js";
import { ask, setClock } from "./server.js";
import {
  Chart, age, button, byId, byteRate, bytes, count, duration, element, fail, fill, rate, share,
  terms,
} from "./view.js";

// Shortest time that the charts show, in seconds. The server keeps an hour.
const FIRST_SECONDS = 60;
const HISTORY_SECONDS = 3600;

// Share from which a bar is shown as full.
const NEARLY_FULL = 0.95;

// Time between two questions, in milliseconds.
const ASKED_MS = 2000;

// Longest wait for a reply, in milliseconds.
const REPLY_MS_MAX = 10000;

// Text of a missing value.
const NONE = "–";

// Views by their names.
const VIEWS = { dashboard: undefined, records, changes, actions };

const percentile = (kind, name) => [
  ["p50", `${kind}50`, duration], ["p99", `${kind}99`, duration], ["p99.9", `${kind}999`, duration],
];

// Parts of the memory: a name and a figure; `<figure>Max` is its limit.
const PARTS = [["index", "index"], ["cache of pages", "cache"], ["buffers", "buffers"]];

const bar = ([label, part]) => [label, (f) => f[`${part}Max`] > 0 && f[part] / f[`${part}Max`]];

const used = ([label, part]) => [label, (f) => f[`${part}Max`] > 0
  && `${bytes(f[part])} of ${bytes(f[`${part}Max`])}`];

// The cards. `figure` is the large text; `lines` are drawn, each with its name, figure and unit;
// `bars` have a share from 0 to 1; `facts` are further lines. A card whose `needs` is
// missing in the figures is hidden.
const CARDS = [
  {
    title: "Requests",
    figure: (f) => rate(f.reads + f.writes + f.others),
    lines: [["reads", "reads", rate], ["writes", "writes", rate], ["others", "others", rate]],
    facts: [["refused", "refused", rate], ["processor", (f) => `${(f.cpu ?? 0).toFixed(2)} cores`]],
  },
  { title: "Time of reads", figure: ["read99", duration], note: "p99", lines: percentile("read") },
  { title: "Time of writes", figure: ["write99", duration], note: "p99", lines: percentile("write") },
  {
    title: "Reads that found a record",
    figure: ["hits", share], lines: [["hit ratio", "hits", share]], max: 1,
    facts: [["read from the disk", "cold", rate]],
  },
  {
    title: "Records",
    figure: ["records", count], lines: [["records", "records", count]],
    facts: [["evicted", "evicted", rate], ["expired", "expired", rate]],
  },
  {
    title: "Connections",
    figure: ["connections", count], note: (f) => `of ${count(f.connectionsMax)}`,
    lines: [["open", "connections", count]],
    facts: [
      ["new", "accepted", rate], ["rejected since the start", "rejected", count],
      ["busiest event loop", "busy", share],
    ],
  },
  {
    title: "Network",
    figure: (f) => byteRate((f.received ?? 0) + (f.sent ?? 0)),
    lines: [["received", "received", byteRate], ["sent", "sent", byteRate]],
  },
  {
    title: "Memory of the process",
    figure: ["resident", bytes], lines: [["resident", "resident", bytes]],
    bars: PARTS.map(bar), facts: PARTS.map(used),
  },
  {
    title: "Disk", needs: "size",
    figure: ["size", bytes],
    note: (f) => (f.sizeMax > 0 ? `of at most ${bytes(f.sizeMax)}` : ""),
    lines: [["size", "size", bytes]],
    bars: [["disk of the database", (f) => f.disks[0]?.[2]]],
    facts: (f) => f.disks.map(([files, free]) => [`free for ${files}`, bytes(free)]),
  },
  {
    title: "Log on the disk", needs: "segments",
    figure: ["dead", share], note: "can be given back",
    lines: [["can be given back", "dead", share]], max: 1,
    facts: [["segments", "segments", count], ["compacted", "compacted", byteRate]],
  },
  {
    title: "Durability", needs: "syncs",
    figure: ["syncs", rate], note: "syncs",
    lines: [["syncs", "syncs", rate]],
    facts: [["time of a sync", "sync", duration], ["wait of writes, p99", "wait99", duration]],
  },
  {
    title: "Replicas", needs: "replicaLag",
    figure: ["replicaLag", age], note: "behind",
    lines: [["seconds behind", "replicaLag", age]],
    facts: (f) => f.replicas.map(([replica, lag]) => [replica, `${age(lag)} behind`]),
  },
  {
    title: "Master", needs: "masterLag",
    figure: ["masterLag", age], note: "behind",
    lines: [["seconds behind", "masterLag", age]],
    facts: (f) => f.masters.map(([master, lag]) => [master, `${age(lag)} behind`]),
  },
  {
    title: "Logins and certificates",
    figure: (f) => (f.certificateEnd === undefined ? "no TLS" : age(f.certificateEnd - f.time)),
    note: (f) => (f.certificateEnd === undefined ? "" : "until the certificate ends"),
    facts: [
      ["failed logins since the start", "loginsFailed", count],
      ["refused as too soon", "loginsRefused", count],
      ["new TLS sessions", "handshakes", rate],
    ],
  },
  {
    title: "Scripts", needs: "calls",
    figure: ["calls", rate], note: "calls", lines: [["calls", "calls", rate]],
    facts: [["time of a call", "call", duration], ["failed since the start", "callFailures", count]],
    bars: [bar(["memory of scripts", "scriptMemory"])],
  },
  {
    title: "Nodes of the cluster", needs: "nodes",
    figure: (f) => count(f.nodes[0][1]), note: "connected",
    facts: (f) => f.nodes.map(([state, nodes]) => [state, count(nodes)]),
  },
];

// History of the chosen database: numbers by the names of figures, the oldest first, and how many
// there have been since the server was started.
let past = { ticks: 0, history: {} };
let database;
// Databases by their names.
let described = new Map();
let timer;
// Number of the last question.
let turns = 0;

const valueOf = (what, now) => (typeof what === "function" ? what(now) : what);

// Returns the text of a figure and its unit, or of a function. One that is missing has none.
function textOf([key, unit], now) {
  if (!unit) return valueOf(key, now);
  return now[key] === undefined ? undefined : unit(now[key]);
}

// Makes the elements of a card. Returns the function that shows figures in it.
function card(spec) {
  const number = element("div", "figure");
  const node = element("section", "", element("h2", "", spec.title), number);
  const chart = spec.lines && new Chart(spec.title, spec.lines.length);
  if (chart) node.append(chart.node);
  const meters = (spec.bars ?? []).map(([label, partOf]) => {
    const meter = element("meter");
    Object.assign(meter, { ariaLabel: label, optimum: 0, high: NEARLY_FULL });
    node.append(meter);
    return [meter, partOf];
  });
  const list = element("dl");
  node.append(list);
  byId("cards").append(node);
  return (now, history, moments) => {
    const needed = spec.needs ? now[spec.needs] : true;
    node.hidden = needed === undefined || needed.length === 0;
    if (node.hidden) return;
    const note = element("small", "", valueOf(spec.note, now) ?? "");
    number.replaceChildren(textOf([spec.figure].flat(), now) ?? NONE, " ", note);
    chart?.draw(spec.lines.map(([, key]) => [...history[key], now[key]]), moments, spec.max);
    for (const [meter, partOf] of meters) {
      const part = partOf(now);
      meter.hidden = typeof part !== "number";
      meter.value = part || 0;
    }
    const lines = (spec.lines ?? []).map(([label, key, unit], line) => (
      [element("span", "", element("span", `key k${line}`), label),
        textOf([key, unit], now) ?? NONE]
    ));
    const facts = (valueOf(spec.facts, now) ?? [])
      .map(([label, ...what]) => [label, textOf(what, now)]);
    list.replaceChildren(...terms([...lines, ...facts]));
  };
}

const cards = CARDS.map(card);

function setState(text, className) {
  const state = byId("state");
  if (state.textContent !== text) state.textContent = text;
  state.className = className;
  document.title = className === "good" ? "tyrant" : `${text} - tyrant`;
}

function showAttention(lines, isBad) {
  const list = element("ul", "", ...lines.map((line) => element("li", "", line)));
  byId("attention").hidden = lines.length === 0;
  byId("attention").classList.toggle("bad", isBad);
  byId("attention").replaceChildren(list);
}

// Shows a button for each database, if there are several.
function showDatabases(names) {
  const nav = byId("databases");
  if (!names.includes(database)) [database] = names;
  if (names.some((name) => !described.has(name))) {
    describe().catch((error) => fail(error.message));
  }
  nav.hidden = names.length < 2;
  const known = [...nav.children].map((one) => one.textContent);
  if (known.join("\n") !== names.join("\n")) {
    nav.replaceChildren(...names.map((name) => button(name, "", () => {
      choose(name);
      const [view] = addressed();
      const db = described.get(name);
      if (VIEWS[view] && db) location.hash = `#${view}?db=${db.id}`;
    })));
  }
  for (const one of nav.children) one.ariaPressed = String(one.textContent === database);
}

function choose(name) {
  database = name;
  update();
}

// Asks for the databases.
async function describe() {
  const list = await (await ask("databases", {})).json();
  described = new Map(list.map((db) => [db.name, db]));
  byId("logout").hidden = !list.some((db) => db.users);
  route();
}

// Returns the view in the address of the page, and its fields.
function addressed() {
  const [name, query] = location.hash.slice(1).split("?");
  const fields = (query ?? "").split("&").map((field) => field.split("="));
  return [Object.hasOwn(VIEWS, name) ? name : "dashboard", Object.fromEntries(fields)];
}

function route() {
  const [view, fields] = addressed();
  const named = [...described.values()].find((db) => db.id === fields.db);
  if (named && named.name !== database) choose(named.name);
  const db = described.get(database);
  const isRefused = VIEWS[view] && db?.refused;
  for (const name of Object.keys(VIEWS)) {
    const isShown = name === view && !isRefused;
    byId(`view-${name}`).hidden = !isShown;
    if (!isShown) VIEWS[name]?.hide?.();
  }
  for (const link of byId("views").children) {
    link.ariaCurrent = link.getAttribute("href") === `#${view}` ? "page" : null;
  }
  fail(isRefused && `The ${view} of this database are not shown: ${isRefused}.`);
  if (db && !isRefused) VIEWS[view]?.show(db, fields);
}

function showCommands(commands) {
  fill(byId("commands"), commands.map(([command, protocol, perSecond, total]) => [
    command, protocol.replaceAll("_", " "), [rate(perSecond), "number"], [count(total), "number"],
  ]), "No request yet.");
}

function showSlow(requests) {
  fill(byId("slow"), requests.map(([time, command, key, seconds, part, most, client]) => [
    new Date(time * 1000).toLocaleTimeString(), command, [key, "key"],
    [duration(seconds), "number"], `${part} ${duration(most)}`, client,
  ]), "None since the start.");
}

// Adds the last numbers to those that are known.
function remember(now) {
  const isNew = now.started !== past.started || now.database !== past.database;
  const most = HISTORY_SECONDS / now.tick;
  const history = Object.fromEntries(Object.entries(now.history).map(([name, numbers]) => (
    [name, [...(isNew ? [] : past.history[name]), ...numbers].slice(-most)]
  )));
  past = { started: now.started, database: now.database, ticks: now.ticks, history };
}

function show(now) {
  const isReady = now.reasons.length === 0;
  showAttention([...new Set([...now.reasons, ...now.attention.map(([, text]) => text)])],
    !isReady || now.attention.some(([isUrgent]) => isUrgent));
  setState(isReady ? "ready" : "not ready", isReady ? "good" : "bad");
  setClock(now.time);
  showDatabases(now.databases);
  if (now.database === undefined) return;
  remember(now);
  byId("about").textContent = `${now.version}, up for ${age(now.time - now.started)}`;
  showCommands(now.commands);
  showSlow(now.slow);
  if (!now.figures) return;
  const shown = { ...now, ...now.figures };
  const moments = Math.max(past.history.reads.length + 1, FIRST_SECONDS / now.tick);
  cards.forEach((showCard) => showCard(shown, past.history, moments));
}

// Asks the server, now and again.
async function update() {
  clearTimeout(timer);
  const turn = ++turns;
  try {
    const from = past.database === database ? past.ticks : 0;
    const signal = AbortSignal.timeout(REPLY_MS_MAX);
    const query = { name: database, from: String(from) };
    const now = await (await ask("figures", query, { signal })).json();
    if (turn !== turns) return;
    if (from > 0 && now.started !== past.started) {
      past = { ticks: 0, history: {} };
      update();
      return;
    }
    show(now);
  } catch (error) {
    if (turn !== turns) return;
    setState("no reply", "bad");
    showAttention([`The server does not reply since ${new Date().toLocaleTimeString()}: `
      + `${error.message}. The page asks again.`], true);
  }
  timer = setTimeout(update, ASKED_MS);
}

// Ends the session: the browser keeps this name in place of the user's.
byId("logout").addEventListener("click", () => {
  const request = new XMLHttpRequest();
  request.open("GET", "logout", true, "logout", "-");
  request.onloadend = () => {
    if (request.status !== 200) {
      fail("You are still logged in: the server does not reply. Try again.");
      return;
    }
    location.hash = "#dashboard";
    location.reload();
  };
  request.send();
});
window.addEventListener("hashchange", route);
route();
update();
