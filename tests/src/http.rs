//! An HTTP/1.1 front for the simulator: what kubectl, our client and curl can talk to.
//!
//! Loopback only, plain text, one thread for each connection (at most [`MAX_CONNECTIONS`]). Dropping the front ends
//! every connection and joins every thread.
//!
//! ```
//! use std::io::{Read, Write};
//! use gc_tests::{http::Front, sim::ApiServer};
//!
//! let front = Front::start(ApiServer::new(7))?;
//! let mut stream = std::net::TcpStream::connect(front.address())?;
//! stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer)?;
//! assert!(answer.ends_with("\r\n\r\nok"));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::sim::{ApiServer, Body, Method, Request, Response, WatchId};

/// Connections beyond this are answered 503 and closed: a daemon holds one for each watch and a few more.
pub const MAX_CONNECTIONS: usize = 1_024;
/// A request's head must fit into this; a real server's default is 1 MiB, nothing here needs more than a few KiB.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Bodies above this are answered 413, as in the real server.
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;
/// So many headers are read; kubectl sends about ten.
const MAX_HEADERS: usize = 64;
/// How often a quiet watch looks whether its client is still there.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A thread needs little: JSON nests at most 128 deep.
const STACK_BYTES: usize = 1024 * 1024;

/// A running front; stops when dropped.
pub struct Front {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    inner: Mutex<Inner>,
    /// Notified after everything that may have changed the server.
    changed: Condvar,
}

struct Inner {
    server: ApiServer,
    connections: BTreeMap<u64, TcpStream>,
    next_connection: u64,
    stopping: bool,
}

impl Front {
    /// Starts on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// When no port can be had or no thread started.
    pub fn start(server: ApiServer) -> io::Result<Front> {
        Front::start_on(server, 0)
    }

    /// Starts on a given port of 127.0.0.1; 0 takes a free one.
    ///
    /// # Errors
    ///
    /// When the port cannot be had or no thread started.
    pub fn start_on(server: ApiServer, port: u16) -> io::Result<Front> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let inner = Inner { server, connections: BTreeMap::new(), next_connection: 0, stopping: false };
        let shared = Arc::new(Shared { inner: Mutex::new(inner), changed: Condvar::new() });
        let for_acceptor = shared.clone();
        let acceptor =
            Builder::new().name("sim-accept".into()).spawn(move || accept(&listener, &for_acceptor))?;
        Ok(Front { shared, address, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Looks at the server, or changes it; watches are served afterwards.
    pub fn with<R>(&self, act: impl FnOnce(&mut ApiServer) -> R) -> R {
        let result = act(&mut self.shared.lock().server);
        self.shared.changed.notify_all();
        result
    }

    /// Cuts every connection, watches included, as a restart of the server or a proxy does. New ones are accepted.
    pub fn cut_connections(&self) {
        let mut inner = self.shared.lock();
        inner.server.close_all_watches();
        for stream in inner.connections.values() {
            // A connection that is gone already needs no cutting.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.cut_connections();
        self.shared.changed.notify_all();
        // Wakes the acceptor; when the connection fails, it is not waiting.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            // A panic there has been printed already.
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while the lock was held has been reported; the server's data is whole between requests.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    for stream in listener.incoming() {
        if shared.lock().stopping {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        // A connection that was reset before it was accepted is the client's loss, not the server's end.
        let Ok(mut stream) = stream else { continue };
        let busy = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let Some(id) = register(shared, &stream) else {
            let _ = stream.write_all(busy);
            continue;
        };
        let for_thread = shared.clone();
        let builder = Builder::new().name(format!("sim-{id}")).stack_size(STACK_BYTES);
        let spawned = builder.spawn(move || {
            if let Err(error) = (Connection { stream, shared: &for_thread, pending: Vec::new() }).serve() {
                log::debug!("a connection to the simulator ended: {error}");
            }
            for_thread.lock().connections.remove(&id);
        });
        match spawned {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                log::warn!("the simulator cannot start a thread: {error}");
                shared.lock().connections.remove(&id);
            }
        }
    }
    for thread in threads {
        // A panic there has been printed already.
        let _ = thread.join();
    }
}

/// Remembers the connection, so that it can be cut; none when there are too many, or when all have been cut for good:
/// one that was accepted just before would be served for as long as its client likes, and hold up the end.
fn register(shared: &Shared, stream: &TcpStream) -> Option<u64> {
    let mut inner = shared.lock();
    if inner.stopping || inner.connections.len() >= MAX_CONNECTIONS {
        return None;
    }
    let id = inner.next_connection;
    inner.next_connection += 1;
    inner.connections.insert(id, stream.try_clone().ok()?);
    Some(id)
}

/// One connection and what has been read of it but not used.
struct Connection<'a> {
    stream: TcpStream,
    shared: &'a Shared,
    pending: Vec<u8>,
}

/// A request's head, as far as it matters.
struct Head {
    method: Option<Method>,
    target: String,
    accept: String,
    content_type: String,
    user_agent: String,
    length: usize,
    chunked: bool,
    expects_continue: bool,
    keep_alive: bool,
}

impl Connection<'_> {
    fn serve(&mut self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        while let Some(head) = self.read_head()? {
            if head.length > MAX_BODY_BYTES {
                return self.refuse(413, "Request entity too large: limit is 3145728");
            }
            if head.expects_continue {
                self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            let body = if head.chunked { self.read_chunks()? } else { self.read_exactly(head.length)? };
            let Some(method) = head.method else {
                return self.refuse(405, "the server does not allow this method on the requested resource");
            };
            let request = Request {
                method,
                target: head.target,
                accept: head.accept,
                content_type: head.content_type,
                user_agent: head.user_agent,
                body,
            };
            let response = self.handle(&request);
            if !self.answer(&response, head.keep_alive)? || !head.keep_alive {
                break;
            }
        }
        self.stream.shutdown(Shutdown::Both)
    }

    fn handle(&self, request: &Request) -> Response {
        let mut inner = self.shared.lock();
        let before = inner.server.resource_version();
        let response = inner.server.handle(Timestamp::now(), request);
        // Reads concern no watch, and waking them all would cost more than the reads.
        if inner.server.resource_version() != before {
            self.shared.changed.notify_all();
        }
        response
    }

    /// The next head; none when the client has closed the connection.
    fn read_head(&mut self) -> io::Result<Option<Head>> {
        loop {
            if let Some((head, length)) = parse_head(&self.pending)? {
                self.pending.drain(..length);
                return Ok(Some(head));
            }
            if self.pending.len() > MAX_HEAD_BYTES {
                return Err(io::Error::new(ErrorKind::InvalidData, "the head is too long"));
            }
            if self.read_more()? == 0 {
                return Ok(None);
            }
        }
    }

    fn read_more(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 8 * 1024];
        let n = self.stream.read(&mut buffer)?;
        self.pending.extend_from_slice(buffer.get(..n).unwrap_or_default());
        Ok(n)
    }

    fn read_exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.pending.len() < length {
            if self.read_more()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.pending.drain(..length).collect())
    }

    fn read_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.pending.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim().to_string());
            }
            if self.pending.len() > MAX_HEAD_BYTES || self.read_more()? == 0 {
                return Err(io::Error::new(ErrorKind::InvalidData, "a chunk without an end"));
            }
        }
    }

    fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.read_line()?;
            let size = line.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(size, 16)
                .map_err(|_| io::Error::new(ErrorKind::InvalidData, "a chunk without a size"))?;
            if body.len().saturating_add(size) > MAX_BODY_BYTES {
                return Err(io::Error::new(ErrorKind::InvalidData, "the body is too long"));
            }
            if size == 0 {
                while !self.read_line()?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.read_exactly(size)?);
            if !self.read_line()?.is_empty() {
                return Err(io::Error::new(ErrorKind::InvalidData, "a chunk longer than it says"));
            }
        }
    }

    fn refuse(&mut self, code: u16, message: &str) -> io::Result<()> {
        let head = head(code, "text/plain", Some(message.len()), false, None);
        self.stream.write_all(head.as_bytes())?;
        self.stream.write_all(message.as_bytes())?;
        self.stream.shutdown(Shutdown::Both)
    }

    /// Writes a response; false when the connection must end with it.
    fn answer(&mut self, response: &Response, keep_alive: bool) -> io::Result<bool> {
        self.hold_back(response.delay);
        match &response.body {
            Body::Cut => Ok(false),
            Body::Watch(id) => self.stream_watch(*id, response),
            Body::Bytes(bytes) => {
                let head = head(
                    response.code,
                    &response.content_type,
                    Some(bytes.len()),
                    keep_alive,
                    response.retry_after_s,
                );
                let cut = response.truncate_after_bytes.filter(|n| *n < bytes.len());
                let sent = cut.and_then(|n| bytes.get(..n)).unwrap_or(bytes);
                self.stream.write_all(&[head.as_bytes(), sent].concat())?;
                Ok(cut.is_none())
            }
        }
    }

    /// Waits without holding anything up; a front that stops does not wait.
    fn hold_back(&self, delay: Duration) {
        let until = Instant::now() + delay;
        let mut inner = self.shared.lock();
        while !inner.stopping {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            inner = match self.shared.changed.wait_timeout(inner, left) {
                Ok((inner, _)) => inner,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    fn stream_watch(&mut self, id: WatchId, response: &Response) -> io::Result<bool> {
        let head = head(response.code, &response.content_type, None, true, None);
        let streamed = self
            .stream
            .write_all(head.as_bytes())
            .and_then(|()| self.pump(id, response.truncate_after_bytes));
        self.shared.lock().server.close_watch(id);
        streamed
    }

    fn pump(&mut self, id: WatchId, mut left: Option<usize>) -> io::Result<bool> {
        loop {
            let Some((bytes, ended)) = self.next_chunk(id) else { return Ok(false) };
            if !bytes.is_empty() {
                let cut = left.filter(|n| *n < bytes.len());
                let sent = cut.and_then(|n| bytes.get(..n)).unwrap_or(&bytes);
                let size = format!("{:x}\r\n", bytes.len());
                self.stream.write_all(&[size.as_bytes(), sent].concat())?;
                if cut.is_some() {
                    return Ok(false);
                }
                self.stream.write_all(b"\r\n")?;
                left = left.map(|n| n - bytes.len());
            }
            if ended {
                self.stream.write_all(b"0\r\n\r\n")?;
                return Ok(true);
            }
            if bytes.is_empty() && self.client_is_gone()? {
                return Ok(false);
            }
        }
    }

    /// What the watch says next; nothing after a quiet while, none when the front stops or cut the connection.
    fn next_chunk(&self, id: WatchId) -> Option<(Vec<u8>, bool)> {
        let until = Instant::now() + LOOK_EVERY;
        let mut inner = self.shared.lock();
        loop {
            if inner.stopping {
                return None;
            }
            let poll = inner.server.poll_watch(Timestamp::now(), id);
            let left = until.saturating_duration_since(Instant::now());
            if !poll.bytes.is_empty() || poll.ended || left.is_zero() {
                return Some((poll.bytes, poll.ended));
            }
            inner = match self.shared.changed.wait_timeout(inner, left) {
                Ok((inner, _)) => inner,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    fn client_is_gone(&self) -> io::Result<bool> {
        self.stream.set_nonblocking(true)?;
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false)?;
        match peeked {
            Ok(n) => Ok(n == 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(_) => Ok(true),
        }
    }
}

/// The head and its length, once it is complete.
fn parse_head(bytes: &[u8]) -> io::Result<Option<(Head, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let status = parsed.parse(bytes).map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
    let httparse::Status::Complete(length) = status else { return Ok(None) };
    let mut head = Head {
        method: parsed.method.and_then(Method::parse),
        target: parsed.path.unwrap_or_default().into(),
        accept: String::new(),
        content_type: String::new(),
        user_agent: String::new(),
        length: 0,
        chunked: false,
        expects_continue: false,
        keep_alive: parsed.version == Some(1),
    };
    for header in parsed.headers.iter() {
        let value = String::from_utf8_lossy(header.value).into_owned();
        match header.name.to_ascii_lowercase().as_str() {
            "accept" => head.accept = value,
            "content-type" => head.content_type = value,
            "user-agent" => head.user_agent = value,
            "content-length" => {
                head.length = value
                    .parse()
                    .map_err(|_| io::Error::new(ErrorKind::InvalidData, "a strange Content-Length"))?;
            }
            "transfer-encoding" => head.chunked = value.eq_ignore_ascii_case("chunked"),
            "expect" => head.expects_continue = value.eq_ignore_ascii_case("100-continue"),
            "connection" if value.eq_ignore_ascii_case("close") => head.keep_alive = false,
            _ => {}
        }
    }
    Ok(Some((head, length)))
}

/// A response's head; without a length the body is chunked.
fn head(
    code: u16,
    content_type: &str,
    length: Option<usize>,
    keep_alive: bool,
    retry_after_s: Option<u32>,
) -> String {
    let body = match length {
        Some(length) => format!("Content-Length: {length}"),
        None => "Transfer-Encoding: chunked".into(),
    };
    let retry = retry_after_s.map(|s| format!("Retry-After: {s}\r\n")).unwrap_or_default();
    let connection = if keep_alive { "" } else { "Connection: close\r\n" };
    format!(
        "HTTP/1.1 {code} {}\r\nContent-Type: {content_type}\r\n{retry}{connection}{body}\r\n\r\n",
        phrase(code)
    )
}

fn phrase(code: u16) -> &'static str {
    match code {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        409 => "Conflict",
        410 => "Gone",
        413 => "Request Entity Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Unknown",
    }
}
