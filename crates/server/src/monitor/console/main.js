// Dashboard: asks the server for its metrics, and shows them. Chooses the view and the database.

import * as actions from "./actions.js";
import { CARDS, NEARLY_FULL, figures, problems } from "./cards.js";
import { Sample, Span } from "./metrics.js";
import * as records from "./records.js";
import { ask } from "./server.js";
import { age, count, duration, rate } from "./units.js";
import { Bar, Chart, button, byId, element, fail, fill, terms } from "./view.js";

// Time that the charts show, in seconds; at first the shorter one.
const HISTORY_SECONDS = 600;
const FIRST_SECONDS = 60;

// Time over which quantiles and ratios are taken, in seconds.
const WIDE_SECONDS = 10;

// Rows of the two tables.
const COMMANDS_MAX = 20;
const SLOW_MAX = 20;

// Longest wait for a reply, in milliseconds.
const REPLY_MS_MAX = 10000;

// Parts of the time of a slow request, with their names for people.
const PARTS_OF_SLOW = [
  ["cpu_seconds", "execution"], ["queue_seconds", "queue"], ["login_seconds", "login"],
  ["store_seconds", "cluster"], ["pieces_seconds", "earlier pieces"],
  ["wait_seconds", "waiting"], ["acknowledgement_seconds", "acknowledgement"],
];

// Views by their names. The dashboard is always kept up to date.
const VIEWS = { dashboard: undefined, records, actions };

// Samples, the oldest first.
let samples = [];
// Figures of the chosen database, the oldest first.
let history = [];
let database;
// Databases by their names.
let described = new Map();
let timer;

// Returns the text of a figure and its unit, or of a function.
function textOf([key, unit], now) {
  return unit ? unit(now[key]) : key(now);
}

// Makes the elements of a card. Returns the function that shows figures in it.
function card(spec) {
  const number = element("div", "figure");
  const node = element("section", "", element("h2", "", spec.title), number);
  const chart = spec.lines && new Chart(spec.title, spec.lines.length);
  if (chart) node.append(chart.node);
  const bars = (spec.bars ?? []).map(([label, share]) => ({ bar: new Bar(label), share }));
  bars.forEach(({ bar }) => node.append(bar.node));
  const list = element("dl");
  node.append(list);
  byId("cards").append(node);
  return (now, past, moments) => {
    const needed = spec.needs ? now[spec.needs] : true;
    node.hidden = needed === undefined || needed.length === 0;
    if (node.hidden) return;
    const note = typeof spec.note === "function" ? spec.note(now) : spec.note ?? "";
    number.replaceChildren(textOf([spec.figure].flat(), now), " ", element("small", "", note));
    chart?.draw(spec.lines.map(([, key]) => past.map((then) => then[key])), moments, spec.max);
    for (const { bar, share } of bars) {
      const value = share(now);
      bar.node.toggleAttribute("hidden", value === undefined);
      if (value !== undefined) bar.draw(value, NEARLY_FULL);
    }
    const lines = (spec.lines ?? []).map(([label, key, unit], line) => (
      [element("span", "", element("span", `key k${line}`), label), unit(now[key])]
    ));
    const facts = typeof spec.facts === "function" ? spec.facts(now)
      : (spec.facts ?? []).map(([label, ...what]) => [label, textOf(what, now)]);
    list.replaceChildren(...terms([...lines, ...facts]));
  };
}

const show = CARDS.map(card);

async function page(path) {
  const signal = AbortSignal.timeout(REPLY_MS_MAX);
  const response = await fetch(path, { cache: "no-store", signal });
  return { ok: response.ok, text: await response.text() };
}

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
  if (!names.includes(database)) {
    database = names[0];
    history = [];
  }
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
  history = [];
  if (samples.length > 0) showSamples();
}

// Asks for the databases, and shows the view.
async function describe() {
  const list = await (await ask("databases", {})).json();
  described = new Map(list.map((db) => [db.name, db]));
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
  for (const name of Object.keys(VIEWS)) byId(`view-${name}`).hidden = name !== view;
  for (const link of byId("views").children) {
    link.ariaCurrent = link.getAttribute("href") === `#${view}` ? "page" : null;
  }
  fail();
  const named = [...described.values()].find((db) => db.id === fields.db);
  if (named && named.name !== database) choose(named.name);
  const db = described.get(database);
  if (db) VIEWS[view]?.show(db, fields);
}

function showCommands(span) {
  const used = span.now.rows("tyrant_requests_total", { database })
    .filter((row) => row.value > 0)
    .map((row) => ({ ...row, perSecond: span.rate("tyrant_requests_total", row.labels) ?? 0 }));
  used.sort((one, other) => other.perSecond - one.perSecond || other.value - one.value);
  const cells = used.slice(0, COMMANDS_MAX).map(({ labels, value, perSecond }) => [
    labels.command, labels.protocol.replaceAll("_", " "),
    [rate(perSecond), "number"], [count(value), "number"],
  ]);
  fill(byId("commands"), cells, "No request yet.");
}

function showSlow(lines) {
  const requests = lines.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
  const own = requests.filter((request) => request.database === database);
  const cells = own.slice(0, SLOW_MAX).map((request) => {
    const [part, name] = PARTS_OF_SLOW.reduce((most, other) => (
      request[other[0]] > request[most[0]] ? other : most
    ));
    return [
      new Date(request.time * 1000).toLocaleTimeString(), request.command,
      [request.key ?? "", "key"], [duration(request.seconds), "number"],
      `${name} ${duration(request[part])}`, request.client ?? "",
    ];
  });
  fill(byId("slow"), cells, "None since the start.");
}

// Shows the last samples.
function showSamples() {
  const now = samples.at(-1);
  showDatabases(now.rows("tyrant_writable", {}).map((row) => row.labels.database));
  const version = now.rows("tyrant_build_info", {})[0]?.labels.version ?? "";
  const start = now.sum("process_start_time_seconds", {});
  byId("about").textContent = `${version}, up for ${age(Date.now() / 1000 - start)}`;
  if (samples.length < 2 || database === undefined) return;
  const last = new Span(samples.at(-2), now);
  const figuresNow = figures(last, new Span(samples[0], now), database);
  history.push(figuresNow);
  const interval = Number(byId("interval").value);
  history = history.slice(-Math.round(HISTORY_SECONDS / interval));
  const moments = Math.max(history.length, Math.round(FIRST_SECONDS / interval));
  show.forEach((showCard) => showCard(figuresNow, history, moments));
  showCommands(last);
}

async function update() {
  clearTimeout(timer);
  try {
    const [metrics, ready, slow] = await Promise.all(["../metrics", "../ready", "../slow"].map(page));
    const now = new Sample(metrics.text, performance.now() / 1000);
    // One sample stays that is older than the time for quantiles.
    while (samples.length > 2 && now.at - samples[1].at > WIDE_SECONDS) samples.shift();
    samples.push(now);
    showSamples();
    showSlow(slow.text);
    const [state, ...lines] = ready.text.split("\n").filter((line) => line !== "");
    const found = history.length > 0 ? problems(history.at(-1)) : [];
    const warnings = lines.map((line) => line.replace(/^warning: /, ""));
    showAttention([...new Set([...warnings, ...found])], !ready.ok);
    setState(ready.ok ? "ready" : "not ready", ready.ok ? "good" : "bad");
    document.title = ready.ok ? "tyrant" : `${state.replace(/:$/, "")} - tyrant`;
  } catch (error) {
    setState("no reply", "bad");
    document.title = "no reply - tyrant";
    showAttention([`The server does not reply since ${new Date().toLocaleTimeString()}: `
      + `${error.message}. The page asks again.`], true);
  }
  timer = setTimeout(update, Number(byId("interval").value) * 1000);
}

byId("interval").addEventListener("change", () => {
  history = [];
  update();
});
window.addEventListener("hashchange", route);
route();
update();
