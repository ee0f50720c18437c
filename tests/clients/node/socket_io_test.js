// Messages between servers of Socket.IO, over channels. Argument: port of a running server.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { createAdapter, createShardedAdapter } from "@socket.io/redis-adapter";
import Redis from "ioredis";
import { createClient } from "redis";
import { Server } from "socket.io";
import { io as connect } from "socket.io-client";
import { bytes, keep, until } from "./check.js";

const port = Number(process.argv[2]);
const PATIENCE_MS = 60_000;
const NAMES = ["first", "second", "third"];

const ioredis = () => new Redis(port, "127.0.0.1", { maxRetriesPerRequest: 1 });
const nodeRedis = () =>
  createClient({ url: `redis://127.0.0.1:${port}` }).on("error", assert.fail).connect();

const classicAdapter = async () =>
  createAdapter(ioredis(), ioredis(), { requestsTimeout: PATIENCE_MS });
const shardedAdapter = async () => createShardedAdapter(await nodeRedis(), await nodeRedis());

/// Starts a server with one client.
async function start(adapter, name) {
  const http = createServer();
  const server = new Server(http, { adapter });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  const url = `http://127.0.0.1:${http.address().port}`;
  const client = connect(url, { transports: ["websocket"], forceNew: true });
  client.on("question", (reply) => reply(name));
  await once(client, "connect");
  server.on("add", (one, other, reply) => reply(one + other));
  return { server, client };
}

async function serversTalk(makeAdapter, channelOfRoom) {
  const nodes = [];
  for (const name of NAMES) nodes.push(await start(await makeAdapter(), name));
  const [first, second, third] = nodes;
  const { adapter } = first.server.of("/");
  await until(async () => (await adapter.serverCount()) === 3);

  // A room with the clients of two servers, to which the first one sends.
  for (const { client, server } of [second, third]) {
    first.server.in(client.id).socketsJoin("room");
    await until(() => server.of("/").adapter.rooms.has("room"));
    if (channelOfRoom) await until(() => channelOfRoom("room", client === third.client ? 2 : 1));
  }
  const received = [second, third].map(({ client }) => once(client, "news"));
  let strayed = 0;
  first.client.on("news", () => strayed++);
  first.server.to("room").emit("news", "text", bytes(100_000));
  for (const [text, data] of await Promise.all(received)) {
    assert.equal(text, "text");
    assert.ok(Buffer.from(data).equals(bytes(100_000)));
  }

  const answers = await first.server.timeout(PATIENCE_MS).emitWithAck("question");
  assert.deepEqual(answers.sort(), NAMES);
  assert.equal(strayed, 0);
  const sockets = await first.server.timeout(PATIENCE_MS).fetchSockets();
  assert.deepEqual(
    sockets.map(({ id }) => id).sort(),
    nodes.map(({ client }) => client.id).sort(),
  );
  // The other adapter waits for five seconds at most.
  if (!channelOfRoom) {
    assert.deepEqual(await second.server.serverSideEmitWithAck("add", 2, 3), [5, 5]);
  }

  const gone = [second, third].map(({ client }) => once(client, "disconnect"));
  first.server.in("room").disconnectSockets(true);
  await Promise.all(gone);
  assert.ok(first.client.connected);
  for (const { client, server } of nodes) {
    client.disconnect();
    await server.close();
  }
}

async function serversTalkOverChannels() {
  await serversTalk(classicAdapter);
}

async function serversTalkOverShardedChannels() {
  const client = ioredis();
  await serversTalk(shardedAdapter, async (room, servers) => {
    const [, count] = await client.call("PUBSUB", "SHARDNUMSUB", `socket.io#/#${room}#`);
    return count === servers;
  });
}

await keep("Socket.IO", [serversTalkOverChannels, serversTalkOverShardedChannels]);
