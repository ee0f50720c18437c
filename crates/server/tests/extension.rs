//! Extension: functions that clients call, their locks, and the threads that run them.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use server::{
    Config, Extension, ExtensionError, ExtensionSettings, FunctionStatistics, Periodic, Reload,
    ScriptRecords, Server,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use support::{
    Client, Running, WAIT_MAX, config, following, hash, list, logged, logging, memory, misc,
    request, run, stat, users, users_with, wait_until, wait_until_equal,
};
use wire::binary::Request;

const RECORD: u32 = 1;
const ALL: u32 = 2;

/// Functions of a test.
#[derive(Default)]
struct Functions {
    /// Number of calls of `blocked` that wait, and whether they may end.
    gate: Mutex<(usize, bool)>,
    changed: Condvar,
    /// Number of calls of `alone` and `counted` at the moment.
    running: AtomicUsize,
    ticks: AtomicUsize,
    reloads: AtomicUsize,
    /// Threads that have followed a reload.
    followed: Mutex<Vec<usize>>,
    begun: Mutex<Vec<usize>>,
    ended: Mutex<Vec<usize>>,
}

fn failure<T>(reason: impl ToString) -> Result<T, ExtensionError> {
    Err(ExtensionError(reason.to_string()))
}

fn number(records: &ScriptRecords, key: &[u8]) -> u64 {
    let text = records.get(key, |value| String::from_utf8(value.to_vec()).unwrap()).unwrap();
    text.map_or(0, |text| text.parse().unwrap())
}

impl Functions {
    fn release(&self) {
        self.gate.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    /// Blocks until so many calls of `blocked` wait.
    fn await_blocked(&self, calls: usize) {
        let gate = self.gate.lock().unwrap();
        let waited = self.changed.wait_timeout_while(gate, WAIT_MAX, |gate| gate.0 < calls);
        assert!(!waited.unwrap().1.timed_out());
    }
}

impl Extension for Functions {
    fn begin(&self, records: &Arc<ScriptRecords>) {
        self.begun.lock().unwrap().push(records.thread());
        if records.thread() == 0 {
            let _ = records.put_keep(b"begun", records.threads().to_string().as_bytes());
        }
    }

    fn end(&self, records: &Arc<ScriptRecords>) {
        self.ended.lock().unwrap().push(records.thread());
        // A read-only replica refuses it.
        let _ = records.append(b"ended", b"x");
    }

    fn has(&self, name: &[u8]) -> bool {
        name != b"unknown"
    }

    fn call(
        &self,
        records: &Arc<ScriptRecords>,
        name: &[u8],
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Vec<u8>>, ExtensionError> {
        match name {
            b"echo" => Ok(Some([key, b"\t", value, b"\n"].concat())),
            b"nothing" => Ok(None),
            b"long" => Ok(Some(vec![b'v'; number(records, key) as usize])),
            b"put" => match records.put(key, value, None) {
                Ok(()) => Ok(Some(b"ok".to_vec())),
                Err(error) => failure(error),
            },
            b"half" => {
                records.begin_transaction().unwrap();
                records.put(key, value, None).unwrap();
                failure("halfway")
            }
            b"add" => {
                let before = number(records, key);
                // Others would come between.
                std::thread::yield_now();
                let after = (before + 1).to_string().into_bytes();
                records.put(key, &after, None).unwrap();
                Ok(Some(after))
            }
            b"alone" => {
                let others = self.running.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
                self.running.fetch_sub(1, Ordering::SeqCst);
                if others > 0 { failure("not alone") } else { Ok(Some(Vec::new())) }
            }
            b"blocked on thread 0" if records.thread() > 0 => {
                self.await_blocked(1);
                Ok(Some(b"thread 0 is blocked".to_vec()))
            }
            b"blocked" | b"blocked on thread 0" => {
                let mut gate = self.gate.lock().unwrap();
                gate.0 += 1;
                self.changed.notify_all();
                let waited = self.changed.wait_timeout_while(gate, WAIT_MAX, |gate| !gate.1);
                assert!(!waited.unwrap().1.timed_out());
                Ok(Some(b"released".to_vec()))
            }
            b"note a" | b"note b" => {
                records.append(name, records.thread().to_string().as_bytes()).unwrap();
                Ok(None)
            }
            b"tick" => {
                assert!(key.is_empty() && value.is_empty());
                self.ticks.fetch_add(1, Ordering::SeqCst);
                records.append(b"ticks", b"x").unwrap();
                Ok(None)
            }
            _ => failure("there is no such function"),
        }
    }

    fn reload(&self, _records: &Arc<ScriptRecords>) -> Result<(), ExtensionError> {
        if self.reloads.fetch_add(1, Ordering::SeqCst) > 0 {
            return failure("line 7: syntax");
        }
        Ok(())
    }

    fn follow_reload(&self, records: &Arc<ScriptRecords>) {
        self.followed.lock().unwrap().push(records.thread());
    }

    fn statistics(&self) -> Vec<FunctionStatistics> {
        let time = Duration::from_micros(12);
        vec![FunctionStatistics { name: "a b\n".into(), calls: 3, failures: 1, time }]
    }
}

fn settings(threads: usize) -> ExtensionSettings {
    ExtensionSettings { threads, ..ExtensionSettings::default() }
}

/// Starts a server with the functions.
fn start(
    config: Config,
    settings: ExtensionSettings,
    database: &Database,
) -> (Running, Arc<Functions>) {
    let functions = Arc::new(Functions::default());
    let server = Server::bind(config, database.clone()).unwrap();
    assert!(server.set_extension(Arc::<Functions>::clone(&functions), settings));
    (run(server), functions)
}

fn started() -> (Running, Arc<Functions>) {
    start(config(), settings(4), &memory())
}

fn ext(name: &str, options: u32, key: &str, value: &str) -> Vec<u8> {
    let (name, key, value) = (name.as_bytes(), key.as_bytes(), value.as_bytes());
    request(&Request::Ext { name, options, key, value })
}

/// Returns the reply with a result.
fn result(value: &str) -> Vec<u8> {
    [&b"\0"[..], &(value.len() as u32).to_be_bytes(), value.as_bytes()].concat()
}

/// Returns the number that a call has returned.
fn read_result(client: &mut Client) -> u64 {
    assert_eq!(client.read(1), b"\0");
    let bytes = u32::from_be_bytes(client.read(4).try_into().unwrap());
    String::from_utf8(client.read(bytes as usize)).unwrap().parse().unwrap()
}

/// Returns a value of `stats`.
fn stats(server: &Running, name: &str) -> u64 {
    server.stat_value(name)
}

#[test]
fn a_client_gets_the_result_of_a_function_or_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _) = start(config(), settings(4), &hash(folder.path()));
    let mut client = server.connect();
    client.exchange(ext("echo", 0, "k", "v"), result("k\tv\n"));
    client.exchange(ext("echo", 0, "", ""), result("\t\n"));
    client.exchange(ext("nothing", 0, "k", "v"), b"\x01");
    client.exchange(ext("unknown", 0, "k", "v"), b"\x01");
    client.exchange(
        misc("error", &[]),
        list(&["9999: miscellaneous error: there is no such function"]),
    );
    assert_eq!(stat(&server, "cnt_ext").unwrap(), "4");
}

#[test]
fn a_server_without_functions_refuses_calls() {
    let server = support::start(memory());
    let mut client = server.connect();
    client.exchange(ext("echo", 0, "k", "v"), b"\x01");
    client.exchange(misc("reload", &[]), support::MISC_FAILURE);
    client.send(
        b"POST /k HTTP/1.1\r\nHost: localhost\r\nX-TT-XNAME: echo\r\nContent-Length: 0\r\n\r\n",
    );
    assert!(client.read_until(b"\r\n").starts_with(b"HTTP/1.1 500 "));
}

#[test]
fn replies_come_in_the_order_of_the_requests() {
    let (server, functions) = started();
    let mut client = server.connect();
    let pipeline = [
        b"set k 0 0 1\r\nv\r\n".to_vec(),
        ext("blocked", 0, "", ""),
        b"get k\r\n".to_vec(),
        ext("echo", 0, "a", "b"),
        ext("put", 0, "k", "w"),
        b"get k\r\n".to_vec(),
    ];
    client.send(&pipeline.concat());
    client.expect(b"STORED\r\n");
    functions.await_blocked(1);
    functions.release();
    client.expect(result("released"));
    client.expect(b"VALUE k 0 1\r\nv\r\nEND\r\n");
    client.expect(result("a\tb\n"));
    client.expect(result("ok"));
    client.expect(b"VALUE k 0 1\r\nw\r\nEND\r\n");
}

/// Lets 32 clients call a function 50 times each.
fn call_from_32_clients(server: &Running, call: &[u8], is_right: impl Fn(&mut Client) + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                let mut client = server.connect();
                for _ in 0..50 {
                    client.send(call);
                    is_right(&mut client);
                }
            });
        }
    });
}

#[test]
fn calls_that_lock_a_record_lose_no_update() {
    for options in [RECORD, ALL, RECORD | ALL] {
        let (server, _) = started();
        call_from_32_clients(&server, &ext("add", options, "k", ""), |client| {
            read_result(client);
        });
        server.connect().exchange("get k\r\n", "VALUE k 0 4\r\n1600\r\nEND\r\n");
    }
}

#[test]
fn calls_that_lock_all_records_run_alone() {
    let (server, _) = started();
    call_from_32_clients(&server, &ext("alone", ALL, "k", ""), |client| {
        client.expect(result(""));
    });
}

#[test]
fn a_lock_of_a_record_holds_up_no_other_call() {
    let (server, functions) = started();
    let mut holder = server.connect();
    holder.send(&ext("blocked", RECORD, "k", ""));
    functions.await_blocked(1);
    let mut waiting: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    for client in &mut waiting {
        client.send(&ext("add", RECORD, "k", ""));
    }
    // There are more calls that wait for the lock than threads.
    wait_until(|| stats(&server, "script_queue") == 8);
    server.connect().exchange(ext("echo", 0, "k", "v"), result("k\tv\n"));
    server.connect().exchange(ext("echo", RECORD, "other", "v"), result("other\tv\n"));
    server.connect().exchange("set k 0 0 1\r\n5\r\n", "STORED\r\n");
    functions.release();
    holder.expect(result("released"));
    let mut sums: Vec<u64> = waiting.iter_mut().map(read_result).collect();
    sums.sort_unstable();
    assert_eq!(sums, (6..14).collect::<Vec<_>>());
}

/// Steps of functions that event loops call.
#[derive(Default)]
struct Steps {
    /// `hold` has begun, on the loop.
    is_held: bool,
    /// `hold` may end.
    is_released: bool,
    /// `open` was called.
    is_open: bool,
}

/// Functions that event loops call: `hold` does not leave its loop itself, `wait`
/// does until `open`.
#[derive(Default)]
struct OnLoops {
    steps: Mutex<Steps>,
    changed: Condvar,
}

impl OnLoops {
    fn set(&self, change: impl Fn(&mut Steps)) {
        change(&mut self.steps.lock().unwrap());
        self.changed.notify_all();
    }

    fn wait(&self, is_over: impl Fn(&Steps) -> bool) {
        let steps = self.steps.lock().unwrap();
        let waited = self.changed.wait_timeout_while(steps, WAIT_MAX, |steps| !is_over(steps));
        assert!(!waited.unwrap().1.timed_out());
    }
}

impl Extension for OnLoops {
    fn begin(&self, _: &Arc<ScriptRecords>) {}

    fn end(&self, _: &Arc<ScriptRecords>) {}

    fn has(&self, _: &[u8]) -> bool {
        true
    }

    fn call(
        &self,
        records: &Arc<ScriptRecords>,
        name: &[u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<Option<Vec<u8>>, ExtensionError> {
        match name {
            b"where" => {
                let place: &[u8] = if records.is_on_loop() { b"loop" } else { b"pool" };
                return Ok(Some(place.to_vec()));
            }
            b"hold" => {
                self.set(|steps| steps.is_held = true);
                self.wait(|steps| steps.is_released);
            }
            b"wait" => {
                records.leave_loop();
                self.wait(|steps| steps.is_open);
            }
            b"open" => self.set(|steps| steps.is_open = true),
            b"panic" => {
                records.begin_transaction().unwrap();
                panic!("a function panics");
            }
            // Longer than a round spends on calls, and shorter than the watch waits.
            b"spin" => {
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(1) {}
            }
            b"panic on loop" => panic!("a function panics"),
            b"big" => {
                let length = records.get(b"big", <[u8]>::len).unwrap().unwrap();
                return Ok(Some(length.to_string().into_bytes()));
            }
            _ => {}
        }
        Ok(Some(name.to_vec()))
    }

    fn reload(&self, _: &Arc<ScriptRecords>) -> Result<(), ExtensionError> {
        Ok(())
    }

    fn runs_on_loops(&self) -> bool {
        true
    }

    fn statistics(&self) -> Vec<FunctionStatistics> {
        Vec::new()
    }
}

#[test]
fn a_call_that_does_not_leave_its_loop_keeps_no_other_request_waiting() {
    let (server, functions) = start_on_loop(config());
    let (mut holder, mut other) = (server.connect(), server.connect());
    for _ in 0..3 {
        await_loop(&mut other);
        holder.send(&ext("hold", 0, "", ""));
        functions.wait(|steps| steps.is_held);
        other.send(b"get k\r\n");
        other.expect("END\r\n");
        functions.set(|steps| steps.is_released = true);
        holder.expect(result("hold"));
        functions.set(|steps| *steps = Steps::default());
        // The thread that watches the loop sleeps by then, or else is woken less.
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_call_that_leaves_its_loop_takes_no_other_call_of_the_round_with_it() {
    let (server, functions) = start_on_loop(config());
    let names = ["hold", "first", "wait", "open", "last"];
    let mut clients = names.map(|name| (name, server.connect()));
    for (name, client) in &mut clients {
        client.send(&ext(name, 0, "", ""));
        if *name == "hold" {
            functions.wait(|steps| steps.is_held);
        }
    }
    // The loop finds the other calls at the same time.
    functions.set(|steps| steps.is_released = true);
    for (name, client) in &mut clients {
        client.expect(result(name));
    }
}

#[test]
fn a_pipeline_of_calls_goes_on_while_another_call_of_the_round_leaves_the_loop() {
    let (server, functions) = start_on_loop(config());
    let (mut spinning, mut pipeline) = (server.connect(), server.connect());
    // Mostly the loop finds the other calls at the same time.
    for _ in 0..20 {
        let mut waiting = server.connect();
        await_loop(&mut spinning);
        spinning.send(&ext("spin", 0, "", ""));
        pipeline.send(&[ext("first", 0, "", ""), ext("second", 0, "", "")].concat());
        waiting.send(&ext("wait", 0, "", ""));
        pipeline.expect(result("first"));
        pipeline.expect(result("second"));
        spinning.expect(result("spin"));
        functions.set(|steps| steps.is_open = true);
        waiting.expect(result("wait"));
        functions.set(|steps| *steps = Steps::default());
    }
}

/// Starts a server with one loop, which calls functions.
fn start_on_loop(config: Config) -> (Running, Arc<OnLoops>) {
    let functions = Arc::new(OnLoops::default());
    let server = Server::bind(Config { threads: 1, ..config }, memory()).unwrap();
    assert!(server.set_extension(Arc::<OnLoops>::clone(&functions), settings(2)));
    let server = run(server);
    // The loop cannot call functions from its beginning on.
    await_loop(&mut server.connect());
    (server, functions)
}

/// Waits until the loop calls functions.
fn await_loop(client: &mut Client) {
    wait_until(|| {
        client.send(&ext("where", 0, "", ""));
        client.read(result("loop").len()) == result("loop")
    });
}

#[test]
fn a_slow_request_after_a_call_on_its_loop_has_none_of_the_time_of_the_call() {
    let slow_log_threshold = Some(Duration::from_nanos(1));
    let (server, functions) = start_on_loop(Config { slow_log_threshold, ..config() });
    let mut client = server.connect();
    let began = Instant::now();
    client.send(&[&ext("hold", 0, "", "")[..], b"get k\r\n"].concat());
    functions.wait(|steps| steps.is_held);
    std::thread::sleep(Duration::from_millis(100));
    functions.set(|steps| steps.is_released = true);
    client.expect(result("hold"));
    client.expect("END\r\n");
    let took = began.elapsed();
    let own = client.stream.local_addr().unwrap().to_string();
    let slow = support::Monitored::new(&server).expect("/slow", "200 OK");
    let seconds: Vec<f64> = slow
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|slow| slow["client"] == own.as_str())
        .map(|slow| slow["seconds"].as_f64().unwrap())
        .collect();
    assert_eq!(seconds.len(), 2, "{slow}");
    assert!(seconds.iter().sum::<f64>() <= took.as_secs_f64(), "{took:?}: {slow}");
}

#[test]
fn a_call_after_a_long_one_is_made_by_the_loop_once_it_has_handled_events() {
    let (server, _) = start_on_loop(config());
    let mut client = server.connect();
    // More than a round spends on calls. If the thread loses its processor, the watch takes over.
    wait_until(|| {
        client.send(&[ext("spin", 0, "", ""), ext("where", 0, "", "")].concat());
        client.expect(result("spin"));
        client.read(result("loop").len()) == result("loop")
    });
}

#[test]
fn a_function_that_panics_is_a_failed_call_and_ends_no_thread() {
    let (server, _) = start_on_loop(config());
    let mut other = server.connect();
    let mut client = server.connect();
    // More often than there are script threads.
    for _ in 0..5 {
        for (name, options) in [("panic on loop", 0), ("panic", 0), ("panic", RECORD)] {
            client.send(&ext(name, options, "k", ""));
            client.expect([1]);
        }
    }
    for options in [0, RECORD] {
        for client in [&mut client, &mut other] {
            client.send(&ext("echo", options, "k", ""));
            client.expect(result("echo"));
        }
    }
}

#[test]
fn a_call_that_has_left_its_loop_counts_as_busy_until_it_ends() {
    let (server, functions) = start_on_loop(config());
    let mut clients = [server.connect(), server.connect()];
    clients[0].send(&ext("wait", 0, "", ""));
    wait_until(|| stats(&server, "script_threads_busy") == 1);
    // The successor of the loop serves the others; a second call is on a script thread.
    clients[1].send(&ext("wait", 0, "", ""));
    wait_until(|| stats(&server, "script_threads_busy") == 2);
    functions.set(|steps| steps.is_open = true);
    for client in &mut clients {
        client.expect(result("wait"));
    }
    wait_until(|| stats(&server, "script_threads_busy") == 0);
}

#[test]
fn a_function_reads_a_record_that_is_longer_than_a_reply() {
    let (server, _) = start_on_loop(Config { reply_bytes_max: 1 << 20, ..config() });
    let mut client = server.connect();
    let value = vec![b'v'; (1 << 20) + 1];
    client.send(&request(&Request::Put { key: b"big", value: &value }));
    client.expect([0]);
    for options in [0, RECORD] {
        client.send(&ext("big", options, "", ""));
        client.expect(result(&value.len().to_string()));
    }
    client.send(&request(&Request::Get { key: b"big" }));
    client.expect_close();
}

#[test]
fn writes_of_memcached_that_change_a_value_wait_for_a_locked_call_on_it_and_others_do_not() {
    for (options, other) in [(RECORD, "other"), (ALL, "k")] {
        let (server, functions) = started();
        server.connect().exchange("set k 0 0 1\r\n5\r\n", "STORED\r\n");
        server.connect().exchange("set other 0 0 1\r\n5\r\n", "STORED\r\n");
        let mut holder = server.connect();
        holder.send(&ext("blocked", options, "k", ""));
        functions.await_blocked(1);
        let mut waiting = server.connect();
        waiting.send(b"incr k 1\r\nappend k 0 0 1\r\nx\r\nreplace k 0 0 1\r\ny\r\nget k\r\n");
        wait_until(|| stats(&server, "script_queue") == 1);
        let mut client = server.connect();
        client.exchange("get k\r\n", "VALUE k 0 1\r\n5\r\nEND\r\n");
        client.exchange(format!("set {other} 0 0 1\r\n7\r\n"), "STORED\r\n");
        if options == RECORD {
            client.exchange("incr other 1\r\n", "8\r\n");
        }
        functions.release();
        holder.expect(result("released"));
        let sum = if other == "k" { 8 } else { 6 };
        waiting.expect(format!("{sum}\r\nSTORED\r\nSTORED\r\nVALUE k 0 1\r\ny\r\nEND\r\n"));
    }
}

#[test]
fn increments_between_locked_calls_are_not_lost() {
    let (server, _) = started();
    server.connect().exchange("set k 0 0 1\r\n0\r\n", "STORED\r\n");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let mut client = server.connect();
            scope.spawn(move || {
                for _ in 0..100 {
                    if number % 2 == 0 {
                        client.send(&ext("add", RECORD, "k", ""));
                        read_result(&mut client);
                    } else {
                        client.send(b"incr k 1\r\n");
                        client.read_until(b"\r\n");
                    }
                }
            });
        }
    });
    server.connect().exchange("get k\r\n", "VALUE k 0 3\r\n800\r\nEND\r\n");
}

#[test]
fn other_requests_go_on_while_every_script_thread_is_busy() {
    let folder = tempfile::tempdir().unwrap();
    let (server, functions) = start(config(), settings(2), &hash(folder.path()));
    let mut callers: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for client in &mut callers {
        client.send(&ext("blocked", 0, "", ""));
    }
    functions.await_blocked(2);
    let mut client = server.connect();
    client.exchange("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    client.exchange("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
    // Requests for the pool go on too.
    client.exchange(misc("range", &[]), support::MISC_FAILURE);
    client.exchange(request(&Request::Sync), b"\0");
    assert_eq!(stats(&server, "script_threads"), 2);
    assert_eq!(stats(&server, "script_threads_busy"), 2);
    functions.release();
    for client in &mut callers {
        client.expect(result("released"));
    }
}

#[test]
fn a_full_queue_delays_calls_and_loses_none() {
    let settings = ExtensionSettings { queue_max: 2, ..settings(1) };
    let (server, functions) = start(config(), settings, &memory());
    let mut callers: Vec<Client> = (0..12).map(|_| server.connect()).collect();
    for client in &mut callers {
        client.send(&[ext("blocked", 0, "", ""), ext("echo", 0, "k", "v")].concat());
    }
    functions.await_blocked(1);
    server.pass();
    assert!(stats(&server, "script_queue") <= 2);
    functions.release();
    for client in &mut callers {
        client.expect(result("released"));
        client.expect(result("k\tv\n"));
    }
}

#[test]
fn a_client_that_leaves_during_a_call_harms_nothing() {
    let (server, functions) = start(config(), settings(1), &memory());
    let mut leaving = server.connect();
    leaving.send(&ext("blocked", RECORD, "k", ""));
    functions.await_blocked(1);
    let mut queued = server.connect();
    queued.send(&ext("put", RECORD, "k", "by one that has left"));
    server.pass();
    drop((leaving, queued));
    functions.release();
    let mut client = server.connect();
    client.exchange(ext("echo", RECORD, "k", "v"), result("k\tv\n"));
    client.exchange("get k\r\n", "VALUE k 0 20\r\nby one that has left\r\nEND\r\n");
}

#[test]
fn the_mask_refuses_calls_and_not_what_functions_do() {
    let masked = |names: &str| Config { mask: names.parse().unwrap(), ..config() };
    for (names, is_allowed) in [("ext", false), ("allorg", false), ("allwrite,allread", true)] {
        let (server, _) = start(masked(names), settings(1), &memory());
        let reply = if is_allowed { result("ok") } else { b"\x01".to_vec() };
        server.connect().exchange(ext("put", 0, "k", "v"), reply);
    }
    let (server, _) = start(masked("allhttp"), settings(1), &memory());
    let mut client = server.connect();
    client.send(
        b"POST /k HTTP/1.1\r\nHost: localhost\r\nX-TT-XNAME: echo\r\nContent-Length: 0\r\n\r\n",
    );
    assert!(client.read_until(b"\r\n").starts_with(b"HTTP/1.1 403 "));
}

#[test]
fn http_clients_call_functions() {
    let (server, _) = started();
    let mut client = server.connect();
    let mut post = |head: &str, body: &str, reply: &str| {
        let bytes = body.len();
        client.send(
            format!("POST /a%20k HTTP/1.1\r\nHost: localhost\r\n{head}Content-Length: {bytes}\r\n\r\n{body}")
                .as_bytes(),
        );
        client.expect(reply);
    };
    for options in ["", "X-TT-XOPTS: 1\r\n", "X-TT-XOPTS: 2\r\n"] {
        post(
            &format!("X-TT-XNAME: echo\r\n{options}"),
            "value",
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 10\r\n\r\n\
             a k\tvalue\n",
        );
    }
    post(
        "X-TT-XNAME: nothing\r\n",
        "",
        "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\nContent-Length: 22\r\n\
         \r\nInternal Server Error\n",
    );
    post(
        "X-TT-XNAME: unknown\r\n",
        "",
        "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\nContent-Length: 26\r\n\
         \r\nthere is no such function\n",
    );
    let long = "x".repeat(1024);
    post(
        &format!("X-TT-XNAME: {long}\r\n"),
        "",
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\n\
         Bad Request\n",
    );
    post(
        "X-TT-MNAME: reload\r\n",
        "",
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: 0\r\n\r\n",
    );
    client.send(b"POST /k HTTP/1.0\r\nX-TT-XNAME: echo\r\nContent-Length: 0\r\n\r\n");
    assert!(client.read_to_end().ends_with(b"\r\n\r\nk\t\n"));
    let mut client = server.connect();
    client.send(
        b"POST /k HTTP/1.0\r\nConnection: keep-alive\r\nX-TT-XNAME: echo\r\nContent-Length: 0\r\n\
          \r\n",
    );
    client.expect(
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Type: application/octet-stream\r\n\
          Content-Length: 3\r\n\r\nk\t\n",
    );
}

#[test]
fn changes_of_functions_are_logged_and_replicated_and_a_read_only_replica_refuses_them() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let databases = folders.each_ref().map(|folder| hash(folder.path()));
    let (master, _) = start(logging(1, folders[0].path()), settings(2), &databases[0]);
    let mut config = following(2, folders[1].path(), master.address);
    config.following.is_writable = false;
    let (replica, _) = start(config, settings(2), &databases[1]);
    let mut client = master.connect();
    client.exchange(ext("put", RECORD, "k", "v"), result("ok"));
    client.exchange(ext("half", 0, "lost", "v"), b"\x01");
    wait_until(|| databases[1].get(b"k").unwrap().is_some());
    replica.connect().exchange(ext("put", 0, "k", "w"), b"\x01");
    replica.connect().exchange(ext("echo", 0, "k", "w"), result("k\tw\n"));
    assert_eq!(databases[1].get(b"k").unwrap().unwrap(), b"v");
    assert_eq!(databases[0].get(b"lost").unwrap(), None);
    wait_until_equal(&databases[0], &databases[1]);
    drop((master, replica));
    let put = request(&Request::Put { key: b"k", value: b"v" });
    let entries = logged(&folders[0].path().join("ulog"));
    assert!(entries.iter().any(|(origin, _, body)| *origin == 1 && body.starts_with(&put)));
}

#[test]
fn a_function_is_called_periodically_and_its_changes_are_logged() {
    let folder = tempfile::tempdir().unwrap();
    let periodic = Periodic { function: "tick".into(), every: Duration::from_millis(1) };
    let settings = ExtensionSettings { periodic: vec![periodic], ..settings(1) };
    let database = hash(folder.path());
    let (server, functions) = start(logging(1, folder.path()), settings, &database);
    wait_until(|| functions.ticks.load(Ordering::SeqCst) > 2);
    // Calls go on beside it.
    server.connect().exchange(ext("echo", 0, "k", "v"), result("k\tv\n"));
    drop(server);
    let ticks = functions.ticks.load(Ordering::SeqCst);
    assert_eq!(database.get(b"ticks").unwrap().unwrap().len(), ticks);
    let appended = request(&Request::PutCat { key: b"ticks", value: b"x" });
    let entries = logged(&folder.path().join("ulog"));
    let appends = entries.iter().filter(|(_, _, body)| body.starts_with(&appended));
    assert_eq!(appends.count(), ticks);
}

#[test]
fn each_periodic_function_has_records_of_its_own_from_the_beginning_to_the_end() {
    let periodic =
        |function: &str| Periodic { function: function.into(), every: Duration::from_millis(1) };
    let settings =
        ExtensionSettings { periodic: vec![periodic("note a"), periodic("note b")], ..settings(3) };
    let database = memory();
    let (server, functions) = start(config(), settings, &database);
    let noted = |name: &[u8]| database.get(name).unwrap().unwrap_or_default();
    wait_until(|| {
        server.connect().exchange(ext("echo", 0, "k", "v"), result("k\tv\n"));
        noted(b"note a").len() > 5 && noted(b"note b").len() > 5
    });
    drop(server);
    // The numbers after those of the threads.
    assert!(noted(b"note a").iter().all(|byte| *byte == b'3'));
    assert!(noted(b"note b").iter().all(|byte| *byte == b'4'));
    let mut begun = functions.begun.lock().unwrap().clone();
    begun.sort_unstable();
    assert_eq!(begun, [0, 1, 2, 3, 4]);
    let mut ended = functions.ended.lock().unwrap().clone();
    assert_eq!(ended.pop(), Some(0));
    ended.sort_unstable();
    assert_eq!(ended, [1, 2, 3, 4]);
    assert_eq!(Arc::strong_count(&functions), 1);
}

#[test]
fn thread_0_begins_first_and_ends_last_and_what_it_stores_is_kept() {
    let database = memory();
    let (server, functions) = start(config(), settings(4), &database);
    wait_until(|| functions.begun.lock().unwrap().len() == 4);
    drop(server);
    assert_eq!(functions.begun.lock().unwrap()[0], 0);
    let mut ended = functions.ended.lock().unwrap().clone();
    assert_eq!(ended[3], 0);
    ended.sort_unstable();
    assert_eq!(ended, [0, 1, 2, 3]);
    assert_eq!(database.get(b"begun").unwrap().unwrap(), b"4");
    assert_eq!(database.get(b"ended").unwrap().unwrap(), b"xxxx");
    // The functions have dropped the records, and so has the server: the test alone has them.
    assert_eq!(Arc::strong_count(&functions), 1);
}

#[test]
fn functions_are_loaded_again_on_request_and_a_failure_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (server, functions) = start(config(), settings(4), &hash(folder.path()));
    let mut client = server.connect();
    client.exchange(misc("reload", &[]), list(&[]));
    client.exchange(misc("reload", &[]), support::MISC_FAILURE);
    client.exchange(misc("error", &[]), list(&["9999: miscellaneous error: line 7: syntax"]));
    server.handle.reload_extension();
    wait_until(|| functions.reloads.load(Ordering::SeqCst) == 3);
    client.exchange(ext("echo", 0, "k", "v"), result("k\tv\n"));
}

/// Process that can read everything again, once.
struct Process(AtomicUsize);

impl Reload for Process {
    fn reload(&self, number: usize) -> Result<String, String> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(format!("of server {number}")),
            _ => Err("users: line 3".to_owned()),
        }
    }

    fn databases(&self) -> Vec<String> {
        vec!["casket.tch\t127.0.0.1:1978".to_owned()]
    }
}

#[test]
fn a_clients_reload_is_that_of_the_process_and_then_of_the_functions() {
    for (has_functions, read) in [(false, "of server 7"), (true, "of server 7; script loaded")] {
        let (server, functions) = match has_functions {
            true => start(config(), settings(1), &memory()),
            false => (support::start(memory()), Arc::default()),
        };
        let process: Arc<dyn Reload> = Arc::new(Process(AtomicUsize::new(0)));
        server.handle.set_reload(Arc::downgrade(&process), 7);
        let mut client = server.connect();
        client.exchange(misc("reload", &[]), list(&[read]));
        client.exchange(misc("reload", &[]), support::MISC_FAILURE);
        client.exchange(misc("error", &[]), list(&["2: invalid operation: users: line 3"]));
        client.exchange(misc("metrics", &["databases"]), list(&["casket.tch\t127.0.0.1:1978"]));
        assert_eq!(functions.reloads.load(Ordering::SeqCst), usize::from(has_functions));
    }
}

#[test]
fn thread_0_follows_a_reload_on_another_thread() {
    let (server, functions) = start(config(), settings(2), &memory());
    let mut blocked = [server.connect(), server.connect()];
    for client in &mut blocked {
        client.send(&ext("blocked on thread 0", 0, "k", "v"));
    }
    functions.await_blocked(1);
    server.connect().exchange(misc("reload", &[]), list(&[]));
    assert!(functions.followed.lock().unwrap().is_empty());
    functions.release();
    wait_until(|| *functions.followed.lock().unwrap() == [0]);
}

#[test]
fn a_result_beyond_the_longest_reply_is_a_failure() {
    let config = Config { reply_bytes_max: 1000, ..config() };
    let (server, _) = start(config, settings(1), &memory());
    let mut client = server.connect();
    for (bytes, is_allowed) in [(999, true), (1000, true), (1001, false)] {
        client.exchange(ext("put", 0, "n", &bytes.to_string()), result("ok"));
        let reply = if is_allowed { result(&"v".repeat(bytes)) } else { b"\x01".to_vec() };
        client.exchange(ext("long", 0, "n", ""), reply);
    }
}

#[test]
fn stats_have_the_calls_of_each_function() {
    let (server, _) = started();
    assert_eq!(stats(&server, "script_a_b__calls"), 3);
    assert_eq!(stats(&server, "script_a_b__failures"), 1);
    assert_eq!(stat(&server, "script_a_b__us").unwrap(), "12");
    assert_eq!(stat(&server, "script_threads").unwrap(), "4");
    let metrics = support::Monitored::new(&server);
    for (name, value) in [("calls", 3.0), ("failures", 1.0), ("seconds", 12e-6)] {
        let name = format!("tyrant_script_{name}_total");
        assert_eq!(metrics.value(&name, &[("database", support::NAME)]), value, "{name}");
    }
    assert_eq!(metrics.value("tyrant_script_threads", &[]), 4.0);
    assert_eq!(metrics.value("tyrant_script_queue", &[]), 0.0);
    metrics.await_value("tyrant_script_threads_busy", &[], |busy| busy == 0.0);
}

#[test]
fn users_call_functions_after_their_login() {
    let slow_log_threshold = Some(Duration::from_nanos(1));
    let users = Some(users(&[("alice", "secret")]));
    let config = Config { users, slow_log_threshold, ..config() };
    let (server, _) = start(config, settings(1), &memory());
    let call = |authorization: &str| {
        let mut client = server.connect();
        client.send(
            format!(
                "POST /k HTTP/1.1\r\nHost: localhost\r\nX-TT-XNAME: echo\r\n{authorization}Content-Length: 1\r\n\r\nv"
            )
            .as_bytes(),
        );
        let status = client.read_until(b"\r\n");
        (client, status)
    };
    assert!(call("").1.starts_with(b"HTTP/1.1 401 "));
    let (mut client, status) = call("Authorization: Basic YWxpY2U6c2VjcmV0\r\n");
    assert_eq!(status, b"HTTP/1.1 200 OK\r\n");
    assert!(client.read_until(b"k\tv\n").ends_with(b"\r\n\r\nk\tv\n"));
    server.connect().exchange(ext("echo", 0, "k", "v"), b"\x01");
    let metrics = support::Monitored::new(&server);
    metrics.await_value("tyrant_logins_total", &[("result", "success")], |count| count == 1.0);
    let slow = metrics.expect("/slow", "200 OK");
    let called =
        |line: &&str| line.contains(r#""command":"post""#) && line.contains(r#""key":"k""#);
    assert!(slow.lines().any(|line| called(&line)), "{slow}");
}

#[test]
fn a_function_has_the_rights_of_its_caller() {
    let rights: &[&str] = &["scripts:a:", "scripts:b:", "read:a:", "write:a:"];
    let listed = [("alice", rights), ("bob", &["read", "write"]), ("carl", &["scripts"])];
    let config = Config { users: Some(users_with(&listed)), ..config() };
    let database = memory();
    let (server, _) = start(config, settings(1), &database);
    let log_in = |name: &str| {
        let mut client = server.connect();
        client.exchange(misc("login", &[name, "secret"]), b"\0\0\0\0\0");
        client
    };
    let mut alice = log_in("alice");
    alice.exchange(ext("echo", 0, "b:k", "v"), b"\0\0\0\0\x06b:k\tv\n");
    alice.exchange(ext("put", 0, "a:k", "v"), b"\0\0\0\0\x02ok");
    // The function may be called with the key, but not store it.
    alice.exchange(ext("put", 0, "b:k", "v"), b"\x01");
    alice.exchange(ext("echo", 0, "c:k", "v"), b"\x01");
    alice.exchange(misc("reload", &[]), support::MISC_FAILURE);
    log_in("bob").exchange(ext("echo", 0, "a:k", "v"), b"\x01");
    log_in("carl").exchange(ext("put", 0, "a:c", "v"), b"\x01");
    assert!(database.get(b"b:k").unwrap().is_none() && database.get(b"a:c").unwrap().is_none());
}
