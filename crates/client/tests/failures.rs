//! Failures: the client against servers that misbehave or are away.

mod fake;

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::sync::mpsc;
use std::time::Duration;

use client::{Address, Client, Error, Pool, Reply, Settings, limits};
use wire::Parse;
use wire::binary::{Request, parse, reply};

const GET: &[u8] = b"\xc8\x30\0\0\0\x01k";

/// Returns a server that sends `response` to one get and closes the connection.
fn respond_once(response: &[u8]) -> impl FnOnce(TcpStream) + Send + use<> {
    let response = response.to_vec();
    move |mut stream| {
        let mut request = [0; GET.len()];
        stream.read_exact(&mut request).expect("a request");
        // The client may already have closed the connection.
        let _ = stream.write_all(&response);
    }
}

fn error_of(response: &[u8], settings: Settings) -> Error {
    let (address, server) = fake::server(vec![respond_once(response)]);
    let client = Client::connect_with(address, settings).expect("a connection");
    let error = client.get(b"k").expect_err("an invalid response");
    server.join().expect("a server");
    assert!(client.is_broken());
    assert_eq!(client.get(b"k").expect_err("a broken connection").code(), 1);
    error
}

#[test]
fn a_response_that_ends_early_breaks_the_connection() {
    for response in [&b""[..], b"\0", b"\0\0\0\0", b"\0\0\0\0\x05abcd"] {
        assert_eq!(error_of(response, Settings::default()).code(), 5, "{response:?}");
    }
}

#[test]
fn an_invalid_status_breaks_the_connection() {
    assert_eq!(error_of(b"\x02\0\0\0\0", Settings::default()).code(), 5);
}

#[test]
fn a_broken_client_reconnects_on_request() {
    let (address, server) = fake::server(vec![respond_once(b""), respond_once(b"\x01")]);
    let client = Client::connect(address).unwrap();
    assert_eq!(client.get(b"k").unwrap_err().code(), 5);
    client.reconnect().unwrap();
    assert!(!client.is_broken());
    assert_eq!(client.get(b"k").unwrap(), None);
    server.join().unwrap();
}

#[test]
fn the_size_of_a_response_is_limited() {
    let limit = |response_bytes_max| Settings { response_bytes_max, ..Settings::default() };
    let response = b"\0\0\0\0\x05abcde";
    for bytes in [6, 5] {
        let (address, server) = fake::server(vec![respond_once(response)]);
        let client = Client::connect_with(address, limit(bytes)).unwrap();
        assert_eq!(client.get(b"k").unwrap(), Some(b"abcde".to_vec()));
        server.join().unwrap();
    }
    assert_eq!(error_of(response, limit(4)).code(), 5);
    let announced = [&b"\0"[..], &u32::MAX.to_be_bytes()].concat();
    assert!(limits::RESPONSE_BYTES_MAX < u32::MAX as usize);
    assert_eq!(error_of(&announced, Settings::default()).code(), 5);
}

#[test]
fn empty_elements_of_a_list_count_towards_the_limit() {
    let list =
        |count: u32| [&b"\0"[..], &count.to_be_bytes(), &vec![0; 4 * count as usize]].concat();
    let element = size_of::<Vec<u8>>();
    let settings = Settings { response_bytes_max: 100 * element, ..Settings::default() };
    for (count, fits) in [(99, true), (100, true), (101, false)] {
        let (address, server) = fake::server(vec![move |mut stream: TcpStream| {
            let mut request = [0; 10];
            stream.read_exact(&mut request).expect("a request");
            stream.write_all(&list(count)).expect("a sent response");
        }]);
        let client = Client::connect_with(address, settings.clone()).unwrap();
        let keys = client.keys_with_prefix(b"", None);
        assert_eq!(keys.map(|keys| keys.len()).ok(), fits.then_some(count as usize));
        server.join().unwrap();
    }
}

#[test]
fn a_silent_server_causes_a_timeout() {
    let (done, waits) = mpsc::channel::<()>();
    let (address, server) = fake::server(vec![move |_stream: TcpStream| {
        let _ = waits.recv();
    }]);
    let settings =
        Settings { read_timeout: Some(Duration::from_millis(20)), ..Settings::default() };
    let client = Client::connect_with(address, settings).unwrap();
    let Err(Error::Receive(error)) = client.get(b"k") else { panic!("a response") };
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    drop(done);
    server.join().unwrap();
}

#[test]
fn a_request_that_cannot_be_encoded_leaves_the_connection_usable() {
    let (address, server) = fake::server(vec![respond_once(b"\x01")]);
    let client = Client::connect(address).unwrap();
    let name = [b'f'; wire::limits::FUNCTION_NAME_BYTES_LIMIT];
    assert_eq!(client.misc::<&str>(&name, 0, &[]).unwrap_err().code(), 1);
    assert_eq!(client.put_shift(b"k", b"v", 1 << 31).unwrap_err().code(), 1);
    assert!(!client.is_broken());
    assert_eq!(client.get(b"k").unwrap(), None);
    server.join().unwrap();
}

#[test]
fn an_unreachable_server_and_an_unknown_host_are_different_errors() {
    let (address, server) = fake::server(Vec::<fn(TcpStream)>::new());
    server.join().unwrap();
    assert_eq!(Client::connect(address).err().map(|error| error.code()), Some(3));
    let folder = tempfile::tempdir().unwrap();
    let missing = Client::connect_unix(&folder.path().join("socket"));
    assert_eq!(missing.err().map(|error| error.code()), Some(3));
    let nowhere = Client::connect(("name with spaces", 1978));
    assert_eq!(nowhere.err().map(|error| error.code()), Some(2));
}

#[test]
fn a_client_connects_to_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = [0; GET.len()];
        stream.read_exact(&mut request).expect("a request");
        assert_eq!(request, GET);
        stream.write_all(b"\0\0\0\0\x01v").expect("a sent response");
    });
    let client = Client::connect_unix(&path).unwrap();
    assert_eq!(client.get(b"k").unwrap(), Some(b"v".to_vec()));
    server.join().unwrap();
}

/// Responds to each get with its key, and reads the next request only once the response is taken.
fn echo(stream: TcpStream) {
    let mut responses = stream.try_clone().expect("a second handle");
    let mut requests = BufReader::new(stream);
    let (mut received, mut out) = (Vec::new(), Vec::new());
    loop {
        match parse(&received) {
            Parse::Complete(request, length) => {
                out.clear();
                match request {
                    Request::Get { key } => reply::value(&mut out, key),
                    other => panic!("{other:?}"),
                }
                received.drain(..length);
                responses.write_all(&out).expect("a sent response");
            }
            Parse::Incomplete(needed) => {
                let start = received.len();
                received.resize(needed, 0);
                if requests.read_exact(&mut received[start..]).is_err() {
                    return;
                }
            }
            Parse::Invalid(invalid) => panic!("{invalid:?}"),
        }
    }
}

#[test]
fn a_pipeline_larger_than_all_buffers_completes() {
    let (address, server) = fake::server(vec![echo]);
    let client = Client::connect(address).unwrap();
    let mut pipeline = client.pipeline();
    // 32 MiB in each direction, with an occasional request longer than a chunk.
    let long = vec![b'l'; 3 * limits::PIPELINE_CHUNK_BYTES_MAX];
    let short = vec![b's'; 1 << 10];
    let key = |index: usize| if index % 1000 == 500 { &long } else { &short };
    for index in 0..32_000 {
        pipeline.get(key(index)).unwrap();
    }
    let replies = pipeline.run().unwrap();
    assert_eq!(replies.len(), 32_000);
    for (index, reply) in replies.iter().enumerate() {
        assert!(matches!(reply, Reply::Value(Some(value)) if value == key(index)), "{index}");
    }
    drop(client);
    server.join().unwrap();
}

/// Like `echo`, for a client that closes the connection halfway.
fn echo_until_closed(stream: TcpStream) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| echo(stream)));
}

#[test]
fn all_responses_of_a_pipeline_share_one_limit() {
    for (response_bytes_max, fits) in [(201, true), (200, true), (199, false)] {
        let (address, server) = fake::server(vec![echo_until_closed]);
        let settings = Settings { response_bytes_max, ..Settings::default() };
        let client = Client::connect_with(address, settings).unwrap();
        let mut pipeline = client.pipeline();
        pipeline.get(&[b'k'; 100]).unwrap().get(&[b'k'; 100]).unwrap();
        assert_eq!(pipeline.run().is_ok(), fits);
        drop(client);
        server.join().unwrap();
    }
}

#[test]
fn run_each_limits_each_response_separately() {
    for (response_bytes_max, fits) in [(100, true), (99, false)] {
        let (address, server) = fake::server(vec![echo_until_closed]);
        let settings = Settings { response_bytes_max, ..Settings::default() };
        let client = Client::connect_with(address, settings).unwrap();
        let mut pipeline = client.pipeline();
        pipeline.get(&[b'k'; 100]).unwrap().get(&[b'l'; 100]).unwrap();
        let mut replies = Vec::new();
        let run = pipeline.run_each(|reply| {
            replies.push(reply);
            Ok::<(), Error>(())
        });
        assert_eq!(run.is_ok(), fits);
        let expected = [b'k', b'l'].map(|byte| Reply::Value(Some(vec![byte; 100])));
        assert_eq!(replies, if fits { &expected[..] } else { &[] });
        drop(client);
        server.join().unwrap();
    }
}

#[test]
fn an_error_of_the_callback_breaks_the_connection() {
    let (address, server) = fake::server(vec![echo_until_closed]);
    let client = Client::connect(address).unwrap();
    let mut pipeline = client.pipeline();
    pipeline.get(b"one").unwrap().get(b"two").unwrap();
    let mut seen = 0;
    let run = pipeline.run_each(|_| {
        seen += 1;
        Err(Error::NoRecordFound)
    });
    assert!(matches!(run, Err(Error::NoRecordFound)), "{run:?}");
    assert_eq!(seen, 1);
    assert!(client.is_broken());
    drop(client);
    server.join().unwrap();
}

fn impatient() -> Settings {
    Settings { connect_timeout: Duration::from_millis(50), ..Settings::default() }
}

#[test]
fn a_pool_reuses_a_connection() {
    let (address, server) = fake::server(vec![echo]);
    let pool = Pool::new(address, Settings::default(), 4);
    for _ in 0..3 {
        assert_eq!(pool.get().unwrap().get(b"k").unwrap(), Some(b"k".to_vec()));
    }
    drop(pool);
    server.join().unwrap();
}

#[test]
fn a_pool_never_exceeds_its_maximum_of_connections() {
    let (address, server) = fake::server(vec![
        |stream: TcpStream| {
            std::thread::spawn(move || echo(stream));
        };
        2
    ]);
    let pool = Pool::new(address, impatient(), 2);
    let first = pool.get().unwrap();
    let second = pool.get().unwrap();
    assert_eq!(pool.get().err().map(|error| error.code()), Some(9999));
    drop(first);
    assert_eq!(pool.get().unwrap().get(b"k").unwrap(), Some(b"k".to_vec()));
    drop(second);
    server.join().unwrap();
}

#[test]
fn a_full_pool_waits_for_a_free_connection() {
    let (address, server) = fake::server(vec![echo]);
    let pool = Pool::new(address, Settings::default(), 1);
    let first = pool.get().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.get().and_then(|client| client.get(b"k")));
        drop(first);
        assert_eq!(waiter.join().unwrap().unwrap(), Some(b"k".to_vec()));
    });
    drop(pool);
    server.join().unwrap();
}

#[test]
fn a_pool_replaces_broken_and_closed_connections() {
    // The first breaks in use, the second is closed while idle, the third stays.
    let (closed, when_closed) = mpsc::channel();
    let serve: Vec<Box<dyn FnOnce(TcpStream) + Send>> = vec![
        Box::new(respond_once(b"")),
        Box::new(move |stream| {
            respond_once(b"\x01")(stream);
            closed.send(()).expect("a test that waits");
        }),
        Box::new(respond_once(b"\x01")),
    ];
    let (address, server) = fake::server(serve);
    let pool = Pool::new(address, Settings::default(), 1);
    assert_eq!(pool.get().unwrap().get(b"k").unwrap_err().code(), 5);
    assert_eq!(pool.get().unwrap().get(b"k").unwrap(), None);
    when_closed.recv().unwrap();
    assert_eq!(pool.get().unwrap().get(b"k").unwrap(), None);
    server.join().unwrap();
}

#[test]
fn a_failed_connect_returns_its_permit_to_the_pool() {
    let address: Address = "127.0.0.1:1".parse().unwrap();
    let pool = Pool::new(address, impatient(), 1);
    for _ in 0..3 {
        assert_eq!(pool.get().err().map(|error| error.code()), Some(3));
    }
}

#[test]
fn a_password_is_not_sent_to_a_port_that_requires_tls() {
    let (send, sent) = mpsc::channel();
    let refuse = move |mut stream: TcpStream| {
        let mut request = [0; 256];
        let received = stream.read(&mut request).expect("a request");
        stream.write_all(b"SERVER_ERROR this port requires TLS\r\n").expect("to send");
        let mut all = request[..received].to_vec();
        // The client closes, perhaps by a reset.
        let _ = stream.read_to_end(&mut all);
        send.send(all).expect("the test");
    };
    let (address, server) = fake::server(vec![refuse]);
    let login = Some(client::Credentials::new("ann", "secret"));
    let settings = Settings { login, ..Settings::default() };
    let error = Client::connect_with(address, settings).map(drop).expect_err("a refusal");
    let Error::Receive(cause) = error else { panic!("{error:?}") };
    assert!(cause.to_string().contains("SERVER_ERROR this port requires TLS"), "{cause}");
    server.join().expect("a server");
    let sent = sent.recv().expect("what was sent");
    let has = |word: &[u8]| sent.windows(word.len()).any(|window| window == word);
    assert!(has(b"login") && !has(b"secret") && !has(b"ann"), "{}", sent.escape_ascii());
}
