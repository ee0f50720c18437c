import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisNoScriptException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;

/** Redis's protocol in both versions as Jedis speaks it. Argument: port of a running server. */
public class RedisTest {
    static final int TIMEOUT_MS = 30_000;

    /** Script that removes a lock if it has this token. */
    static final String RELEASE = """
        if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end
        return 0
        """;

    static void check(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void strings(Jedis client) {
        for (int length : new int[] {0, 1, 255, 65_536, 3_000_000}) {
            byte[] value = new byte[length];
            for (int index = 0; index < length; index++) {
                value[index] = (byte) (index * 7);
            }
            byte[] key = "bytes\r\n".getBytes(StandardCharsets.UTF_8);
            check("OK".equals(client.set(key, value)), "set");
            check(Arrays.equals(client.get(key), value), length);
        }
        check(client.get("missing") == null, "a miss");
        check(client.set("once", "1", new SetParams().nx()) != null, "set of a new key");
        check(client.set("once", "2", new SetParams().nx()) == null, "set of a present key");
        check(client.append("once", "23") == 3 && "23".equals(client.getrange("once", 1, -1)), "append");
        client.mset("a", "1", "b", "2");
        check(Arrays.asList("1", null, "2").equals(client.mget("a", "missing", "b")), "mget");
        check(client.del("a", "b", "missing") == 2, "del");
    }

    static void expiry(Jedis client) throws InterruptedException {
        client.set("brief", "v", new SetParams().px(50));
        client.set("longer", "v", new SetParams().ex(1000));
        check(client.ttl("longer") > 0 && client.persist("longer") == 1, "ttl");
        check(client.ttl("longer") == -1 && client.ttl("missing") == -2, "no ttl");
        long start = System.nanoTime();
        while (client.get("brief") != null) {
            check(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(30), "it does not expire");
            Thread.sleep(10);
        }
    }

    static void counters(Jedis client) {
        check(client.incrBy("n", 10) == 10 && client.decr("n") == 9, "counters");
        check(client.incrByFloat("f", 1.5) == 1.5, "incrbyfloat");
        check(!client.setbit("bits", 7, true) && client.getbit("bits", 7), "bits");
        check(client.bitcount("bits") == 1 && client.bitpos("bits", true) == 7, "bitcount");
        client.set("text", "x");
        try {
            client.incr("text");
            throw new AssertionError("a text was counted");
        } catch (JedisDataException error) {
            check(error.getMessage().contains("not an integer"), error);
        }
    }

    static void pipelines(Jedis client, Jedis other) {
        try (var pipeline = client.pipelined()) {
            for (int number = 0; number < 2000; number++) {
                pipeline.set("k" + number, "v");
            }
            check(pipeline.syncAndReturnAll().size() == 2000, "pipeline");
        }
        client.watch("k1");
        other.set("k1", "changed");
        try (var transaction = client.multi()) {
            transaction.set("k1", "lost");
            check(transaction.exec() == null, "a watched key had changed");
        }
        try (var transaction = client.multi()) {
            transaction.set("k2", "1");
            transaction.incr("k2");
            check(List.of("OK", 2L).equals(transaction.exec()), "transaction");
        }
        check("changed".equals(client.get("k1")), "the change");
    }

    static void scans(Jedis client) {
        Set<String> found = new HashSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            var step = client.scan(cursor, new ScanParams().match("k*").count(100));
            found.addAll(step.getResult());
            cursor = step.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        check(found.size() == 2000, found.size());
    }

    static void channels(Jedis client, Jedis listening) throws InterruptedException {
        var subscribed = new CountDownLatch(1);
        var messages = new LinkedBlockingQueue<String>();
        var listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int count) {
                subscribed.countDown();
            }

            @Override
            public void onMessage(String channel, String message) {
                messages.add(message);
                unsubscribe();
            }
        };
        var thread = new Thread(() -> listening.subscribe(listener, "news"));
        thread.start();
        check(subscribed.await(30, TimeUnit.SECONDS), "subscribe");
        check(client.publish("news", "hello") == 1, "publish");
        check("hello".equals(messages.poll(30, TimeUnit.SECONDS)), "message");
        thread.join();
    }

    static void scripts(Jedis client) {
        client.scriptFlush();
        client.set("lock", "token", new SetParams().nx().px(100_000));
        var keys = List.of("lock");
        check(client.eval(RELEASE, keys, List.of("another")).equals(0L), "lock of another");
        try {
            client.evalsha("0".repeat(40), keys, List.of("token"));
            throw new AssertionError("an unknown script was executed");
        } catch (JedisNoScriptException error) {
            check(error.getMessage().startsWith("NOSCRIPT"), error);
        }
        String sha1 = client.scriptLoad(RELEASE);
        check(client.scriptExists(sha1), "script exists");
        check(client.evalsha(sha1, keys, List.of("token")).equals(1L), "evalsha");
        check(client.get("lock") == null, "the lock is released");
    }

    static void connections(Jedis client) {
        String id = "id=" + client.clientId() + " ";
        check(client.clientList().lines().anyMatch(line -> line.startsWith(id)), client.clientList());
        check(client.clientInfo().startsWith(id), client.clientInfo());
    }

    public static void main(String[] arguments) throws Exception {
        var server = new HostAndPort("127.0.0.1", Integer.parseInt(arguments[0]));
        for (var version : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
            var config = DefaultJedisClientConfig.builder();
            config.protocol(version).timeoutMillis(TIMEOUT_MS);
            try (var client = new Jedis(server, config.build()); var other = new Jedis(server, config.build())) {
                client.flushAll();
                strings(client);
                expiry(client);
                counters(client);
                pipelines(client, other);
                scans(client);
                channels(client, other);
                scripts(client);
                connections(client);
            }
        }
        System.out.println("Jedis: passed in both versions");
    }
}
