// Rate limiters and locks of frameworks over Redis's protocol. Argument: port of a running server.

import assert from "node:assert/strict";
import { once } from "node:events";
import express from "express";
import { rateLimit } from "express-rate-limit";
import Redis from "ioredis";
import { RedisStore } from "rate-limit-redis";
import { RateLimiterRedis, RateLimiterRes } from "rate-limiter-flexible";
import { createClient } from "redis";
import Redlock from "redlock";
import { keep, until } from "./check.js";

const port = Number(process.argv[2]);
const client = new Redis(port, "127.0.0.1", { maxRetriesPerRequest: 1 });
const nodeRedis = await createClient({ url: `redis://127.0.0.1:${port}` })
  .on("error", assert.fail)
  .connect();

const isLimited = (refusal) => refusal instanceof RateLimiterRes;

async function pointsOfALimiterAreConsumedOnce() {
  for (const [storeClient, options] of [[client, {}], [nodeRedis, { useRedisPackage: true }]]) {
    await client.flushall();
    const limiter = new RateLimiterRedis({ storeClient, points: 50, duration: 1000, ...options });
    const tries = Array.from({ length: 80 }, () => limiter.consume("user"));
    const refused = (await Promise.allSettled(tries)).filter((one) => one.status === "rejected");
    assert.equal(refused.length, 30);
    assert.ok(refused.every((one) => isLimited(one.reason)), refused[0].reason);
    await limiter.consume("another");
    const state = await limiter.get("user");
    assert.deepEqual([state.consumedPoints, state.remainingPoints], [80, 0]);
    assert.ok(state.msBeforeNext > 900_000 && state.msBeforeNext <= 1_000_000, state.msBeforeNext);
    await limiter.reward("user", 40);
    assert.equal((await limiter.consume("user")).remainingPoints, 9);
    await limiter.penalty("user", 9);
    await assert.rejects(limiter.consume("user"), isLimited);
    assert.equal(await limiter.delete("user"), true);
    assert.equal(await limiter.get("user"), null);
    await limiter.block("user", 500);
    await assert.rejects(limiter.consume("user"), isLimited);
    assert.ok((await client.ttl("rlflx:user")) > 400);
  }
}

async function aLimiterOpensWhenItsTimeIsOver() {
  await client.flushall();
  const limiter = new RateLimiterRedis({ storeClient: client, points: 1, duration: 1 });
  await limiter.consume("user");
  await until(() => limiter.consume("user").then(() => true, () => false));
  const options = { keyPrefix: "blocking", points: 1, duration: 1, blockDuration: 1000 };
  const blocking = new RateLimiterRedis({ storeClient: client, ...options });
  await blocking.consume("user", 1);
  await assert.rejects(blocking.consume("user", 2), isLimited);
  assert.ok((await client.ttl("blocking:user")) > 900);
}

async function expressRefusesRequestsOverTheLimit() {
  await client.flushall();
  const store = new RedisStore({ sendCommand: (...command) => client.call(...command) });
  const app = express();
  app.use(rateLimit({ store, windowMs: 1_000_000, limit: 20, standardHeaders: "draft-6" }));
  app.get("/", (_, response) => response.send("page"));
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  const load = () => fetch(`http://127.0.0.1:${server.address().port}/`);
  const statuses = async (number) => {
    const responses = await Promise.all(Array.from({ length: number }, load));
    return responses.map((response) => response.status).sort();
  };
  assert.deepEqual(await statuses(15), Array(15).fill(200));
  // The scripts are loaded again.
  await client.script("FLUSH");
  assert.deepEqual(await statuses(10), [...Array(5).fill(200), ...Array(5).fill(429)]);
  const refused = await load();
  assert.equal(refused.headers.get("ratelimit-remaining"), "0");
  assert.ok(Number(refused.headers.get("ratelimit-reset")) > 900);
  const [key] = await client.keys("rl:*");
  assert.equal((await store.get("127.0.0.1")).totalHits, 26);
  await store.decrement("127.0.0.1");
  assert.equal(await client.get(key), "25");
  await store.resetKey("127.0.0.1");
  assert.equal((await load()).status, 200);
  server.closeAllConnections();
  server.close();
}

const redlock = (retryCount) =>
  new Redlock([client], { retryCount, retryDelay: 10, retryJitter: 10 });

async function locksExcludeAreExtendedAndReleased() {
  await client.flushall();
  const single = redlock(0);
  const lock = await single.lock(["a", "b"], 1_000_000);
  await assert.rejects(single.lock("b", 1000), Redlock.LockError);
  const other = await single.lock("c", 1_000_000);
  await client.pexpire("b", 500_000);
  await lock.extend(1_000_000);
  assert.ok((await client.pttl("b")) > 900_000);
  await client.set("a", "lost");
  await assert.rejects(lock.extend(1_000_000), Redlock.LockError);
  await client.del("a", "b");
  await single.lock("b", 1_000_000);
  await assert.rejects(lock.unlock(), Redlock.LockError);
  await other.unlock();
  assert.deepEqual(await client.keys("*"), ["b"]);
}

async function aLockExpires() {
  await client.flushall();
  const patient = redlock(3000);
  await patient.lock("brief", 100);
  const lock = await patient.lock("brief", 1_000_000);
  await lock.unlock();
}

async function oneHasALockAtATime() {
  await client.flushall();
  const waiting = redlock(-1);
  const add = async () => {
    const lock = await waiting.lock("counter lock", 1_000_000);
    await client.set("counter", Number(await client.get("counter")) + 1);
    await lock.unlock();
  };
  await Promise.all(Array.from({ length: 20 }, add));
  assert.equal(await client.get("counter"), "20");
}

await keep("rate-limiter-flexible, express-rate-limit, redlock", [
  pointsOfALimiterAreConsumedOnce,
  aLimiterOpensWhenItsTimeIsOver,
  expressRefusesRequestsOverTheLimit,
  locksExcludeAreExtendedAndReleased,
  aLockExpires,
  oneHasALockAtATime,
]);
