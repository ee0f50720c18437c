// The memcached binary protocol as memjs speaks it. Argument: port of a running server.

import assert from "node:assert/strict";
import memjs from "memjs";
import { bytes, keep, until } from "./check.js";

const client = memjs.Client.create(`127.0.0.1:${process.argv[2]}`, { timeout: 10, retries: 1 });

async function text(key) {
  const { value } = await client.get(key);
  return value === null ? null : value.toString();
}

async function valuesComeBackWithTheirFlags() {
  for (const length of [0, 1, 255, 65_536, 3_000_000]) {
    assert.ok(await client.set("bytes", bytes(length), {}));
    const { value } = await client.get("bytes");
    assert.ok(value.equals(bytes(length)), `${length} bytes`);
  }
  assert.equal(await text("missing"), null);
}

async function addAndReplaceLookWhetherThereIsARecord() {
  assert.ok(await client.add("once", "1", {}));
  assert.ok(!(await client.add("once", "2", {})));
  assert.ok(await client.replace("once", "3", {}));
  assert.ok(!(await client.replace("never", "4", {})));
  assert.equal(await text("once"), "3");
}

// Its `prepend` sends the opcode of `append`.
async function appendExtendsAValue() {
  await assert.rejects(client.append("extended", "x"));
  await client.set("extended", "b", {});
  assert.ok(await client.append("extended", "c"));
  assert.equal(await text("extended"), "bc");
}

async function countersCount() {
  assert.equal((await client.increment("counter", 5, { initial: 10 })).value, 10);
  assert.equal((await client.increment("counter", 5, {})).value, 15);
  assert.equal((await client.decrement("counter", 4, {})).value, 11);
  assert.equal((await client.decrement("counter", 100, {})).value, 0);
}

async function recordsGo() {
  await client.set("removed", "v", {});
  assert.ok(await client.delete("removed"));
  assert.ok(!(await client.delete("removed")));
  await client.set("brief", "v", { expires: 1 });
  await client.set("longer", "v", { expires: 1000 });
  assert.ok(await client.touch("longer", 1));
  await until(async () => (await text("brief")) === null && (await text("longer")) === null);
}

async function manyRequestsAreUnderWayAtOnce() {
  const keys = Array.from({ length: 500 }, (_, number) => `many-${number}`);
  await Promise.all(keys.map((key) => client.set(key, key, {})));
  assert.deepEqual(await Promise.all(keys.map(text)), keys);
}

async function statsAndFlushAnswer() {
  const stats = await new Promise((resolve, reject) => {
    client.stats((error, _server, stats) => (error ? reject(error) : resolve(stats)));
  });
  assert.ok(Number(stats.curr_items) >= 500);
  await client.flush();
  assert.equal(await text("many-1"), null);
}

await keep("memjs", [
  valuesComeBackWithTheirFlags,
  addAndReplaceLookWhetherThereIsARecord,
  appendExtendsAValue,
  countersCount,
  recordsGo,
  manyRequestsAreUnderWayAtOnce,
  statsAndFlushAnswer,
]);
