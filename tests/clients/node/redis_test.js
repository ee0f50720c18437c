// Redis's protocol in both versions as node-redis speaks it. Argument: port of a running server.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createClient, RESP_TYPES, WatchError } from "redis";
import { bytes, keep, RELEASE, until } from "./check.js";

const url = `redis://127.0.0.1:${process.argv[2]}`;
const connect = async (RESP) => createClient({ url, RESP }).on("error", assert.fail).connect();

async function stringsComeBack(client) {
  const binary = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  for (const length of [0, 1, 255, 65_536, 3_000_000]) {
    await client.set("bytes", bytes(length));
    assert.ok((await binary.get("bytes")).equals(bytes(length)), `${length} bytes`);
  }
  assert.equal(await client.get("missing"), null);
  assert.equal(await client.set("once", "1", { condition: "NX" }), "OK");
  assert.equal(await client.set("once", "2", { condition: "NX" }), null);
  assert.equal(await client.append("once", "23"), 3);
  assert.equal(await client.getRange("once", 1, -1), "23");
  await client.mSet({ a: "1", b: "2" });
  assert.deepEqual(await client.mGet(["a", "missing", "b"]), ["1", null, "2"]);
  assert.equal(await client.exists(["a", "b"]), 2);
  assert.equal(await client.getDel("a"), "1");
}

async function recordsExpire(client) {
  await client.set("brief", "v", { expiration: { type: "PX", value: 50 } });
  await client.set("longer", "v", { expiration: { type: "EX", value: 1000 } });
  assert.ok((await client.ttl("longer")) > 0);
  assert.equal(await client.persist("longer"), 1);
  assert.equal(await client.ttl("longer"), -1);
  assert.equal(await client.pExpireAt("longer", 4_102_444_800_123), 1);
  assert.equal(await client.pExpireTime("longer"), 4_102_444_800_123);
  await until(async () => (await client.get("brief")) === null);
}

async function countersAndBitsCount(client) {
  await Promise.all(Array.from({ length: 500 }, () => client.incrBy("n", 2)));
  assert.equal(await client.decr("n"), 999);
  assert.equal(await client.incrByFloat("f", 1.5), "1.5");
  assert.equal(await client.setBit("bits", 7, 1), 0);
  assert.equal(await client.bitCount("bits"), 1);
  assert.equal(await client.bitPos("bits", 1), 7);
  await client.set("text", "x");
  await assert.rejects(client.incr("text"), /not an integer/);
}

async function transactionsAreWhole(client) {
  const [stored, sum] = await client.multi().set("a", "1").incr("a").exec();
  assert.deepEqual([stored, sum], ["OK", 2]);
  const other = await connect(2);
  await client.watch("a");
  await other.set("a", "changed");
  await assert.rejects(client.multi().set("a", "lost").exec(), WatchError);
  assert.equal(await client.get("a"), "changed");
  other.destroy();
}

async function scansFindEachKey(client) {
  const keys = Array.from({ length: 3000 }, (_, number) => `scan:${number}`);
  await Promise.all(keys.map((key) => client.set(key, key)));
  const found = new Set();
  for await (const some of client.scanIterator({ MATCH: "scan:*", COUNT: 100 })) {
    some.forEach((key) => found.add(key));
  }
  assert.deepEqual([...found].sort(), keys.sort());
}

async function messagesReachSubscribers(client) {
  const subscriber = await connect(2);
  const received = new Promise((resolve) => subscriber.pSubscribe("new*", resolve));
  const also = new Promise((resolve) => subscriber.subscribe("news", resolve));
  // The reply to a ping comes after those to the subscriptions.
  await subscriber.ping();
  assert.equal(await client.publish("news", "hello"), 2);
  assert.deepEqual(await Promise.all([received, also]), ["hello", "hello"]);
  await subscriber.unsubscribe("news");
  assert.equal(await client.publish("news", "again"), 1);
  subscriber.destroy();
}

async function scriptsReleaseLocks(client) {
  await client.scriptFlush();
  const lock = (token) => ({ keys: ["lock"], arguments: [token] });
  await client.set("lock", "token", { condition: "NX" });
  assert.equal(await client.eval(RELEASE, lock("another")), 0);
  await client.scriptFlush();
  const sha1 = createHash("sha1").update(RELEASE).digest("hex");
  await assert.rejects(client.evalSha(sha1, lock("token")), /NOSCRIPT/);
  assert.equal(await client.scriptLoad(RELEASE), sha1);
  assert.deepEqual(await client.scriptExists([sha1]), [1]);
  assert.equal(await client.evalSha(sha1, lock("token")), 1);
  assert.equal(await client.get("lock"), null);
}

async function connectionsAreListed(client) {
  const id = await client.clientId();
  const line = (await client.clientList()).find((one) => one.id === id);
  assert.equal(line?.cmd, "client|list");
  assert.equal((await client.clientInfo()).id, id);
}

const tests = [
  stringsComeBack,
  recordsExpire,
  countersAndBitsCount,
  transactionsAreWhole,
  scansFindEachKey,
  messagesReachSubscribers,
  scriptsReleaseLocks,
  connectionsAreListed,
];
const runs = [];
for (const version of [2, 3]) {
  const client = await connect(version);
  runs.push(async () => void (await client.flushAll()), ...tests.map((test) => () => test(client)));
}
await keep("node-redis", runs);
