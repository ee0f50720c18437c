// Redis's protocol as ioredis speaks it. Argument: port of a running server.

import assert from "node:assert/strict";
import { once } from "node:events";
import Redis from "ioredis";
import { bytes, keep, RELEASE, until } from "./check.js";

const connect = () => new Redis(Number(process.argv[2]), "127.0.0.1", { maxRetriesPerRequest: 1 });
const client = connect();

async function stringsComeBack() {
  await client.flushall();
  for (const length of [0, 1, 255, 65_536, 3_000_000]) {
    assert.equal(await client.set("bytes", bytes(length)), "OK");
    assert.ok((await client.getBuffer("bytes")).equals(bytes(length)), `${length} bytes`);
  }
  assert.equal(await client.get("missing"), null);
  assert.equal(await client.set("once", "1", "NX"), "OK");
  assert.equal(await client.set("once", "2", "NX"), null);
  await client.mset({ a: 1, b: 2 });
  assert.deepEqual(await client.mget("a", "missing", "b"), ["1", null, "2"]);
  assert.equal(await client.del("a", "b", "missing"), 2);
}

async function recordsExpire() {
  await client.set("brief", "v", "PX", 50);
  await client.set("longer", "v", "EX", 1000);
  assert.ok((await client.ttl("longer")) > 0);
  assert.equal(await client.persist("longer"), 1);
  await until(async () => (await client.get("brief")) === null);
}

async function countersAndBitsCount() {
  await Promise.all(Array.from({ length: 500 }, () => client.incr("n")));
  assert.equal(await client.decrby("n", 100), 400);
  assert.equal(await client.setbit("bits", 9, 1), 0);
  assert.deepEqual([await client.bitcount("bits"), await client.getbit("bits", 9)], [1, 1]);
  await client.set("text", "x");
  await assert.rejects(client.incr("text"), /not an integer/);
}

async function pipelinesAndTransactionsReply() {
  const pipeline = client.pipeline();
  for (let number = 0; number < 1000; number++) pipeline.set(`k${number}`, number).get(`k${number}`);
  const replies = await pipeline.exec();
  assert.equal(replies.length, 2000);
  assert.deepEqual(replies[1999], [null, "999"]);
  assert.deepEqual(await client.multi().incr("k1").get("k1").exec(), [
    [null, 2],
    [null, "2"],
  ]);
  const other = connect();
  await client.watch("k1");
  await other.set("k1", "changed");
  assert.equal(await client.multi().set("k1", "lost").exec(), null);
  assert.equal(await client.get("k1"), "changed");
  other.disconnect();
}

async function scansFindEachKey() {
  const found = new Set();
  for await (const keys of client.scanStream({ match: "k*", count: 100 })) {
    keys.forEach((key) => found.add(key));
  }
  assert.equal(found.size, 1000);
}

async function messagesReachSubscribers() {
  const subscriber = connect();
  assert.equal(await subscriber.subscribe("news"), 1);
  assert.equal(await subscriber.psubscribe("new*"), 2);
  const received = Promise.all([once(subscriber, "message"), once(subscriber, "pmessage")]);
  assert.equal(await client.publish("news", "hello"), 2);
  assert.deepEqual(await received, [
    ["news", "hello"],
    ["new*", "news", "hello"],
  ]);
  assert.equal(await subscriber.unsubscribe("news"), 1);
  subscriber.disconnect();
}

async function scriptsReleaseLocks() {
  await client.script("FLUSH");
  assert.equal(await client.set("lock", "token", "PX", 100_000, "NX"), "OK");
  assert.equal(await client.eval(RELEASE, 1, "lock", "another"), 0);
  await client.script("FLUSH");
  // EVALSHA is refused, so that ioredis sends EVAL.
  client.defineCommand("release", { numberOfKeys: 1, lua: RELEASE });
  assert.equal(await client.release("lock", "token"), 1);
  assert.equal(await client.release("lock", "token"), 0);
  assert.equal(await client.get("lock"), null);
  await assert.rejects(client.evalsha("0".repeat(40), 0), /NOSCRIPT/);
}

async function connectionsAreListed() {
  const id = await client.client("ID");
  assert.match(await client.client("LIST"), new RegExp(`^id=${id} .* cmd=client\\|list `, "m"));
}

await keep("ioredis", [
  stringsComeBack,
  recordsExpire,
  countersAndBitsCount,
  pipelinesAndTransactionsReply,
  scansFindEachKey,
  messagesReachSubscribers,
  scriptsReleaseLocks,
  connectionsAreListed,
]);
