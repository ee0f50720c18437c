// Values: a value as text, JSON, columns, hexadecimal or an image.

import { textOf } from "./server.js";
import { element } from "./view.js";

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

// Returns the ways to show a value: name and function that makes an element, the best one first.
export function viewsOf(value) {
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
export function editable(value) {
  const text = value.isCut ? undefined : textOf(value.bytes);
  if (text === undefined || text.includes("\r")) return undefined;
  if (!value.isRow) return text.includes(NUL) ? undefined : text;
  const columns = columnsOf(text);
  const isPlain = columns.every(([name, column]) => !/: |\n|^$/.test(name) && !column.includes("\n"));
  return isPlain ? columns.map((column) => column.join(": ")).join("\n") : undefined;
}

// Returns the value of an edited text.
export function edited(text, isRow) {
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

// Most levels of JSON that are indented.
const LEVELS_INDENTED_MAX = 20;

// Returns JSON with a line for each member, or nothing if the text is none. The parts stay as they
// are: a number that a browser cannot hold is not rounded.
export function indented(text) {
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
