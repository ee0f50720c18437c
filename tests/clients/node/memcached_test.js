// The memcached text protocol as the client called memcached speaks it. Argument: port of a running
// server.

import assert from "node:assert/strict";
import { promisify } from "node:util";
import Memcached from "memcached";
import { bytes, keep, until } from "./check.js";

const client = new Memcached(`127.0.0.1:${process.argv[2]}`, { timeout: 10_000, retries: 0, maxValue: 4 << 20 });
const call = (name) => promisify(client[name]).bind(client);
const [get, gets, getMulti, set, add, replace] = ["get", "gets", "getMulti", "set", "add", "replace"].map(call);
const [append, prepend, cas, incr, decr, del, touch, flush, stats] = [
  "append", "prepend", "cas", "incr", "decr", "del", "touch", "flush", "stats",
].map(call);

async function valuesComeBack() {
  for (const length of [1, 255, 65_536, 1_000_000]) {
    assert.ok(await set("bytes", bytes(length), 0));
    assert.ok((await get("bytes")).equals(bytes(length)), `${length} bytes`);
  }
  for (const value of ["text", { an: ["object"] }]) {
    await set("value", value, 0);
    assert.deepEqual(await get("value"), value);
  }
  assert.equal(await get("missing"), undefined);
}

async function storesLookWhetherThereIsARecord() {
  assert.ok(await add("once", "b", 0));
  await assert.rejects(add("once", "x", 0));
  assert.ok(await append("once", "c"));
  assert.ok(await prepend("once", "a"));
  assert.equal(await get("once"), "abc");
  assert.ok(await replace("once", "d", 0));
  await assert.rejects(replace("never", "x", 0));
}

async function casStoresOnlyOverWhatWasRead() {
  await set("swapped", "1", 0);
  const { cas: number } = await gets("swapped");
  assert.equal(await cas("swapped", "2", number, 0), true);
  assert.equal(await cas("swapped", "3", number, 0), false);
  assert.equal(await get("swapped"), "2");
}

async function countersCount() {
  await set("counter", 10, 0);
  assert.equal(await incr("counter", 5), 15);
  assert.equal(await decr("counter", 100), 0);
  assert.equal(await incr("counter-missing", 1), false);
}

async function manyAreReadAtOnce() {
  const keys = Array.from({ length: 200 }, (_, number) => `many-${number}`);
  await Promise.all(keys.map((key) => set(key, key, 0)));
  const found = await getMulti([...keys, "many-missing"]);
  assert.deepEqual(Object.keys(found).sort(), [...keys].sort());
}

async function recordsGo() {
  assert.ok(await del("many-1"));
  assert.equal(await del("many-1"), false);
  await set("brief", "v", 1);
  await set("longer", "v", 1000);
  assert.ok(await touch("longer", 1));
  const isGone = async (key) => (await get(key)) === undefined;
  await until(async () => (await isGone("brief")) && (await isGone("longer")));
}

async function statsAndFlushAnswer() {
  const [figures] = await stats();
  assert.ok(Number(figures.curr_items) >= 100);
  await flush();
  assert.equal(await get("many-2"), undefined);
}

await keep("memcached (npm)", [
  valuesComeBack,
  storesLookWhetherThereIsARecord,
  casStoresOnlyOverWhatWasRead,
  countersCount,
  manyAreReadAtOnce,
  recordsGo,
  statsAndFlushAnswer,
]);
