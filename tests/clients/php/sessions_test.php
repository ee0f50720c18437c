<?php
// Sessions of PHP in records, which phpredis locks. Argument: port of a running server.

const REQUESTS = 25;
const LIFETIME_S = 1000;

function check($holds, $what)
{
    if (!$holds) {
        fwrite(STDERR, "FAILED $what\n");
        exit(1);
    }
}

function options($port, $lock_retries)
{
    return [
        'session.save_handler' => 'redis',
        'session.save_path' => "tcp://127.0.0.1:$port?timeout=30&prefix=session:",
        'session.gc_maxlifetime' => LIFETIME_S,
        'session.use_cookies' => 0,
        'session.use_strict_mode' => 0,
        'session.cache_limiter' => '',
        'redis.session.locking_enabled' => 1,
        'redis.session.lock_expire' => 1000,
        'redis.session.lock_retries' => $lock_retries,
        'redis.session.lock_wait_time' => 2000,
    ];
}

// Opens a session as a request does. Returns whether that succeeds.
function open($id, $port, $lock_retries = -1)
{
    foreach (options($port, $lock_retries) as $name => $value) {
        check(ini_set($name, $value) !== false, "setting $name");
    }
    session_id($id);
    return @session_start();
}

$port = (int) $argv[1];
if (isset($argv[2])) {
    // A child, which counts its requests in one session, or may not write to it.
    if ($argv[2] === 'locked') {
        open('one', $port, 3);
        $_SESSION['text'] = 'of another';
        @session_write_close();
        $error = error_get_last()['message'] ?? '';
        exit(str_contains($error, 'Failed to write session data') ? 0 : 1);
    }
    for ($request = 0; $request < REQUESTS; $request++) {
        check(open('one', $port), 'a session');
        $_SESSION['requests'] = ($_SESSION['requests'] ?? 0) + 1;
        session_write_close();
    }
    exit(0);
}

function child($port, $what)
{
    $pipes = [];
    $command = [PHP_BINARY, __FILE__, (string) $port, $what];
    $process = proc_open($command, [], $pipes);
    check(is_resource($process), 'a child');
    return $process;
}

$client = new Redis();
check($client->connect('127.0.0.1', $port, 30) && $client->flushAll(), 'connect');

check(open('one', $port), 'a new session');
check($_SESSION === [], 'a new session is empty');
$_SESSION['text'] = "\0\r\n\xff" . str_repeat('x', 100000);
check($client->exists('session:one_LOCK') === 1, 'the session is locked');
check(proc_close(child($port, 'locked')) === 0, 'a lock excludes another process');
session_write_close();
check($client->exists('session:one_LOCK') === 0, 'the lock is released');
$ttl = $client->ttl('session:one');
check($ttl > LIFETIME_S - 300 && $ttl <= LIFETIME_S, "expiry in $ttl seconds");

$children = array_map(fn () => child($port, 'count'), range(1, 4));
foreach ($children as $child) {
    check(proc_close($child) === 0, 'a child counts');
}
check(open('one', $port) && $_SESSION['requests'] === 4 * REQUESTS, 'each request is counted');
check(strlen($_SESSION['text']) === 100004, 'the text remains');

check(session_regenerate_id(true) && $client->exists('session:one') === 0, 'another name');
session_write_close();
check(open(session_id(), $port) && count($_SESSION) === 2, 'the session under its new name');

// A session whose lock another process has is not written.
$lock = 'session:' . session_id() . '_LOCK';
check($client->set($lock, 'another'), 'lock of another');
$_SESSION = [];
@session_write_close();
check($client->get($lock) === 'another' && $client->del($lock) === 1, 'the lock remains');
check(open(session_id(), $port) && count($_SESSION) === 2, 'the session remains');
check(session_destroy() && $client->keys('session:*') === [], 'the session is removed');

echo "sessions of phpredis: passed\n";
