// Dashboard: asks the server for its figures, and shows them. Chooses the view and the database.

import * as actions from "./actions.js";
import { CARDS } from "./cards.js";
import * as changes from "./changes.js";
import * as records from "./records.js";
import { ask, logOut, setClock } from "./server.js";
import {
  Chart, age, button, byId, count, duration, element, fail, fill, rate, terms,
} from "./view.js";

// Shortest time that the charts show, in seconds. The server keeps an hour.
const FIRST_SECONDS = 60;
const HISTORY_SECONDS = 3600;

// Share of a disk, or of a memory limit, from which it is shown as full.
const NEARLY_FULL = 0.95;

// Time between two questions, in milliseconds.
const ASKED_MS = 2000;

// Longest wait for a reply, in milliseconds.
const REPLY_MS_MAX = 10000;

// Text of a line that has no value at present.
const NONE = "–";

// Views by their names. The dashboard is always kept up to date.
const VIEWS = { dashboard: undefined, records, changes, actions };

// History of the chosen database: numbers by the names of figures, the oldest first, and how many
// there have been since the server was started.
let past = { ticks: 0, history: {} };
let database;
// Databases by their names.
let described = new Map();
let timer;
// Number of the last question to the server.
let turns = 0;

// Returns the text of a figure and its unit, or of a function. One that is missing has none.
function textOf([key, unit], now) {
  if (!unit) return key(now);
  return now[key] === undefined ? undefined : unit(now[key]);
}

// Makes the elements of a card. Returns the function that shows figures in it.
function card(spec) {
  const number = element("div", "figure");
  const node = element("section", "", element("h2", "", spec.title), number);
  const chart = spec.lines && new Chart(spec.title, spec.lines.length);
  if (chart) node.append(chart.node);
  const bars = (spec.bars ?? []).map(([label, share]) => {
    const bar = element("meter");
    Object.assign(bar, { ariaLabel: label, optimum: 0, high: NEARLY_FULL });
    node.append(bar);
    return [bar, share];
  });
  const list = element("dl");
  node.append(list);
  byId("cards").append(node);
  return (now, history, moments) => {
    const needed = spec.needs ? now[spec.needs] : true;
    node.hidden = needed === undefined || needed.length === 0;
    if (node.hidden) return;
    const note = typeof spec.note === "function" ? spec.note(now) : spec.note ?? "";
    number.replaceChildren(textOf([spec.figure].flat(), now) ?? NONE, " ", element("small", "", note));
    chart?.draw(spec.lines.map(([, key]) => [...history[key], now[key]]), moments, spec.max);
    for (const [bar, share] of bars) {
      bar.value = share(now) ?? 0;
      bar.hidden = share(now) === undefined;
    }
    const lines = (spec.lines ?? []).map(([label, key, unit], line) => (
      [element("span", "", element("span", `key k${line}`), label), textOf([key, unit], now) ?? NONE]
    ));
    const facts = typeof spec.facts === "function" ? spec.facts(now)
      : (spec.facts ?? []).map(([label, ...what]) => [label, textOf(what, now)]);
    list.replaceChildren(...terms([...lines, ...facts]));
  };
}

const cards = CARDS.map(card);

function setState(text, className) {
  const state = byId("state");
  if (state.textContent !== text) state.textContent = text;
  state.className = className;
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

// Asks for the databases, and shows the view.
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
  for (const name of Object.keys(VIEWS)) {
    byId(`view-${name}`).hidden = name !== view;
    if (name !== view) VIEWS[name]?.hide?.();
  }
  for (const link of byId("views").children) {
    link.ariaCurrent = link.getAttribute("href") === `#${view}` ? "page" : null;
  }
  fail();
  const named = [...described.values()].find((db) => db.id === fields.db);
  if (named && named.name !== database) choose(named.name);
  const db = described.get(database);
  if (db) VIEWS[view]?.show(db, fields);
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

// Adds the last numbers of the server to those that are known.
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
  document.title = isReady ? "tyrant" : "not ready - tyrant";
  setClock(now.time);
  showDatabases(now.databases);
  if (now.database === undefined) return;
  remember(now);
  byId("about").textContent = `${now.version}, up for ${age(now.time - now.started)}`;
  showCommands(now.commands);
  showSlow(now.slow);
  if (!now.figures) return;
  const { disks, replicas, masters, nodes, time } = now;
  const shown = { ...now.figures, disks, replicas, masters, nodes, time };
  const moments = Math.max(past.history.reads.length + 1, FIRST_SECONDS / now.tick);
  cards.forEach((showCard) => showCard(shown, past.history, moments));
}

// Asks the server, now and again. The reply to an earlier question is late.
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
    document.title = "no reply - tyrant";
    showAttention([`The server does not reply since ${new Date().toLocaleTimeString()}: `
      + `${error.message}. The page asks again.`], true);
  }
  timer = setTimeout(update, ASKED_MS);
}

byId("logout").addEventListener("click", async () => {
  try {
    await logOut();
  } catch (error) {
    fail(error.message);
    return;
  }
  // The page forgets what it shows.
  location.hash = "#dashboard";
  location.reload();
});
window.addEventListener("hashchange", route);
route();
update();
