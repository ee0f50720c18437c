import io.lettuce.core.ClientOptions;
import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.KeyValue;
import io.lettuce.core.KillArgs;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisNoScriptException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.logging.Level;
import java.util.logging.Logger;

/** Redis's protocol in both versions as Lettuce speaks it. Argument: port of a running server. */
public class LettuceTest {
    static final Duration TIMEOUT = Duration.ofSeconds(60);

    /** It would name each reconnection. */
    static final Logger LOGGER = Logger.getLogger("io.lettuce");

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

    static void until(BooleanSupplier holds) throws InterruptedException {
        long start = System.nanoTime();
        while (!holds.getAsBoolean()) {
            check(System.nanoTime() - start < TIMEOUT.toNanos(), "it does not happen");
            Thread.sleep(10);
        }
    }

    static <T> T await(RedisFuture<T> future) throws Exception {
        return future.get(TIMEOUT.toSeconds(), TimeUnit.SECONDS);
    }

    static void bytes(RedisClient client) {
        try (var connection = client.connect(ByteArrayCodec.INSTANCE)) {
            byte[] key = "bytes\r\n".getBytes(StandardCharsets.UTF_8);
            for (int length : new int[] {0, 1, 255, 65_536, 3_000_000}) {
                byte[] value = new byte[length];
                for (int index = 0; index < length; index++) {
                    value[index] = (byte) (index * 7);
                }
                check("OK".equals(connection.sync().set(key, value)), "set");
                check(Arrays.equals(connection.sync().get(key), value), length);
            }
        }
    }

    static void strings(RedisCommands<String, String> sync) throws Exception {
        check(sync.get("missing") == null, "a miss");
        check("OK".equals(sync.set("once", "1", SetArgs.Builder.nx())), "set of a new key");
        check(sync.set("once", "2", SetArgs.Builder.nx()) == null, "set of a present key");
        check(sync.append("once", "23") == 3 && "23".equals(sync.getrange("once", 1, -1)), "append");
        sync.mset(Map.of("a", "1", "b", "2"));
        var many = List.of(KeyValue.just("a", "1"), KeyValue.empty("missing"), KeyValue.just("b", "2"));
        check(many.equals(sync.mget("a", "missing", "b")), "mget");
        check("1".equals(sync.getdel("a")) && sync.del("a", "b", "missing") == 1, "del");
        check(sync.incrby("n", 10) == 10 && sync.decr("n") == 9, "counters");
        check(sync.incrbyfloat("f", 1.5) == 1.5, "incrbyfloat");
        check(sync.setbit("bits", 7, 1) == 0 && sync.bitcount("bits") == 1, "bits");
        sync.set("text", "x");
        try {
            sync.incr("text");
            throw new AssertionError("a text was counted");
        } catch (RedisCommandExecutionException error) {
            check(error.getMessage().contains("not an integer"), error);
        }
        try {
            sync.lpush("list", "element");
            throw new AssertionError("a list was made");
        } catch (RedisCommandExecutionException error) {
            check(error.getMessage().contains("LPUSH is not supported"), error);
        }
        sync.set("brief", "v", SetArgs.Builder.px(50));
        sync.set("longer", "v", SetArgs.Builder.ex(1000));
        check(sync.ttl("longer") > 900 && sync.persist("longer") && sync.ttl("longer") == -1, "ttl");
        until(() -> sync.get("brief") == null);
    }

    /** Requests of one connection are sent at once, and their replies come later. */
    static void pipelines(StatefulRedisConnection<String, String> connection) throws Exception {
        RedisAsyncCommands<String, String> async = connection.async();
        List<RedisFuture<?>> futures = new ArrayList<>();
        connection.setAutoFlushCommands(false);
        for (int number = 0; number < 2000; number++) {
            futures.add(async.set("k" + number, "v" + number));
            futures.add(async.get("k" + number));
        }
        connection.flushCommands();
        connection.setAutoFlushCommands(true);
        check(LettuceFutures.awaitAll(TIMEOUT, futures.toArray(RedisFuture[]::new)), "pipeline");
        check("v1999".equals(futures.get(3999).get()), futures.get(3999).get());
        var joined = async.get("k1").thenCombine(async.get("k2"), (one, two) -> one + two);
        check("v1v2".equals(joined.toCompletableFuture().get()), "futures");
        try {
            await(async.incr("k1"));
            throw new AssertionError("a text was counted");
        } catch (ExecutionException error) {
            check(error.getCause() instanceof RedisCommandExecutionException, error);
        }
    }

    static void scans(RedisCommands<String, String> sync) {
        Set<String> found = new HashSet<>();
        var arguments = ScanArgs.Builder.matches("k*").limit(100);
        KeyScanCursor<String> cursor = sync.scan(arguments);
        found.addAll(cursor.getKeys());
        while (!cursor.isFinished()) {
            cursor = sync.scan(cursor, arguments);
            found.addAll(cursor.getKeys());
        }
        check(found.size() == 2000, found.size());
        check(ScanIterator.scan(sync, arguments).stream().distinct().count() == 2000, "iterator");
    }

    static void transactions(
            StatefulRedisConnection<String, String> connection, RedisCommands<String, String> other)
            throws Exception {
        var sync = connection.sync();
        sync.multi();
        check(sync.set("t", "1") == null, "a queued request has no reply");
        sync.incr("t");
        var done = sync.exec();
        check(!done.wasDiscarded() && List.of("OK", 2L).equals(done.stream().toList()), "exec");
        sync.watch("t");
        other.set("t", "changed");
        sync.multi();
        sync.set("t", "lost");
        check(sync.exec().wasDiscarded(), "a watched key had changed");
        check("changed".equals(sync.get("t")), "the change");
        var async = connection.async();
        async.multi();
        var queued = async.append("t", "!");
        var failed = async.incr("t");
        var exec = await(async.exec());
        check(exec.size() == 2 && await(queued) == 8, "asynchronous exec");
        try {
            await(failed);
            throw new AssertionError("a text was counted");
        } catch (ExecutionException error) {
            check(error.getMessage().contains("not an integer"), error);
        }
        sync.multi();
        sync.del("t");
        check("OK".equals(sync.discard()) && sync.exists("t") == 1, "discard");
    }

    static void scripts(RedisCommands<String, String> sync) {
        sync.scriptFlush();
        sync.set("lock", "token", SetArgs.Builder.nx().px(100_000));
        String[] keys = {"lock"};
        String digest = sync.digest(RELEASE);
        try {
            sync.evalsha(digest, ScriptOutputType.INTEGER, keys, "token");
            throw new AssertionError("an unknown script was executed");
        } catch (RedisNoScriptException error) {
            check(error.getMessage().startsWith("NOSCRIPT"), error);
        }
        check(sync.eval(RELEASE, ScriptOutputType.INTEGER, keys, "another").equals(0L), "eval");
        check(digest.equals(sync.scriptLoad(RELEASE)), "script load");
        check(List.of(true, false).equals(sync.scriptExists(digest, "0".repeat(40))), "script exists");
        check(sync.evalsha(digest, ScriptOutputType.BOOLEAN, keys, "token").equals(true), "evalsha");
        check(sync.get("lock") == null, "the lock is released");
        List<Object> many = sync.eval("return {1, 'two', {3, false}}", ScriptOutputType.MULTI);
        check(Arrays.asList(1L, "two", Arrays.asList(3L, null)).equals(many), many);
        String read = "return redis.call('get', KEYS[1])";
        String[] readKeys = {"k1"};
        String value = sync.evalReadOnly(read, ScriptOutputType.VALUE, readKeys, new String[0]);
        check("v1".equals(value), "eval_ro");
    }

    @SafeVarargs
    static void expect(LinkedBlockingQueue<List<Object>> events, List<Object>... expected)
            throws InterruptedException {
        for (var event : expected) {
            var found = events.poll(TIMEOUT.toSeconds(), TimeUnit.SECONDS);
            check(event.equals(found), found);
        }
    }

    static void channels(RedisClient client, StatefulRedisConnection<String, String> connection)
            throws Exception {
        var events = new LinkedBlockingQueue<List<Object>>();
        try (var listening = client.connectPubSub()) {
            listening.addListener(new RedisPubSubAdapter<String, String>() {
                @Override
                public void message(String channel, String message) {
                    events.add(List.of(channel, message));
                }

                @Override
                public void message(String pattern, String channel, String message) {
                    events.add(List.of(pattern, channel, message));
                }

                @Override
                public void subscribed(String channel, long count) {
                    events.add(List.of("subscribed", channel, count));
                }

                @Override
                public void psubscribed(String pattern, long count) {
                    events.add(List.of("psubscribed", pattern, count));
                }

                @Override
                public void unsubscribed(String channel, long count) {
                    events.add(List.of("unsubscribed", channel, count));
                }
            });
            listening.sync().subscribe("news");
            await(listening.async().psubscribe("new*"));
            check(connection.sync().publish("news", "hello") == 2, "publish");
            check(await(connection.async().publish("newest", "bye")) == 1, "publish to a pattern");
            expect(events, List.of("subscribed", "news", 1L), List.of("psubscribed", "new*", 2L),
                    List.of("news", "hello"), List.of("new*", "news", "hello"),
                    List.of("new*", "newest", "bye"));
            // Lettuce may name the end of a subscription before messages that came earlier.
            await(listening.async().unsubscribe("news"));
            expect(events, List.of("unsubscribed", "news", 1L));
            check(connection.sync().pubsubNumpat() == 1, "numpat");
        }
    }

    /** Lettuce reconnects, and sends what was asked meanwhile. */
    static void reconnects(RedisClient client, RedisCommands<String, String> other) throws Exception {
        try (var connection = client.connect()) {
            var sync = connection.sync();
            long id = sync.clientId();
            check(other.clientList().lines().anyMatch(line -> line.startsWith("id=" + id + " ")), id);
            check(other.clientKill(KillArgs.Builder.id(id)) == 1, "kill");
            until(() -> sync.clientId() != id);
            check("v1".equals(sync.get("k1")), "after a reconnect");
        }
    }

    public static void main(String[] arguments) throws Exception {
        LOGGER.setLevel(Level.WARNING);
        var uri = RedisURI.Builder.redis("127.0.0.1", Integer.parseInt(arguments[0]));
        var client = RedisClient.create(uri.withTimeout(TIMEOUT).build());
        for (var version : List.of(ProtocolVersion.RESP2, ProtocolVersion.RESP3)) {
            client.setOptions(ClientOptions.builder().protocolVersion(version).build());
            try (var connection = client.connect(); var other = client.connect()) {
                var sync = connection.sync();
                sync.flushall();
                bytes(client);
                strings(sync);
                pipelines(connection);
                scans(sync);
                transactions(connection, other.sync());
                scripts(sync);
                channels(client, connection);
                reconnects(client, other.sync());
            }
        }
        client.shutdown(0, 0, TimeUnit.SECONDS);
        System.out.println("Lettuce: passed in both versions");
    }
}
