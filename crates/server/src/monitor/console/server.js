// Server: requests about records, with addresses relative to the page, and the keys in them.

// Difference of the server's clock to that of the browser, in seconds.
let skew = 0;

export function setClock(time) {
  skew = time - Date.now() / 1000;
}

// Returns the time of the server, in seconds since 1970.
export function clock() {
  return Date.now() / 1000 + skew;
}

// Why a request failed, by the server's words. Others are shown as they are.
const REASONS = {
  Unauthorized: "Log in to see the records of this database.",
  Forbidden: "The server does not allow it.",
  "Not Found": "There is no such record.",
  "Precondition Failed": "The record was changed by another client meanwhile.",
  "Internal Server Error": "It failed, or this kind of database does not have it.",
};

// Sends a request. Returns the response, or throws an error with the status and a reason.
export async function ask(resource, query, options = {}) {
  const fields = Object.entries(query).filter(([, value]) => value !== undefined);
  const text = fields.map(([name, value]) => `${name}=${encoded(value)}`).join("&");
  const headers = { "X-Tyrant-Console": "1", ...options.headers };
  const response = await fetch(`${resource}?${text}`, { cache: "no-store", ...options, headers });
  if (response.ok) return response;
  const reason = (await response.text()).trim() || response.statusText;
  throw Object.assign(new Error(REASONS[reason] ?? reason), { status: response.status });
}

// Calls `each` with the objects of a response of lines, as they come.
export async function lines(response, each) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts.filter(Boolean)) each(JSON.parse(part));
  }
}

// Calls a function with arguments, which are texts or bytes. Returns the texts of its result.
export async function call(db, name, values) {
  const body = values.map((value, number) => `a${number}=${encoded(value)}`).join("&");
  const response = await ask("call", { db, name }, { method: "POST", body });
  const text = await response.text();
  const fields = text === "" ? [] : text.split("&");
  return fields.map((field) => shown(decoded(field.slice(field.indexOf("=") + 1))));
}

// Returns bytes or a text with all but letters, digits and -._~ percent-encoded.
export function encoded(value, kept = /[\w.~-]/) {
  const bytes = typeof value === "string" ? new TextEncoder().encode(value) : value;
  return Array.from(bytes, (byte) => {
    const letter = String.fromCharCode(byte);
    return kept.test(letter) ? letter : `%${byte.toString(16).padStart(2, "0").toUpperCase()}`;
  }).join("");
}

// Returns the bytes of a text in which %XX is a byte.
export function decoded(text = "") {
  const bytes = [];
  for (const part of text.match(/%[0-9a-fA-F]{2}|[^%]+|%/g) ?? []) {
    if (/^%../.test(part)) bytes.push(parseInt(part.slice(1), 16));
    else bytes.push(...new TextEncoder().encode(part));
  }
  return Uint8Array.from(bytes);
}

// Returns the bytes of a key in a list.
export function bytesOfKey(key) {
  if (typeof key === "string") return new TextEncoder().encode(key);
  return Uint8Array.from(atob(key.base64), (letter) => letter.charCodeAt(0));
}

// Returns the text of bytes, or nothing if they are not UTF-8.
export function textOf(bytes, isCut = false) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes, { stream: isCut });
  } catch {
    return undefined;
  }
}

// Returns the text of which bytes are the decoded ones: as readable as possible.
export function shown(bytes) {
  const text = textOf(bytes);
  const isPlain = text !== undefined && !/[\p{Cc}\p{Cf}\u2028\u2029]|%[0-9a-f]{2}/iu.test(text);
  return isPlain ? text : encoded(bytes, /[ -$&-~]/);
}
