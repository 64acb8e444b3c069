//! The HTTP server for people, probes and scrapers: a few pages, GET and HEAD only.
//!
//! It is made by hand on the standard library and httparse, since it needs so little: no bodies come in, no page needs
//! more than a string, and every connection closes after one answer. What it is not: a server for the open network. It
//! speaks no TLS and checks no credentials, so it is only bound to loopback addresses (see
//! [`flags`](crate::flags::Flags::metrics_bind_address)).

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::health::{Health, Report};
use crate::metrics::{self, Metrics};

/// As many connections are answered at once; further ones wait in the listen queue of the system. A probe, a scraper
/// and two people fit. More would only mean that several dumps of a large graph, hundreds of megabytes each, are held
/// in memory at the same time.
const CONNECTIONS_MAX: usize = 4;
/// A request's head, from its first byte to the blank line. Browsers send less than 2 KiB.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// httparse wants a place for each header; a browser sends about 20.
const HEADERS_MAX: usize = 64;
/// From the accepted connection to the end of the head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// A reader that takes nothing for this long is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// A whole answer, however large; a reader that takes it byte by byte must not hold a connection for ever.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The answer goes out in pieces of this size, with a look at the clock between them.
const PIECE_BYTES: usize = 64 * 1024;
/// What a client sends behind the head (a body that nobody wants) is read and dropped up to this size, since a
/// connection that closes with bytes unread takes its answer back.
const IGNORED_BYTES_MAX: usize = 64 * 1024;
/// After an accept that failed: the usual cause, too many open files, does not pass in a microsecond.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A graph around more objects than this is better drawn as a whole.
const UIDS_MAX: usize = 100;

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
/// As the reference serves its graph.
const GRAPHVIZ: &str = "text/vnd.graphviz";

const INDEX: &str = "\
gc-daemon, the Kubernetes garbage collector

/healthz    whether the process lives (as /livez)
/livez      whether the process lives; ?verbose lists the checks
/readyz     whether it collects; ?verbose lists the checks
/metrics    OpenMetrics where the scraper asks for it, else Prometheus text
/debug/controllers/garbage-collector-controller/graph
            the ownership graph in DOT; ?uid=UID (up to 100 of them) for the part around these objects
/debug/controllers/garbagecollector/graph
            the same, under the name that older versions of Kubernetes use
";

/// What the pages are made from.
pub struct Pages {
    /// For the probes.
    pub health: Arc<Health>,
    /// For the scraper.
    pub metrics: Arc<Metrics>,
    /// For people with Graphviz.
    pub graph_dot: GraphDot,
}

/// Draws the graph in DOT: the part around these UIDs, or the whole when there are none. An ordinary closure; it may
/// take as long as the drawing takes, on the connection's own thread.
pub type GraphDot = Arc<dyn Fn(&[String]) -> String + Send + Sync>;

/// A running server. Dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    local_addr: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    listener: TcpListener,
    pages: Pages,
    stopping: AtomicBool,
    /// The connection that each thread is at, so that stopping can end it.
    connections: [Mutex<Option<TcpStream>>; CONNECTIONS_MAX],
}

impl Server {
    /// Binds the address and answers from threads named `http-0` and so on until the server is dropped.
    ///
    /// # Errors
    ///
    /// The address is taken or not of this machine, or no thread could be started. The system's words do not name the
    /// address.
    pub fn start(address: SocketAddr, pages: Pages) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        let local_addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            listener,
            pages,
            stopping: AtomicBool::new(false),
            connections: std::array::from_fn(|_| Mutex::new(None)),
        });
        // Threads that were started before one could not be are stopped by the drop of `server`.
        let mut server = Server { shared, local_addr, threads: Vec::new() };
        for index in 0..CONNECTIONS_MAX {
            let shared = Arc::clone(&server.shared);
            let thread = std::thread::Builder::new().name(format!("http-{index}"));
            server.threads.push(thread.spawn(move || shared.run(index))?);
        }
        Ok(server)
    }

    /// The address that was bound; with port 0 the one that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Ends open connections, joins the threads and frees the address. Returns within moments, unless a drawing of the
    /// graph is under way, which is finished first.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for connection in &self.shared.connections {
            if let Some(stream) = &*connection.lock().unwrap_or_else(PoisonError::into_inner) {
                // It may have ended by itself in this moment.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        for _ in &self.threads {
            // Wakes one thread that waits for a connection. When it cannot connect, the queue of connections is full
            // and the threads are awake already.
            let _ = TcpStream::connect_timeout(&reachable(self.local_addr), Duration::from_secs(1));
        }
        for thread in self.threads.drain(..) {
            // A panic in it was caught and answered; there is nothing to pass on.
            let _ = thread.join();
        }
    }
}

/// An address that stands for all of the machine's own can be bound but not called.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

impl Shared {
    fn run(&self, index: usize) {
        while !self.is_stopping() {
            match self.listener.accept() {
                Ok((stream, _)) => self.answer_connection(index, &stream),
                // A client that gave up (ECONNABORTED) or a machine short of descriptors: serve the next one.
                Err(e) => {
                    log::debug!("accepting a connection: {e}");
                    std::thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    fn answer_connection(&self, index: usize, stream: &TcpStream) {
        let Ok(copy) = stream.try_clone() else { return };
        self.set_connection(index, Some(copy));
        // Looked at after the connection is known: either the one who stops sees it, or this sees that it stops.
        if !self.is_stopping() {
            let answered = catch_unwind(AssertUnwindSafe(|| converse(stream, &self.pages, Instant::now())));
            match answered {
                Ok(Ok(())) => {}
                // A client that went away is its own affair.
                Ok(Err(e)) => log::trace!("answering a connection: {e}"),
                Err(_) => log::error!("a panic while answering a connection; the server goes on"),
            }
        }
        self.set_connection(index, None);
    }

    fn set_connection(&self, index: usize, stream: Option<TcpStream>) {
        if let Some(slot) = self.connections.get(index) {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = stream;
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}

/// One request and its answer, on a connection that was accepted at `start`.
fn converse(mut stream: &TcpStream, pages: &Pages, start: Instant) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let answer = match read_head(stream, start)? {
        // It connected and said nothing, as port scanners and connection pools do.
        Head::Closed => return Ok(()),
        Head::TimedOut => Answer::error(408, "no complete request came within 5 seconds"),
        Head::TooLarge => Answer::error(431, "the head of the request is larger than 8 KiB"),
        Head::Read(head) => answer(&head, pages),
    };
    let bytes = answer.to_bytes();
    for piece in bytes.chunks(PIECE_BYTES) {
        if start.elapsed() > ANSWER_TIMEOUT {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.write_all(piece)?;
    }
    stream.shutdown(Shutdown::Write)?;
    drop_rest(stream, start)
}

enum Head {
    Closed,
    TimedOut,
    TooLarge,
    Read(Vec<u8>),
}

/// Reads up to the blank line that ends the head.
fn read_head(mut stream: &TcpStream, start: Instant) -> io::Result<Head> {
    let mut head = Vec::with_capacity(1024);
    let mut buffer = [0; 1024];
    loop {
        let Some(left) = HEAD_TIMEOUT.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
            return Ok(Head::TimedOut);
        };
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut buffer) {
            Ok(0) if head.is_empty() => return Ok(Head::Closed),
            // Half a head: what there is will not parse, and the client is told so.
            Ok(0) => return Ok(Head::Read(head)),
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Ok(Head::TimedOut);
            }
            Err(e) => return Err(e),
        };
        // The blank line may begin in the bytes before.
        let searched = head.len().saturating_sub(3);
        head.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let fresh = head.get(searched..).unwrap_or_default();
        let end = fresh.windows(4).position(|window| window == b"\r\n\r\n").map(|at| searched + at + 4);
        if end.unwrap_or(head.len()) > HEAD_BYTES_MAX {
            return Ok(Head::TooLarge);
        }
        if end.is_some() {
            return Ok(Head::Read(head));
        }
    }
}

/// Reads what else the client sends until it closes, so that it gets the whole answer.
fn drop_rest(mut stream: &TcpStream, start: Instant) -> io::Result<()> {
    let mut buffer = [0; 1024];
    let mut dropped = 0;
    while dropped < IGNORED_BYTES_MAX && start.elapsed() < HEAD_TIMEOUT {
        // A client that keeps its side open has long read the answer; half a second more is for a slow one.
        stream.set_read_timeout(Some(Duration::from_millis(500)))?;
        match stream.read(&mut buffer)? {
            0 => break,
            count => dropped += count,
        }
    }
    Ok(())
}

/// The answer to the head of a request.
pub(crate) fn answer(head: &[u8], pages: &Pages) -> Answer {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Answer::error(400, "the request ends in its head"),
        Err(httparse::Error::TooManyHeaders) => {
            return Answer::error(431, "the request has more than 64 headers");
        }
        Err(e) => return Answer::error(400, &format!("not an HTTP/1.1 request: {e}")),
    }
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let Some(page) = Page::at(path) else { return Answer::error(404, "no such page; / lists them") };
    if !matches!(method, "GET" | "HEAD") {
        return Answer::error(405, "only GET and HEAD are answered");
    }
    let query = match parse_query(query) {
        Ok(query) => query,
        Err(what) => return Answer::error(400, &what),
    };
    let accept = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let wants_open_metrics = accept.into_iter().any(|header| names_open_metrics(header.value));
    let page = match catch_unwind(AssertUnwindSafe(|| page.render(pages, &query, wants_open_metrics))) {
        Ok(page) => page,
        Err(_) => {
            log::error!("a panic while making the page {path}; the server goes on");
            Answer::error(500, "this page could not be made; the log says more")
        }
    };
    Answer { head_only: method == "HEAD", ..page }
}

/// Whether an Accept header asks for OpenMetrics, as Prometheus does. A browser or curl gets the older format.
fn names_open_metrics(accept: &[u8]) -> bool {
    let accept = String::from_utf8_lossy(accept);
    let media_types = accept.split(',').map(|part| part.split(';').next().unwrap_or_default().trim());
    media_types.into_iter().any(|media_type| media_type.eq_ignore_ascii_case("application/openmetrics-text"))
}

/// Everything that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Index,
    Healthz,
    Livez,
    Readyz,
    Metrics,
    Graph,
}

impl Page {
    fn at(path: &str) -> Option<Page> {
        match path {
            "/" => Some(Page::Index),
            "/healthz" => Some(Page::Healthz),
            "/livez" => Some(Page::Livez),
            "/readyz" => Some(Page::Readyz),
            "/metrics" => Some(Page::Metrics),
            "/debug/controllers/garbage-collector-controller/graph"
            | "/debug/controllers/garbagecollector/graph" => Some(Page::Graph),
            _ => None,
        }
    }

    fn render(self, pages: &Pages, query: &[(String, String)], wants_open_metrics: bool) -> Answer {
        let verbose = query.iter().any(|(key, _)| key == "verbose");
        let now = Instant::now();
        match self {
            Page::Index => Answer::ok(PLAIN_TEXT, INDEX.to_owned()),
            Page::Healthz => Answer::probe("healthz", &pages.health.livez(now), verbose),
            Page::Livez => Answer::probe("livez", &pages.health.livez(now), verbose),
            Page::Readyz => Answer::probe("readyz", &pages.health.readyz(now), verbose),
            Page::Metrics => {
                let (content_type, page) = if wants_open_metrics {
                    (metrics::OPEN_METRICS_CONTENT_TYPE, pages.metrics.open_metrics())
                } else {
                    (metrics::PROMETHEUS_TEXT_CONTENT_TYPE, pages.metrics.prometheus_text())
                };
                page.map_or_else(
                    |e| Answer::error(500, &e.to_string()),
                    |page| Answer::ok(content_type, page),
                )
            }
            Page::Graph => {
                let uids = query.iter().filter(|(key, _)| key == "uid").map(|(_, uid)| uid.clone());
                let uids: Vec<String> = uids.collect();
                if uids.len() > UIDS_MAX {
                    return Answer::error(400, "more than 100 UIDs; ask for the whole graph without ?uid=");
                }
                Answer::ok(GRAPHVIZ, (pages.graph_dot)(&uids))
            }
        }
    }
}

pub(crate) struct Answer {
    code: u16,
    content_type: &'static str,
    body: String,
    head_only: bool,
}

impl Answer {
    fn ok(content_type: &'static str, body: String) -> Answer {
        Answer { code: 200, content_type, body, head_only: false }
    }

    fn error(code: u16, what: &str) -> Answer {
        Answer { code, content_type: PLAIN_TEXT, body: format!("{what}\n"), head_only: false }
    }

    fn probe(endpoint: &str, report: &Report, verbose: bool) -> Answer {
        let body = report.body(endpoint, verbose);
        Answer { code: report.code(), content_type: PLAIN_TEXT, body, head_only: false }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let reason = match self.code {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            503 => "Service Unavailable",
            _ => "Internal Server Error",
        };
        let Answer { code, content_type, body, head_only } = self;
        let allow = if *code == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {code} {reason}\r\n{allow}Content-Type: {content_type}\r\nContent-Length: {length}\r\n\
             X-Content-Type-Options: nosniff\r\nCache-Control: no-cache, private\r\nConnection: close\r\n\r\n"
        );
        let mut bytes = head.into_bytes();
        if !head_only {
            bytes.extend_from_slice(body.as_bytes());
        }
        bytes
    }
}

/// `a=1&b` as pairs, decoded.
fn parse_query(query: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(|(key, value)| Ok((decode(key)?, decode(value)?))).collect()
}

/// Undoes percent-encoding, and `+` for a blank, as forms write it.
fn decode(text: &str) -> Result<String, String> {
    let bad = || format!("the query has a broken %-escape in {text:?}");
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
                let (high, low) = (digit(bytes.next()), digit(bytes.next()));
                u8::try_from(high.zip(low).map(|(high, low)| high * 16 + low).ok_or_else(bad)?)
                    .map_err(|_| bad())?
            }
            _ => byte,
        });
    }
    String::from_utf8(decoded).map_err(|_| bad())
}

#[cfg(test)]
mod tests;
