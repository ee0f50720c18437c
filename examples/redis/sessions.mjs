// Sessions that expire, and a change of one only if it was not changed meanwhile, by node-redis.
//
//     npm install redis
//     node sessions.mjs redis://127.0.0.1:1978

import { randomUUID } from "node:crypto";
import { createClient, WatchError } from "redis";

const SESSION_SECONDS = 1800;

const client = await createClient({ url: process.argv[2] ?? "redis://127.0.0.1:1978" })
  .on("error", (error) => console.error(error.message))
  .connect();

async function begin(user) {
  const id = randomUUID();
  const session = JSON.stringify({ user, cart: [] });
  await client.set(`session:${id}`, session, { expiration: { type: "EX", value: SESSION_SECONDS } });
  return id;
}

// Puts an article into the cart of a session. Another change in between makes it begin again. What
// is watched belongs to a connection, so that each change has one of its own.
async function put(id, article) {
  const [key, connection] = [`session:${id}`, await client.duplicate().connect()];
  try {
    for (;;) {
      await connection.watch(key);
      const session = JSON.parse(await connection.get(key));
      session.cart.push(article);
      const change = connection.multi().set(key, JSON.stringify(session), { KEEPTTL: true });
      if (await change.exec().then(() => true, ignoreWatchError)) return session;
    }
  } finally {
    connection.destroy();
  }
}

function ignoreWatchError(error) {
  if (!(error instanceof WatchError)) throw error;
  return false;
}

const id = await begin("ann");
await Promise.all(["apple", "pear"].map((article) => put(id, article)));
const { cart } = JSON.parse(await client.get(`session:${id}`));
console.log("cart:", cart.sort().join(", "));
console.log("expires in", await client.ttl(`session:${id}`), "s");
client.destroy();
