//! The service: one thread that serves all connections.

use crate::body::{Content, TrackedBody};
use crate::connection::{Connection, Limits};
use crate::destination;
use crate::document;
use crate::find::Find;
use crate::listing::{self, Depth};
use crate::live;
use crate::locks::Locks;
use crate::path::file_key;
use crate::request::Request;
use crate::system::System;
use crate::transport::Transport;
use crate::update::Update;
use crate::work::Work;
use bytes::Bytes;
use dav_server::body::Body;
use dav_server::davpath::DavPath;
use dav_server::{DavConfig, DavHandler};
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST,
    HeaderMap, HeaderValue, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use hyper::server::conn::http1::Parts;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use server::{
    ConnectionUpgrade, Login, PIECE_BYTES, Peer, Records, ResumedConnection, Server,
    UpgradedConnection,
};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use wire::http::reply;
use wire::http::{Addressing, Foreign, is_identity};

/// Most connections at the same time, beside those of the server.
pub const CONNECTIONS_MAX: usize = 1024;

/// Body of a response with the status 409.
const WITHOUT_FOLDER: &str = "the folder above the path is missing (MKCOL makes it), or a folder \
    has the name of the file";

/// Value of the header `Connection` in the last response of a connection.
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// An update that the library parses in place of the one of the request.
const EMPTY_UPDATE: &[u8] = b"<propertyupdate xmlns=\"DAV:\"><remove><prop>\
    <update xmlns=\"tyrant\"/></prop></remove></propertyupdate>";

/// Most threads that wait for the disk at the same time.
const WAITING_THREADS_MAX: usize = 8;

/// Time after which an idle one of these threads ends.
const WAITING_THREAD_IDLE: Duration = Duration::from_secs(10);

/// Starts the thread that serves WebDAV connections until the server stops.
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
    let (handler, locks_here) = (config.build_handler(), locks.clone());
    let state = State { handler, records, locks: locks_here, open: Arc::clone(&open) };
    let thread = Builder::new().name("webdav".into()).spawn(move || {
        let wait = state.records.stop_wait();
        runtime.block_on(accept(state, connections));
        runtime.shutdown_timeout(wait);
    })?;
    let connections_max = CONNECTIONS_MAX;
    let sender = Mutex::new(Some(sender));
    let thread = Mutex::new(Some(thread));
    server.set_upgrade(Arc::new(Service { sender, thread, locks, open, connections_max }));
    Ok(())
}

/// The server's handle of the service.
struct Service {
    /// Dropped to end the service.
    sender: Mutex<Option<UnboundedSender<UpgradedConnection>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    locks: Locks,
    open: Arc<AtomicUsize>,
    connections_max: usize,
}

impl ConnectionUpgrade for Service {
    fn serve(&self, connection: UpgradedConnection) {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.connections_max {
            self.open.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(
                "webdav: refused a connection: {} are open already",
                self.connections_max
            );
            return;
        }
        if let Some(sender) = &*self.sender.lock() {
            // The receiver is dropped only when the server stops.
            let _ = sender.send(connection);
        }
    }

    fn is_locked(&self, key: &[u8]) -> bool {
        self.locks.is_locked(key)
    }

    fn media_type(&self, key: &[u8]) -> Option<&'static str> {
        live::media_type_by_name(key)
    }

    fn stop(&self) {
        drop(self.sender.lock().take());
        if let Some(thread) = self.thread.lock().take() {
            // The panic has already been printed.
            let _ = thread.join();
        }
    }
}

/// State of the service's thread.
#[derive(Clone)]
struct State {
    handler: DavHandler<Request>,
    records: Arc<Records>,
    locks: Locks,
    open: Arc<AtomicUsize>,
}

async fn accept(state: State, mut connections: UnboundedReceiver<UpgradedConnection>) {
    while let Some(handed) = connections.recv().await {
        let state = state.clone();
        tokio::spawn(async move {
            if let Err(error) = serve_connection(&state, handed).await {
                tracing::debug!("webdav: a connection failed: {error}");
            }
            state.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
    // Current requests get the server's stop time to finish.
    let deadline = tokio::time::Instant::now() + state.records.stop_wait();
    while state.open.load(Ordering::Relaxed) > 0 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn serve_connection(
    state: &State,
    handed: UpgradedConnection,
) -> Result<(), Box<dyn std::error::Error>> {
    let UpgradedConnection { socket, session, peer, unsent, received, resume } = handed;
    // It is only used to send and receive, which is the same for all kinds of socket.
    let stream = TcpStream::from_std(std::net::TcpStream::from(socket))?;
    if !unsent.is_empty() {
        let records = Arc::clone(&state.records);
        tokio::task::spawn_blocking(move || records.commit()).await??;
    }
    let (timeout, idle_timeout) = state.records.time_limits();
    let limits = Limits { timeout, idle_timeout };
    let work = Work::default();
    let peer = Mutex::new(peer);
    let stream = Transport::new(stream, session);
    let mut connection = Connection::new(stream, Some(received), limits, work.clone());
    connection.write_all(&unsent).await?;
    connection.flush().await?;
    drop(unsent);
    let closes = AtomicBool::new(false);
    let service = service_fn(|request: hyper::Request<Incoming>| async {
        let responding = work.respond();
        let (before, method) = (work.busy(), request.method().clone());
        let response = respond(state, &work, &peer, request).await?;
        if response.headers().get(CONNECTION).is_some_and(|value| value == CLOSE) {
            closes.store(true, Ordering::Relaxed);
        }
        // Requests without a login, or for another host, are counted as refused.
        let refused = [
            StatusCode::UNAUTHORIZED,
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::MISDIRECTED_REQUEST,
        ];
        let is_executed = !refused.contains(&response.status());
        let counted = is_executed.then(|| work.count(before, method, &state.records));
        Ok::<_, Infallible>(response.map(|body| TrackedBody::new(body, responding, counted)))
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    // A client may end its stream before it has read the responses.
    http.half_close(true);
    let served = http.serve_connection(TokioIo::new(connection), service).without_shutdown();
    let Parts { io, read_buf, .. } = served.await?;
    let mut connection = io.into_inner();
    connection.flush().await?;
    // The library may end a connection before it has read all requests, and says so to the client.
    let has_read_all = read_buf.is_empty() && connection.is_for_server();
    if closes.into_inner() || !has_read_all {
        return Ok(connection.shutdown().await?);
    }
    let (transport, mut received) = connection.into_parts();
    let (stream, session) = transport.into_parts(&mut received);
    let socket = stream.into_std()?.into();
    resume.resume(ResumedConnection { socket, session, peer: peer.into_inner(), received });
    Ok(())
}

/// Responds to a request. The header `nosniff` keeps browsers from guessing another type for a
/// file, `SAMEORIGIN` keeps a file that is a page out of the frames of other sites.
async fn respond(
    state: &State,
    work: &Work,
    peer: &Mutex<Peer>,
    request: hyper::Request<Incoming>,
) -> Result<Response<Content>, Infallible> {
    let is_old = request.version() == Version::HTTP_10;
    let method = request.method().clone();
    let mut response = answer(state, work, peer, request).await;
    explain(&mut response, &method);
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if media_type.is_some_and(reply::is_page) {
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static(reply::OWN_FRAMES));
    }
    if is_old && !headers.contains_key(CONTENT_LENGTH) {
        // The end of the connection is the end of the body. As an HTTP/1.0 response it does not
        // announce keep-alive.
        *response.version_mut() = Version::HTTP_10;
        response = closing(response);
    }
    Ok(response)
}

/// Reason why a request failed, as an extension of its response.
#[derive(Clone)]
struct Reason(String);

/// Gives a response that is a failure and has no body the reason as its body.
fn explain(response: &mut Response<Content>, method: &Method) {
    let status = response.status();
    let may_have_body = method != Method::HEAD;
    let is_failure = may_have_body && (status.is_client_error() || status.is_server_error());
    let has_no_length = response.headers().get(CONTENT_LENGTH).is_some_and(|bytes| bytes == "0");
    if !is_failure || !has_no_length && !response.body().is_empty() {
        return;
    }
    let mut text = match response.extensions_mut().remove::<Reason>() {
        Some(Reason(reason)) => reason,
        None if status == StatusCode::CONFLICT && method.as_str() == "UNLOCK" => {
            "there is no such lock".to_owned()
        }
        None if status == StatusCode::CONFLICT => WITHOUT_FOLDER.to_owned(),
        None => status.canonical_reason().unwrap_or_default().to_owned(),
    };
    text.push('\n');
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(CONTENT_LENGTH, text.len().into());
    *response.body_mut() = Body::from(text).into();
}

/// Checks the credentials of a request. The hash of a password takes long, so a thread that may
/// block computes it.
async fn log_in(state: &State, peer: &Mutex<Peer>, authorization: Option<&[u8]>) -> Login {
    if let Some(login) = state.records.log_in(&mut peer.lock(), authorization, false) {
        return login;
    }
    let (records, mut present) = (Arc::clone(&state.records), std::mem::take(&mut *peer.lock()));
    let authorization = authorization.map(<[u8]>::to_vec);
    let check = move || {
        let login = records.log_in(&mut present, authorization.as_deref(), true);
        (present, login)
    };
    // A panic has been printed.
    let Ok((checked, login)) = tokio::task::spawn_blocking(check).await else {
        return Login::Denied;
    };
    *peer.lock() = checked;
    login.unwrap_or(Login::Denied)
}

async fn answer(
    state: &State,
    work: &Work,
    peer: &Mutex<Peer>,
    mut request: hyper::Request<Incoming>,
) -> Response<Content> {
    let context = match admit(state, work, peer, &mut request).await {
        Ok(context) => context,
        Err(refusal) => return refusal.map(Content::from),
    };
    if request.method().as_str() == "PROPFIND" {
        let found = find(state, request, &context).await;
        return found.unwrap_or_else(|refusal| refusal.map(Content::from));
    }
    handle(state, request, &context).await.map(Content::from)
}

/// Returns the context of a request that may be carried out, or its refusal.
async fn admit(
    state: &State,
    work: &Work,
    peer: &Mutex<Peer>,
    request: &mut hyper::Request<Incoming>,
) -> Result<Request, Response<Body>> {
    let method = request.method().clone();
    let is_old = request.version() == Version::HTTP_10;
    let headers = request.headers_mut();
    let addressing = Addressing {
        host: headers.get(HOST).map(HeaderValue::as_bytes),
        origin: headers.get(ORIGIN).map(HeaderValue::as_bytes),
        may_lack_host: is_old,
        changes: !matches!(method, Method::GET | Method::HEAD | Method::OPTIONS),
    };
    if let Some(foreign) = state.records.config().http_hosts.refusal(addressing) {
        return Err(refuse_foreign(foreign));
    }
    let authorization = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let mut user = None;
    if state.records.has_users() {
        match log_in(state, peer, authorization).await {
            Login::User(found) => user = Some(found),
            Login::Denied => {
                let reason = peer.lock().unknown_certificate();
                return Err(challenge(reason.filter(|_| authorization.is_none())));
            }
            Login::TooSoon { wait_s } => return Err(retry_later(wait_s)),
        }
    }
    destination::check(headers).map_err(|status| closing(refusal(status)))?;
    if let Some(status) = check_put(&method, headers) {
        return Err(closing(refusal(status)));
    }
    let context = Request::new(&method, headers, work, user);
    match check_lock(state, request, &context).await {
        Some(refusal) => Err(refusal),
        None => Ok(context),
    }
}

/// Responds to a PROPFIND.
async fn find(
    state: &State,
    request: hyper::Request<Incoming>,
    context: &Request,
) -> Result<Response<Content>, Response<Body>> {
    let refuse = |status| closing(refusal(status));
    let (head, body) = request.into_parts();
    let depth = Depth::of(&head.headers).ok_or_else(|| refuse(StatusCode::BAD_REQUEST))?;
    let path = DavPath::new(head.uri.path()).map_err(|_| refuse(StatusCode::BAD_REQUEST))?;
    let document = document::receive(body).await.map_err(refuse)?;
    let find = Find::parse(&document).ok_or_else(|| without_body(StatusCode::BAD_REQUEST))?;
    let State { records, locks, .. } = state;
    let answered = listing::answer(records, locks, context, &path, depth, find).await;
    answered.map_err(|status| with_reason(without_body(status), context))
}

/// Lets the library respond to a request.
async fn handle(
    state: &State,
    request: hyper::Request<Incoming>,
    context: &Request,
) -> Response<Body> {
    let (handler, principal, guard) = (&state.handler, String::new(), context.clone());
    let method = request.method().clone();
    let is_update = method.as_str() == "PROPPATCH";
    let is_file = method == Method::PUT || method == Method::PATCH;
    let mut response = if is_file || !is_update && request.body().is_end_stream() {
        handler.handle_guarded(request, principal, guard).await
    } else {
        let (head, body) = request.into_parts();
        let document = match document::receive(body).await {
            Ok(document) if is_update => match Update::parse(&document) {
                Ok(update) => {
                    context.set_update(update);
                    Bytes::from_static(EMPTY_UPDATE)
                }
                Err(status) => return without_body(status),
            },
            Ok(document) => Bytes::from(document),
            Err(status) => return closing(refusal(status)),
        };
        let request = hyper::Request::from_parts(head, Body::from(document));
        handler.handle_guarded(request, principal, guard).await
    };
    if let Some(status) = context.status() {
        response = without_body(status);
    }
    if let Some(multistatus) = context.patched() {
        *response.body_mut() = Body::from(multistatus);
    }
    with_reason(response, context)
}

/// Attaches the reason of a failure, if there is one, to the response of a request.
fn with_reason(mut response: Response<Body>, context: &Request) -> Response<Body> {
    if let Some(reason) = context.reason() {
        response.extensions_mut().insert(Reason(reason.to_owned()));
    }
    response
}

/// Refuses a request whose body has been read.
fn without_body(status: StatusCode) -> Response<Body> {
    let mut response = refusal(status);
    response.headers_mut().insert(CONTENT_LENGTH, 0.into());
    response
}

fn refusal(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Refuses a request that is not meant for this server, or not sent by its user.
fn refuse_foreign(foreign: Foreign) -> Response<Body> {
    let (code, _) = foreign.status().code_and_reason();
    let mut response = closing(refusal(code.parse().unwrap_or(StatusCode::FORBIDDEN)));
    *response.body_mut() = Body::from(format!("{}\n", foreign.text()));
    response
}

/// Closes the connection, because the request's body is not read.
fn closing<B>(mut response: Response<B>) -> Response<B> {
    response.headers_mut().insert(CONNECTION, CLOSE);
    response
}

/// Requests a user name and password. `reason` is why the client's certificate is not enough.
fn challenge(reason: Option<String>) -> Response<Body> {
    let mut response = closing(refusal(StatusCode::UNAUTHORIZED));
    let realm = HeaderValue::from_static("Basic realm=\"tyrant\", charset=\"UTF-8\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, realm);
    if let Some(reason) = reason {
        response.extensions_mut().insert(Reason(reason));
    }
    response
}

/// Asks the client to try again after some seconds.
fn retry_later(seconds: u64) -> Response<Body> {
    let mut response = closing(refusal(StatusCode::TOO_MANY_REQUESTS));
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
    *response.body_mut() = Body::from(format!("{}\n", reply::TOO_MANY_LOGINS));
    response
}

/// Returns the refusal of a PUT or PATCH that the library would take for one of the whole file: the
/// question how much of an upload has arrived, or a coding that would be lost.
fn check_put(method: &Method, headers: &HeaderMap) -> Option<StatusCode> {
    if method != Method::PUT && method != Method::PATCH {
        return None;
    }
    let is_question = |range: &HeaderValue| {
        let range = range.as_bytes().split(|byte| *byte == b' ').next_back();
        range.is_some_and(|range| range.starts_with(b"*"))
    };
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    if headers.get_all(CONTENT_RANGE).iter().any(is_question) {
        Some(StatusCode::BAD_REQUEST)
    } else if codings.any(|coding| !is_identity(coding.as_bytes())) {
        Some(StatusCode::UNSUPPORTED_MEDIA_TYPE)
    } else {
        None
    }
}

/// Refuses to lock or unlock a file that the user may not change. The library knows no users.
async fn check_lock(
    state: &State,
    request: &hyper::Request<Incoming>,
    facts: &Request,
) -> Option<Response<Body>> {
    if !matches!(request.method().as_str(), "LOCK" | "UNLOCK") {
        return None;
    }
    let path = DavPath::new(request.uri().path()).ok()?;
    let key = file_key(&path).to_vec();
    let checked = facts.wait(&state.records, move |records| Ok(records.check_write(&key)?)).await;
    checked.is_err().then(|| refusal(StatusCode::FORBIDDEN))
}
