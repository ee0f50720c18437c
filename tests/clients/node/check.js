// What the tests of the clients have in common.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

const PATIENCE_MS = 30_000;

/// Fails the process if it takes this long: a client that waits for an answer waits for ever.
const LIMIT_MS = 90_000;

/// Script that removes a lock if it has this token.
export const RELEASE = `
if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end
return 0
`;

/// Bytes of every value, some of which end lines.
export function bytes(length) {
  return Buffer.from(Array.from({ length }, (_, index) => (index * 7) % 256));
}

/// Waits until something holds.
export async function until(holds) {
  const start = Date.now();
  while (!(await holds())) {
    assert.ok(Date.now() - start < PATIENCE_MS, "it does not happen");
    await sleep(50);
  }
}

/// Runs tests one after the other.
export async function keep(name, tests) {
  setTimeout(() => assert.fail("no answer"), LIMIT_MS).unref();
  for (const test of tests) {
    try {
      await test();
    } catch (error) {
      console.error(`FAILED ${test.name}`);
      throw error;
    }
  }
  console.log(`${name}: ${tests.length} passed`);
  process.exit(0);
}
