import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.command.BinaryCommandFactory;
import net.rubyeye.xmemcached.command.TextCommandFactory;
import net.spy.memcached.BinaryConnectionFactory;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.DefaultConnectionFactory;

/** Both memcached protocols as xmemcached and spymemcached speak them. Argument: port of a running server. */
public class ClientTest {
    static final long PATIENCE_NS = TimeUnit.SECONDS.toNanos(30);
    static final int TIMEOUT_MS = 20_000;

    static void check(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static byte[] bytes(int length) {
        byte[] bytes = new byte[length];
        for (int index = 0; index < length; index++) {
            bytes[index] = (byte) (index * 7);
        }
        return bytes;
    }

    interface Test {
        boolean holds() throws Exception;
    }

    static void until(Test test) throws Exception {
        long start = System.nanoTime();
        while (!test.holds()) {
            check(System.nanoTime() - start < PATIENCE_NS, "it does not expire");
            Thread.sleep(50);
        }
    }

    static void xmemcached(InetSocketAddress server, boolean binary) throws Exception {
        XMemcachedClientBuilder builder = new XMemcachedClientBuilder(List.of(server));
        builder.setCommandFactory(binary ? new BinaryCommandFactory() : new TextCommandFactory());
        builder.setOpTimeout(TIMEOUT_MS);
        var client = builder.build();
        try {
            client.flushAll();
            for (int length : new int[] {0, 1, 255, 65_536, 900_000}) {
                check(client.set("bytes", 0, bytes(length)), "set");
                check(Arrays.equals(client.<byte[]>get("bytes"), bytes(length)), length);
            }
            check(client.get("missing") == null, "a miss");
            check(client.add("once", 0, "b") && !client.add("once", 0, "x"), "add");
            check(client.append("once", "c") && client.prepend("once", "a"), "append and prepend");
            check("abc".equals(client.get("once")), "what was extended");
            check(client.replace("once", 0, "d") && !client.replace("never", 0, "x"), "replace");
            var read = client.<String>gets("once");
            check(client.cas("once", 0, "e", read.getCas()), "cas");
            check(!client.cas("once", 0, "f", read.getCas()), "cas over a change");
            check("e".equals(client.get("once")), "what was swapped");
            check(client.incr("counter", 5, 10) == 10, "a counter begins");
            check(client.incr("counter", 5) == 15 && client.decr("counter", 100) == 0, "counter");
            List<String> keys = new ArrayList<>();
            for (int number = 0; number < 500; number++) {
                keys.add("many-" + number);
                client.setWithNoReply("many-" + number, 0, number);
            }
            keys.add("many-missing");
            Map<String, Integer> many = client.get(keys);
            check(many.size() == 500 && many.get("many-7") == 7, many.size());
            check(client.delete("many-7") && !client.delete("many-7"), "delete");
            client.set("brief", 1, "v");
            client.set("longer", 1000, "v");
            check(client.touch("longer", 1), "touch");
            until(() -> client.get("brief") == null && client.get("longer") == null);
            check(client.getStats().get(server).containsKey("curr_items"), "stats");
            client.flushAll();
            check(client.get("many-1") == null, "flush_all");
        } finally {
            client.shutdown();
        }
    }

    static void spymemcached(InetSocketAddress server, boolean binary) throws Exception {
        DefaultConnectionFactory factory = binary
                ? new BinaryConnectionFactory() {
                    @Override
                    public long getOperationTimeout() {
                        return TIMEOUT_MS;
                    }
                }
                : new DefaultConnectionFactory() {
                    @Override
                    public long getOperationTimeout() {
                        return TIMEOUT_MS;
                    }
                };
        var client = new net.spy.memcached.MemcachedClient(factory, List.of(server));
        try {
            check(client.flush().get(), "flush_all");
            for (int length : new int[] {0, 1, 255, 65_536, 900_000}) {
                check(client.set("bytes", 0, bytes(length)).get(), "set");
                check(Arrays.equals((byte[]) client.get("bytes"), bytes(length)), length);
            }
            check(client.get("missing") == null, "a miss");
            check(client.add("once", 0, "b").get() && !client.add("once", 0, "x").get(), "add");
            check(client.append("once", "c").get() && client.prepend("once", "a").get(), "append");
            check("abc".equals(client.get("once")), "what was extended");
            check(client.replace("once", 0, "d").get(), "replace");
            check(!client.replace("never", 0, "x").get(), "replace of nothing");
            CASValue<Object> read = client.gets("once");
            check(client.cas("once", read.getCas(), "e") == CASResponse.OK, "cas");
            check(client.cas("once", read.getCas(), "f") == CASResponse.EXISTS, "cas over a change");
            check("e".equals(client.get("once")), "what was swapped");
            client.set("counter", 0, "10").get();
            check(client.incr("counter", 5) == 15 && client.decr("counter", 100) == 0, "counter");
            check(client.incr("counter-missing", 1) == -1, "a counter that is not there");
            List<String> keys = new ArrayList<>();
            for (int number = 0; number < 500; number++) {
                keys.add("many-" + number);
                client.set("many-" + number, 0, number);
            }
            keys.add("many-missing");
            Map<String, Object> many = client.getBulk(keys);
            check(many.size() == 500 && many.get("many-7").equals(7), many.size());
            check(client.delete("many-7").get() && !client.delete("many-7").get(), "delete");
            client.set("brief", 1, "v").get();
            client.set("longer", 1000, "v").get();
            check(client.touch("longer", 1).get(), "touch");
            until(() -> client.get("brief") == null && client.get("longer") == null);
            check(client.getStats().values().iterator().next().containsKey("curr_items"), "stats");
            check(client.flush().get() && client.get("many-1") == null, "flush_all");
        } finally {
            client.shutdown();
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        Logger.getLogger("net.spy.memcached").setLevel(Level.SEVERE);
        var server = new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]));
        for (boolean binary : new boolean[] {false, true}) {
            xmemcached(server, binary);
            spymemcached(server, binary);
        }
        System.out.println("xmemcached and spymemcached: passed over both protocols");
        System.exit(0);
    }
}
