//! The thread that serves all connections.

use crate::connection::Connection;
use crate::document;
use crate::folder::{ENTRIES_MAX, Entries};
use crate::locks::Locks;
use crate::path::{file_key, folder_key};
use crate::request::Request;
use crate::system::System;
use crate::work::Work;
use bytes::Bytes;
use dav_server::body::Body;
use dav_server::davpath::DavPath;
use dav_server::fs::FsError;
use dav_server::{DavConfig, DavHandler};
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue,
    WWW_AUTHENTICATE,
};
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use server::{Handed, PIECE_BYTES, Records, Server, Takeover};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Most connections at a time, beside those that the server has.
pub const CONNECTIONS_MAX: usize = 1024;

/// Threads that wait for the disk at a time.
const WAITING_THREADS_MAX: usize = 8;

/// A thread that had nothing to wait for goes after a while.
const WAITING_THREAD_IDLE: Duration = Duration::from_secs(10);

/// Has the connections of WebDAV clients served, on a thread of its own, until the server stops.
pub fn serve(server: &Server) -> io::Result<()> {
    let records = Arc::new(server.records());
    let locks = Locks::default();
    let (sender, connections) = unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(WAITING_THREADS_MAX)
        .thread_keep_alive(WAITING_THREAD_IDLE)
        .thread_name("webdav-wait")
        .build()?;
    let config = DavConfig::new()
        .filesystem(Box::new(System::new(Arc::clone(&records))))
        .locksystem(Box::new(locks.clone()))
        .autoindex(true)
        .read_buf_size(PIECE_BYTES);
    let open = Arc::new(AtomicUsize::new(0));
    let state = State { handler: config.build_handler(), records, open: Arc::clone(&open) };
    let thread = Builder::new().name("webdav".into()).spawn(move || {
        let wait = state.records.config().stop_wait;
        runtime.block_on(accept(state, connections));
        runtime.shutdown_timeout(wait);
    })?;
    let connections_max = CONNECTIONS_MAX;
    let sender = Mutex::new(Some(sender));
    let thread = Mutex::new(Some(thread));
    server.hand_over_to(Arc::new(Service { sender, thread, locks, open, connections_max }));
    Ok(())
}

/// What the server sees.
struct Service {
    /// Dropped to end all.
    sender: Mutex<Option<UnboundedSender<Handed>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    locks: Locks,
    open: Arc<AtomicUsize>,
    connections_max: usize,
}

impl Takeover for Service {
    fn serve(&self, connection: Handed) {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.connections_max {
            self.open.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(
                "webdav: a connection refused: there are {} already",
                self.connections_max
            );
            return;
        }
        if let Some(sender) = &*self.sender.lock() {
            // The other end goes only when the server stops.
            let _ = sender.send(connection);
        }
    }

    fn is_locked(&self, key: &[u8]) -> bool {
        self.locks.is_locked(key)
    }

    fn stop(&self) {
        drop(self.sender.lock().take());
        if let Some(thread) = self.thread.lock().take() {
            // A panic has been printed where it happened.
            let _ = thread.join();
        }
    }
}

/// What the thread has.
#[derive(Clone)]
struct State {
    handler: DavHandler<Request>,
    records: Arc<Records>,
    open: Arc<AtomicUsize>,
}

async fn accept(state: State, mut connections: UnboundedReceiver<Handed>) {
    while let Some(handed) = connections.recv().await {
        let state = state.clone();
        tokio::spawn(async move {
            if let Err(error) = converse(&state, handed).await {
                tracing::debug!("webdav: a connection ended: {error}");
            }
            state.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
    // What is under way has as long as the server gives it.
    let deadline = tokio::time::Instant::now() + state.records.config().stop_wait;
    while state.open.load(Ordering::Relaxed) > 0 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn converse(state: &State, handed: Handed) -> Result<(), Box<dyn std::error::Error>> {
    let Handed { socket, unsent, received } = handed;
    // Only sending and receiving is done with it, which is the same for all sockets.
    let stream = TcpStream::from_std(std::net::TcpStream::from(socket))?;
    if !unsent.is_empty() {
        let records = Arc::clone(&state.records);
        tokio::task::spawn_blocking(move || records.commit()).await??;
    }
    let config = state.records.config();
    let limit = config.timeout.max(config.idle_timeout);
    let work = Work::default();
    let mut connection = Connection::new(stream, Some(received), limit, work.clone());
    connection.write_all(&unsent).await?;
    drop(unsent);
    let service = service_fn(|request| respond(state, &work, request));
    let http = hyper::server::conn::http1::Builder::new();
    Ok(http.serve_connection(TokioIo::new(connection), service).await?)
}

async fn respond(
    state: &State,
    work: &Work,
    mut request: hyper::Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let method = request.method().clone();
    let headers = request.headers_mut();
    if !state.records.admits(headers.get(AUTHORIZATION).map(HeaderValue::as_bytes)) {
        return Ok(challenge());
    }
    // For some clients the library would look into all folders at once.
    headers.remove("x-litmus");
    if method.as_str() == "PROPFIND" && !headers.contains_key("depth") {
        headers.insert("depth", HeaderValue::from_static("1"));
    }
    let facts = Request::new(&method, headers, work);
    if let Err(status) = check_folder(state, &request, &facts).await {
        return Ok(refusal(status));
    }
    let (handler, principal, guard) = (&state.handler, String::new(), facts.clone());
    let is_file = method == Method::PUT || method == Method::PATCH;
    let mut response = if is_file || request.body().is_end_stream() {
        handler.handle_guarded(request, principal, guard).await
    } else {
        let (head, body) = request.into_parts();
        let document = match document::receive(body).await {
            Ok(document) => Body::from(Bytes::from(document)),
            Err(status) => return Ok(closing(refusal(status))),
        };
        handler.handle_guarded(hyper::Request::from_parts(head, document), principal, guard).await
    };
    if let Some(status) = facts.status() {
        response = refusal(status);
        response.headers_mut().insert(CONTENT_LENGTH, 0.into());
    }
    if method == Method::GET || method == Method::HEAD {
        describe(&mut response, &facts);
    }
    Ok(response)
}

fn refusal(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// The body that may follow is not read, so the connection ends.
fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Asks for a name and a password.
fn challenge() -> Response<Body> {
    let mut response = closing(refusal(StatusCode::UNAUTHORIZED));
    let realm = HeaderValue::from_static("Basic realm=\"tyrant\", charset=\"UTF-8\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, realm);
    response
}

/// Fails if a folder is to be shown that has too much in it, which the library would show as empty.
async fn check_folder(
    state: &State,
    request: &hyper::Request<Incoming>,
    facts: &Request,
) -> Result<(), StatusCode> {
    let shows = request.method().as_str() == "PROPFIND"
        && request.headers().get("depth").is_some_and(|depth| depth != "0");
    if !shows || state.records.len() <= ENTRIES_MAX as u64 {
        return Ok(());
    }
    let Ok(path) = DavPath::new(request.uri().path()) else { return Ok(()) };
    let entries = facts.wait(&state.records, move |records| {
        Entries::of(records, &folder_key(file_key(&path))).map(drop)
    });
    match entries.await {
        Err(FsError::InsufficientStorage) => Err(StatusCode::INSUFFICIENT_STORAGE),
        _ => Ok(()),
    }
}

/// Says of a file what is kept with it.
fn describe(response: &mut Response<Body>, request: &Request) {
    let Some(file) = request.file() else { return };
    let is_file = matches!(response.status(), StatusCode::OK | StatusCode::PARTIAL_CONTENT);
    if let Some(media_type) = file.media_type.as_ref().filter(|_| is_file)
        && let Ok(media_type) = HeaderValue::from_str(media_type)
    {
        response.headers_mut().insert(CONTENT_TYPE, media_type);
    }
    if file.expires_at_ms > 0 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let left = u128::from(file.expires_at_ms).saturating_sub(now).div_ceil(1000);
        if let Ok(value) = HeaderValue::from_str(&format!("max-age={left}")) {
            response.headers_mut().insert(CACHE_CONTROL, value);
        }
    }
}
