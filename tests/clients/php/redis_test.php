<?php
// Redis's protocol as phpredis speaks it. Argument: port of a running server.

function check($holds, $what)
{
    if (!$holds) {
        fwrite(STDERR, "FAILED $what\n");
        exit(1);
    }
}

function connect()
{
    global $argv;
    $client = new Redis();
    check($client->connect('127.0.0.1', (int) $argv[1], 30), 'connect');
    return $client;
}

$client = connect();
check($client->flushAll(), 'flushAll');
foreach ([0, 1, 255, 65536, 3000000] as $length) {
    $value = substr(str_repeat("\0\r\n\xff\x07", intdiv($length, 5) + 1), 0, $length);
    check($client->set("bytes\r\n", $value), 'set');
    check($client->get("bytes\r\n") === $value, "value of $length");
}
check($client->get('missing') === false, 'a miss');
check($client->set('once', '1', ['nx']) && !$client->set('once', '2', ['nx']), 'set of a new key');
check($client->append('once', '23') === 3 && $client->getRange('once', 1, -1) === '23', 'append');
check($client->mSet(['a' => '1', 'b' => '2']), 'mSet');
check($client->mGet(['a', 'missing', 'b']) === ['1', false, '2'], 'mGet');
check($client->del('a', 'b', 'missing') === 2, 'del');

$client->set('brief', 'v', ['px' => 50]);
$client->set('longer', 'v', 1000);
check($client->ttl('longer') > 0 && $client->persist('longer'), 'ttl');
check($client->ttl('longer') === -1 && $client->ttl('missing') === -2, 'no ttl');
$start = microtime(true);
while ($client->get('brief') !== false) {
    check(microtime(true) - $start < 30, 'it does not expire');
    usleep(10000);
}

check($client->incrBy('n', 10) === 10 && $client->decr('n') === 9, 'counters');
check($client->incrByFloat('f', 1.5) === 1.5, 'incrByFloat');
check($client->setBit('bits', 7, 1) === 0 && $client->bitCount('bits') === 1, 'bits');

$pipeline = $client->multi(Redis::PIPELINE);
for ($number = 0; $number < 2000; $number++) {
    $pipeline->set("k$number", $number);
}
check(count($pipeline->exec()) === 2000, 'pipeline');
check($client->multi()->set('t', 1)->incr('t')->exec() === [true, 2], 'transaction');
$client->watch('t');
connect()->set('t', 'changed');
check($client->multi()->set('t', 'lost')->exec() === false, 'a watched key had changed');
check($client->get('t') === 'changed', 'the change');

$client->setOption(Redis::OPT_SCAN, Redis::SCAN_RETRY);
[$found, $cursor] = [[], null];
while (($keys = $client->scan($cursor, 'k*', 100)) !== false) {
    $found = array_merge($found, $keys);
}
check(count(array_unique($found)) === 2000, 'scan');

// A script removes a lock if it has this token.
$release = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end'
    . ' return 0';
check($client->script('flush') && $client->set('lock', 'token', ['nx', 'px' => 100000]), 'a lock');
check($client->eval($release, ['lock', 'another'], 1) === 0, 'lock of another');
$client->script('flush');
check($client->evalSha(sha1($release), ['lock', 'token'], 1) === false, 'an unknown script');
check(str_starts_with($client->getLastError(), 'NOSCRIPT'), 'error of an unknown script');
check($client->script('load', $release) === sha1($release), 'script load');
check($client->evalSha(sha1($release), ['lock', 'token'], 1) === 1, 'evalSha');
check($client->get('lock') === false, 'the lock is released');

$id = $client->rawCommand('CLIENT', 'ID');
check(in_array($id, array_column($client->client('list'), 'id')), 'client list');

// A child publishes until the message has come.
$child = publisher($argv[1]);
$subscriber = connect();
$subscriber->setOption(Redis::OPT_READ_TIMEOUT, 30);
$received = null;
try {
    $subscriber->subscribe(['news'], function ($redis, $channel, $message) use (&$received) {
        $received = $message;
        $redis->unsubscribe(['news']);
    });
} catch (RedisException $error) {
    check($received !== null, $error->getMessage());
}
check($received === 'hello', 'message');
proc_terminate($child);

function publisher($port)
{
    $script = '$r = new Redis(); $r->connect("127.0.0.1", ' . (int) $port . ');'
        . 'for ($i = 0; $i < 3000 && $r->publish("news", "hello") === 0; $i++) { usleep(10000); }';
    $process = proc_open([PHP_BINARY, '-r', $script], [], $pipes);
    check(is_resource($process), 'a child');
    return $process;
}

echo "phpredis: passed\n";
