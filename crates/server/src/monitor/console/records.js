// Records: the keys of a database, page by page, and the record of one of them, whose value is text,
// JSON, columns, hexadecimal or an image.

import { ask, bytesOfKey, call, clock, decoded, encoded, shown, textOf } from "./server.js";
import { age, button, byId, bytes as size, dialog, element, fail, field, terms } from "./view.js";

// Keys of a page of the list.
const KEYS_MAX = 100;

// Bytes of a value that the page shows.
const SHOWN_BYTES_MAX = 65536;

// Longest file that is stored, in bytes.
const CHECKED_BYTES_MAX = 1 << 20;

// Bytes of a key that the page shows.
const KEY_BYTES_MAX = 300;

const UNKNOWN_TYPE = "application/octet-stream";

// Media types that the server shows as an image, and the bytes with which they begin.
const IMAGES = [
  ["image/png", /^\x89PNG/], ["image/jpeg", /^\xff\xd8\xff/], ["image/gif", /^GIF8/],
  ["image/webp", /^RIFF....WEBP/s], ["image/avif", /^....ftypavi/s],
];

// A string or an empty list; an opening bracket; a closing one; a sign or white space.
const PART_OF_JSON = /("(?:[^"\\]|\\.)*"|\[\s*\]|\{\s*\})|([[{])|([\]}])|[,:]|\s+/g;

// Bytes in a line of hexadecimal.
const HEX_COLUMNS = 16;

// A row of a table is names and values with zero bytes between.
const NUL = "\0";

// Most levels of JSON that are indented.
const LEVELS_INDENTED_MAX = 20;

// Database, and percent-encoded: prefix, key before the page, chosen key.
let place = {};
// Whether the keys of the place are shown.
let isListed = false;
// Number of the last request for keys and for a record; the reply to an earlier one is late.
const turns = { keys: 0, record: 0 };

// Returns the address of a place that differs from the present one.
function addressOf(changed) {
  const { db, prefix, after, key } = { ...place, ...changed };
  const used = Object.entries({ db: db.id, prefix, after, key }).filter(([, value]) => value !== undefined);
  return `#records?${used.map((one) => one.join("=")).join("&")}`;
}

// Shows the place of an address.
export function show(db, { prefix, after, key }) {
  const before = place;
  place = { db, prefix, after, key };
  const isOld = (...names) => before.db?.id === db.id
    && names.every((name) => before[name] === place[name]);
  if (!isOld("prefix")) byId("prefix").value = shown(decoded(prefix));
  if (isListed && isOld("prefix", "after")) markChosen();
  else loadKeys();
  if (!isOld("key")) loadRecord();
}

// Passes over the reply that another view would show.
export function hide() {
  turns.keys += 1;
  isListed = false;
}

async function loadKeys() {
  const turn = ++turns.keys;
  isListed = false;
  const { db, prefix, after } = place;
  const query = { db: db.id, limit: String(KEYS_MAX), prefix: decoded(prefix) };
  if (after !== undefined) query.after = decoded(after);
  try {
    const page = await (await ask("keys", query)).json();
    if (turn !== turns.keys) return;
    isListed = true;
    fail();
    showKeys(page);
  } catch (error) {
    if (turn !== turns.keys) return;
    showKeys({ keys: [], next: null });
    fail(error.message);
    if (error.status === 401) byId("failure").append(" ", button("Log in", "", loadKeys));
  }
}

function showKeys({ keys, next }) {
  const lines = keys.map((key) => {
    const bytes = bytesOfKey(key);
    const link = element("a", "key", nameOf(bytes));
    link.href = addressOf({ key: encoded(bytes) });
    return element("li", "", link);
  });
  if (lines.length === 0) lines.push(element("li", "", element("p", "", "No key.")));
  byId("keys").replaceChildren(...lines);
  byId("keys").parentElement.scrollTop = 0;
  byId("first").disabled = place.after === undefined;
  byId("next").disabled = next === null;
  byId("next").onclick = () => { location.hash = addressOf({ after: encoded(bytesOfKey(next)) }); };
  markChosen();
}

function markChosen() {
  for (const link of byId("keys").querySelectorAll("a")) {
    link.ariaCurrent = link.getAttribute("href") === addressOf() ? "true" : null;
  }
}

async function loadRecord() {
  const turn = ++turns.record;
  const { db, key } = place;
  let parts = [element("p", "note", "Choose a key.")];
  try {
    if (key !== undefined) parts = partsOf(await read(db, decoded(key)));
  } catch (error) {
    parts = [named(decoded(key)), element("p", "failure", error.message)];
  }
  if (turn !== turns.record) return;
  byId("record").replaceChildren(...parts);
}

// Reads a record, and the beginning of its value.
async function read(db, key) {
  const query = { db: db.id, key };
  let response;
  try {
    response = await ask("record", query, { headers: { Range: `bytes=0-${SHOWN_BYTES_MAX - 1}` } });
  } catch (error) {
    // There is no such part of an empty value.
    if (error.status !== 416) throw error;
    response = await ask("record", query, { headers: { "If-None-Match": '"-"' } });
  }
  const bytes = new Uint8Array(await response.arrayBuffer());
  const header = (name) => response.headers.get(name) ?? undefined;
  const total = Number(header("Content-Range")?.split("/")[1] ?? bytes.length);
  const address = `record?db=${db.id}&key=${encoded(key)}`;
  return {
    db, key, query, bytes, total, address, expires: header("X-TT-XT"), tag: header("ETag"),
    type: header("X-Tyrant-Type") ?? UNKNOWN_TYPE, flags: header("X-TT-FLAGS"),
    isCut: total > bytes.length, isRow: db.kind === "table",
  };
}

function nameOf(key) {
  const name = shown(key.subarray(0, KEY_BYTES_MAX)) || "(empty)";
  return key.length > KEY_BYTES_MAX ? `${name}… (${key.length} bytes)` : name;
}

function named(key) {
  return element("p", "name", nameOf(key));
}

// Returns the elements that show a record.
function partsOf(record) {
  const { expires, flags, tag, total, type } = record;
  const end = expires && new Date(expires * 1000).toLocaleString();
  const facts = [
    ["size", total < 10000 ? `${total} bytes` : `${size(total)} (${total} bytes)`],
    ["type", type], ["flags", flags === "0" ? undefined : flags],
    ["expires", expires && `${end}, in ${age(expires - clock())}`], ["version", tag],
  ];
  const value = element("div", "");
  const choices = viewsOf(record).map(([name, make]) => button(name, "", ({ currentTarget }) => {
    value.replaceChildren(make());
    for (const one of choices) one.ariaPressed = String(one === currentTarget);
  }));
  const group = element("div", "buttons", ...choices);
  group.role = "group";
  group.ariaLabel = "Show the value as";
  const download = element("a", "button", "Download");
  download.href = record.address;
  download.download = encoded(record.key).slice(-100);
  const acts = element("div", "buttons", download, button("Change", "", () => store(record)));
  if (!record.isRow) acts.append(button("Expiry", "", () => expire(record)));
  acts.append(button("Delete", "danger", () => remove(record)));
  const note = record.isCut ? [element("p", "note", `The first ${size(record.bytes.length)}.`)] : [];
  choices[0].click();
  return [named(record.key), element("dl", "facts", ...terms(facts)), group, value, ...note, acts];
}

// Asks for a new record, or for a new value of one, whose type, flags and expiry stay.
function store(record) {
  const db = record?.db ?? place.db;
  const isRow = db.kind === "table";
  const [key, area, file, type] = ["input", "textarea", "input", "input"].map((name) => element(name));
  const [seconds, expiry] = secondsField();
  const text = record ? editable(record) : "";
  const content = record ? [named(record.key)]
    : [field("Key, in which %XX is a byte", key, { value: shown(decoded(place.prefix)) })];
  if (text !== undefined) {
    const label = isRow ? "Columns, a line for each: NAME: VALUE" : "Value";
    content.push(field(label, area, { value: text, rows: 12, spellcheck: false }));
  }
  content.push(field("Value from a file", file, { type: "file", required: text === undefined }));
  if (!record && !isRow) content.push(field("Type", type, { value: "text/plain; charset=utf-8" }), expiry);
  dialog(record ? "Change a record" : "New record", content, "Store", async () => {
    const [chosen] = file.files;
    const query = record?.query ?? { db: db.id, key: decoded(key.value) };
    const headers = { "Content-Type": record?.type || chosen?.type || type.value || UNKNOWN_TYPE };
    // A file has its own type.
    if (record?.flags && !chosen?.type) headers["X-TT-FLAGS"] = record.flags;
    const expires = record ? record.expires : timeOf(seconds);
    if (expires && !isRow) headers["X-TT-XT"] = expires;
    const condition = record ? { "If-Match": record.tag } : { "If-None-Match": "*" };
    if (chosen?.size > CHECKED_BYTES_MAX) {
      throw new Error("A file over 1 MiB is stored at the database's port, as with curl -T FILE.");
    }
    try {
      Object.assign(headers, condition);
      const body = chosen ?? new Blob([edited(area.value, isRow)]);
      await ask("record", query, { method: "PUT", headers, body });
    } catch (error) {
      if (record || ![304, 412].includes(error.status)) throw error;
      throw new Error("There is a record with this key already.");
    }
    if (!record) {
      await loadKeys();
      location.hash = addressOf({ key: encoded(query.key) });
    }
    await loadRecord();
  });
}

// Returns the time of the server after a number of seconds, where 0 is never.
function timeOf({ value }) {
  return String(Number(value) && Math.ceil(clock()) + Number(value));
}

function secondsField() {
  const input = element("input");
  const attributes = { type: "number", min: 0, step: 1, value: 0, required: true };
  return [input, field("Expires after this many seconds, 0 is never", input, attributes)];
}

function expire(record) {
  const [seconds, labelled] = secondsField();
  dialog("Change the expiry", [named(record.key), labelled], "Change", async () => {
    await call(record.db.id, "touch", [record.key, timeOf(seconds)]);
    await loadRecord();
  });
}

function remove(record) {
  const text = element("p", "", `This deletes its value of ${record.total} bytes.`);
  dialog("Delete this record?", [named(record.key), text], "Delete", async () => {
    const headers = { "If-Match": record.tag };
    await ask("record", record.query, { method: "DELETE", headers });
    await loadKeys();
    await loadRecord();
  });
}

// Returns the ways to show a value: name and function that makes an element, the best one first.
function viewsOf(value) {
  const views = [];
  const text = textOf(value.bytes, value.isCut);
  const image = imageType(value.bytes);
  if (image !== undefined) views.push(["Image", () => imageOf(`${value.address}&as=${image}`)]);
  if (value.isRow && text !== undefined) views.push(["Columns", () => tableOf(columnsOf(text))]);
  const json = text === undefined || value.isCut ? undefined : indented(text);
  if (json !== undefined) views.push(["JSON", () => block(json, "Value as JSON")]);
  const isText = text !== undefined && !text.includes(NUL);
  if (isText) views.push(["Text", () => block(text, "Value as text")]);
  views.push(["Hex", () => {
    const made = block(hexOf(value.bytes), "Value in hexadecimal");
    made.classList.add("hex");
    return made;
  }]);
  return views;
}

// Returns the text by which a value is edited, or nothing if a text field would change it.
function editable(value) {
  const text = value.isCut ? undefined : textOf(value.bytes);
  if (text === undefined || text.includes("\r")) return undefined;
  if (!value.isRow) return text.includes(NUL) ? undefined : text;
  const columns = columnsOf(text);
  const isPlain = columns.every(([name, column]) => !/: |\n|^$/.test(name) && !column.includes("\n"));
  return isPlain ? columns.map((column) => column.join(": ")).join("\n") : undefined;
}

// Returns the value of an edited text.
function edited(text, isRow) {
  if (!isRow) return text;
  const lines = text.split("\n").filter((line) => line !== "");
  if (!lines.every((line) => line.includes(": "))) throw new Error("A line is NAME: VALUE.");
  return lines.map((line) => line.replace(": ", NUL)).join(NUL);
}

function block(text, label) {
  const made = element("pre", "value", text);
  made.tabIndex = 0;
  made.role = "group";
  made.ariaLabel = label;
  return made;
}

function imageOf(address) {
  const image = element("img", "value");
  image.alt = "Value as an image";
  image.src = address;
  const failed = () => image.replaceWith(element("p", "", "The value is not a whole image."));
  image.addEventListener("error", failed);
  return image;
}

function imageType(bytes) {
  const start = String.fromCharCode(...bytes.subarray(0, 16));
  return IMAGES.find(([, begins]) => begins.test(start))?.[0];
}

// Returns names and values of the columns of a row.
function columnsOf(text) {
  const parts = text === "" ? [] : text.split(NUL);
  return parts.flatMap((name, at) => (at % 2 ? [] : [[name, parts[at + 1] ?? ""]]));
}

function tableOf(columns) {
  const rows = columns.map(([name, column]) => {
    const head = element("th", "", name);
    head.scope = "row";
    return element("tr", "", head, element("td", "key", column));
  });
  return element("table", "value", element("tbody", "", ...rows));
}

// Returns JSON with a line for each member, or nothing if the text is none. No number is rounded.
function indented(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    JSON.parse(text);
  } catch {
    return undefined;
  }
  let depth = 0;
  const line = (change) => `\n${"  ".repeat(Math.min(depth += change, LEVELS_INDENTED_MAX))}`;
  return text.replace(PART_OF_JSON, (part, whole, open, close) => {
    if (whole) return part;
    if (open) return open + line(1);
    if (close) return line(-1) + close;
    return { ",": `,${line(0)}`, ":": ": " }[part] ?? "";
  });
}

function hexOf(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += HEX_COLUMNS) {
    const row = [...bytes.subarray(at, at + HEX_COLUMNS)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "."));
    const offset = at.toString(16).padStart(6, "0");
    lines.push(`${offset}  ${hex.padEnd(HEX_COLUMNS * 3 - 1)}  ${text.join("")}`);
  }
  return lines.join("\n");
}

byId("browse").addEventListener("submit", (event) => {
  event.preventDefault();
  const prefix = encoded(decoded(byId("prefix").value));
  const target = addressOf({ prefix: prefix || undefined, after: undefined, key: undefined });
  if (location.hash === target) loadKeys();
  else location.hash = target;
});
byId("first").addEventListener("click", () => { location.hash = addressOf({ after: undefined }); });
byId("new").addEventListener("click", () => store());
