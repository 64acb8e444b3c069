//! One request, one answer; and streams for lists and watches.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ureq::http;

use crate::config::{Config, ConfigError};
use crate::gate::Gate;
use crate::session::{self, Current, Renew, Session};
use crate::turn::{Turn, Turns};
use crate::{Error, Status};

/// The largest body that `send` takes. An object is at most a few megabytes (etcd's limit) and the discovery of a
/// thousand custom resources about ten; a list is never read this way. Beyond this the server talks nonsense.
const BODY_BYTES_MAX: u64 = 16 << 20;

/// How long a body that is read to its end may take: a server that drips a byte now and then would hold a worker for
/// days. Bodies of lists and watches are no such bodies.
const BODY_WITHIN: Duration = Duration::from_secs(60);

/// How often `send` asks again for something to read after a 429 or 503 that names a time to wait.
const RETRIES_MAX: u32 = 5;

/// The stack of a thread that opens a stream; twenty times what a handshake was seen to need.
const OPENER_STACK_BYTES: usize = 1 << 20;

/// How long one call of `send` waits in total between such attempts, so that a worker is not lost for minutes.
const RETRY_TOTAL_MAX: Duration = Duration::from_secs(30);

/// How the client behaves towards the server. What it talks to is in [`Config`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Requests of [`Client::send`] and everything built on it that are in flight at once; at least 1. Lists and
    /// watches are not counted: there is one for each resource.
    pub max_in_flight: usize,
    /// Requests per second, as the reference's `--kube-api-qps`; 0 for no limit.
    pub qps: f32,
    /// Requests at once above `qps`, as the reference's `--kube-api-burst`.
    pub burst: u32,
    /// The header `User-Agent`, by which an audit log finds this client.
    pub user_agent: String,
    /// The field manager of patches. Empty: the server takes the user agent up to the first `/`.
    pub field_manager: String,
}

impl Default for Options {
    /// 64 in flight, no limit of the rate, `gc-client/VERSION`, no field manager.
    fn default() -> Options {
        Options {
            max_in_flight: 64,
            qps: 0.0,
            burst: 0,
            user_agent: concat!("gc-client/", env!("CARGO_PKG_VERSION")).into(),
            field_manager: String::new(),
        }
    }
}

/// The verbs that a client of metadata needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Creates.
    Post,
    /// Replaces.
    Put,
    /// Changes a part.
    Patch,
    /// Deletes; may carry `DeleteOptions` in its body.
    Delete,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(http::Method::from(*self).as_str())
    }
}

impl From<Method> for http::Method {
    fn from(method: Method) -> http::Method {
        match method {
            Method::Get => http::Method::GET,
            Method::Post => http::Method::POST,
            Method::Put => http::Method::PUT,
            Method::Patch => http::Method::PATCH,
            Method::Delete => http::Method::DELETE,
        }
    }
}

/// A request as plain data.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The verb.
    pub method: Method,
    /// Path and query; starts with `/`.
    pub path: &'a str,
    /// The header `Accept`; empty for none.
    pub accept: &'a str,
    /// The header `Content-Type`; empty for none.
    pub content_type: &'a str,
    /// Empty for no body.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// A GET without a body.
    pub fn get(path: &'a str, accept: &'a str) -> Request<'a> {
        Request { method: Method::Get, path, accept, content_type: "", body: &[] }
    }

    /// Method and path without the query: how errors name the request.
    pub(crate) fn label(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }
}

/// An answer, read to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status code.
    pub code: u16,
    /// The header `Content-Type`; empty when absent.
    pub content_type: String,
    /// The header `Retry-After` when it is a number of seconds.
    pub retry_after: Option<Duration>,
    /// The header `Date`, which is the server's own time in whole seconds; empty when absent.
    pub date: String,
    /// At most 16 MiB: larger than any object or discovery document, smaller than what would hurt.
    pub body: Vec<u8>,
}

impl Response {
    /// Reads the body as an error answer.
    pub fn status(&self) -> Status {
        Status::from_body(self.code, self.retry_after, &self.body)
    }
}

/// A blocking client for one API server.
///
/// Clones are cheap and share connections, limits and credentials. Any number of threads may use one at once.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    base: String,
    gate: Gate,
    session: Session,
    turns: Turns,
    options: Options,
}

impl Client {
    /// Prepares connections; talks to nobody yet.
    ///
    /// # Errors
    ///
    /// When certificates, keys, token files or the proxy's address cannot be used (spec R7: file, field, mend).
    pub fn new(config: &Config, options: &Options) -> Result<Client, ConfigError> {
        let gate = Gate::new(options.max_in_flight, options.qps, options.burst);
        let session = Session::new(config, options)?;
        session::warn_of_risks(config);
        let (base, turns) = (config.server().to_owned(), Turns::new());
        let inner = Inner { base, gate, session, turns, options: options.clone() };
        Ok(Client { inner: Arc::new(inner) })
    }

    /// Sends a request and reads the answer; any HTTP status is `Ok`.
    ///
    /// A GET may be sent again: after a 429 or a 503 that names a time to wait, when that has passed, at most five times
    /// and 30 s in all; once after a 401, or when one side does not believe the other's certificate, if fresh credentials
    /// or authorities could be had; once when the server had just closed the connection.
    ///
    /// Whatever changes something is sent once, also where the server certainly has not acted: what it was decided by may
    /// not hold any more when the waiting is over (a run of a credential plugin, the time that a 429 asks for). Whoever
    /// decided it gets the answer or the error, fresh credentials are ready for the next request, and
    /// [`Response::retry_after`] says when that is welcome.
    ///
    /// # Errors
    ///
    /// [`Error::Transport`], [`Error::Credentials`], [`Error::Invalid`] and [`Error::ShutDown`].
    pub fn send(&self, request: &Request<'_>) -> Result<Response, Error> {
        let _permit = self.inner.gate.acquire()?;
        let mut retry = Retry::default();
        loop {
            let current = self.inner.session.current(&self.inner.gate)?;
            match self.inner.exchange(&current, request, Pool::Api) {
                Ok(response) => match self.inner.after_answer(&mut retry, &current, request, &response)? {
                    Some(wait) => self.inner.gate.pause(wait)?,
                    None => return Ok(response),
                },
                Err(_) if self.inner.gate.is_closed() => return Err(Error::ShutDown),
                Err(Failure::Stale(_)) if request.method == Method::Get && !retry.reconnected => {
                    retry.reconnected = true;
                }
                // Nothing was sent, or nothing of it was looked at.
                Err(Failure::Distrust(error)) => {
                    let is_renewed = self.inner.renew(&mut retry, &current, Renew::Files)?;
                    if !is_renewed || request.method != Method::Get {
                        return Err(error);
                    }
                }
                Err(failure) => return Err(failure.into_error()),
            }
        }
    }

    /// The same, but a status of 300 or more becomes [`Error::Status`]. (The API server redirects nobody.)
    pub fn send_ok(&self, request: &Request<'_>) -> Result<Response, Error> {
        let response = self.send(request)?;
        if response.code >= 300 { Err(Error::Status(Box::new(response.status()))) } else { Ok(response) }
    }

    /// Opens a list, or anything else that may be long and has an end; its body is read as it comes.
    ///
    /// `within` is the longest wait for the answer's head, and then for each next piece of the body; the body as a
    /// whole has no limit. Streams count neither against `max_in_flight` nor against the rate: there is one for each
    /// resource, and each has its own back-off. A 401 and a connection that the server had closed are tried once more,
    /// as in [`Client::send`]; nothing else is.
    ///
    /// # Errors
    ///
    /// As [`Client::send`], and [`Error::Status`] for a status of 300 or more.
    pub fn open(&self, path: &str, accept: &str, within: Duration) -> Result<Stream, Error> {
        self.open_in(Pool::List(within), path, accept)
    }

    /// The same for a watch, which stays open for minutes, mostly silent: its connection holds less memory.
    ///
    /// # Errors
    ///
    /// As [`Client::open`].
    pub fn open_watch(&self, path: &str, accept: &str, within: Duration) -> Result<Stream, Error> {
        self.open_in(Pool::Watch(within), path, accept)
    }

    fn open_in(&self, pool: Pool, path: &str, accept: &str) -> Result<Stream, Error> {
        let request = Request::get(path, accept);
        let mut retry = Retry::default();
        loop {
            let current = self.inner.session.current(&self.inner.gate)?;
            let response = match self.inner.start_apart(&current, &request, pool) {
                Ok(response) => response,
                Err(_) if self.inner.gate.is_closed() => return Err(Error::ShutDown),
                Err(Failure::Stale(_)) if !retry.reconnected => {
                    retry.reconnected = true;
                    continue;
                }
                Err(Failure::Distrust(_)) if self.inner.renew(&mut retry, &current, Renew::Files)? => {
                    continue;
                }
                Err(failure) => return Err(failure.into_error()),
            };
            if response.status().is_success() {
                let content_type = header(&response, http::header::CONTENT_TYPE);
                let reader = response.into_body().into_reader();
                return Ok(Stream { reader, content_type, client: self.clone(), _agents: current.agents });
            }
            let response = self.inner.finish(response, &request).map_err(Failure::into_error)?;
            if response.code == 401 && self.inner.renew(&mut retry, &current, Renew::All)? {
                continue;
            }
            return Err(Error::Status(Box::new(response.status())));
        }
    }

    /// Sends a request that changes nothing, and finds out by it whether the connections that are open still lead to the
    /// server: they may be dead without a sign, when a load balancer or a firewall has forgotten them.
    ///
    /// It goes out on the connection of the call before. If no answer comes `within` that time there, but one does on a
    /// new connection, all connections count as dead: they are closed, so that whoever reads or waits on one is woken by
    /// [`Error::Transport`] and tries again. A server that answers on neither is slow or away, and its connections
    /// are left alone. (HTTP/2 clients send a ping for this; over HTTP/1.1 a stream takes its whole connection.)
    ///
    /// # Errors
    ///
    /// As [`Client::send`], which also says when a request is sent again.
    pub fn probe(&self, request: &Request<'_>, within: Duration) -> Result<Response, Error> {
        let current = self.inner.session.current(&self.inner.gate)?;
        let mut outcome = self.inner.exchange(&current, request, Pool::Probe(within));
        if let Err(Failure::Slow(slow)) = outcome {
            let new = self.inner.session.unconnected()?;
            outcome = self.inner.exchange(&new, request, Pool::Probe(within));
            match &outcome {
                Ok(_) => {
                    log::warn!("{slow}; on a new connection an answer comes at once, so all are begun anew");
                    self.inner.session.reconnect(&new);
                }
                Err(_) if self.inner.gate.is_closed() => return Err(Error::ShutDown),
                Err(_) => return Err(slow),
            }
        }
        match outcome {
            Ok(response) if response.code < 300 => Ok(response),
            // Retries and credentials are the other one's business.
            _ => self.send(request),
        }
    }

    /// Wakes every blocked reader and sender; from now on every call gives [`Error::ShutDown`]. Final.
    pub fn shut_down(&self) {
        self.inner.gate.close();
        self.inner.turns.close();
        self.inner.session.shut_down();
    }

    /// Waits until a reader may list, and open its watch.
    pub(crate) fn turn(&self) -> Result<Turn<'_>, Error> {
        self.inner.turns.take()
    }

    /// Whom this talks to, for errors.
    pub(crate) fn host_and_port(&self) -> &str {
        host_and_port(&self.inner.base)
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.inner.gate.is_closed()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.options
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.inner.base).finish_non_exhaustive()
    }
}

/// What one call of `send` has already tried.
#[derive(Default)]
struct Retry {
    refreshed: bool,
    reconnected: bool,
    waits: u32,
    waited: Duration,
}

/// On which connections a request goes out, and the longest wait for the head of its answer and for each next piece
/// where that is not the usual one.
#[derive(Clone, Copy)]
enum Pool {
    Api,
    List(Duration),
    Watch(Duration),
    Probe(Duration),
}

/// Why no answer came.
enum Failure {
    /// An idle connection that the server had closed may be the reason.
    Stale(Error),
    /// One side does not believe the other's certificate.
    Distrust(Error),
    /// Nothing came in time.
    Slow(Error),
    Other(Error),
}

impl Failure {
    fn error(&self) -> &Error {
        match self {
            Failure::Stale(error)
            | Failure::Distrust(error)
            | Failure::Slow(error)
            | Failure::Other(error) => error,
        }
    }

    fn into_error(self) -> Error {
        match self {
            Failure::Stale(error)
            | Failure::Distrust(error)
            | Failure::Slow(error)
            | Failure::Other(error) => error,
        }
    }
}

impl Inner {
    fn exchange(&self, current: &Current, request: &Request<'_>, pool: Pool) -> Result<Response, Failure> {
        self.finish(self.start(current, request, pool)?, request)
    }

    /// Opens a stream on a thread that lasts only for that: a handshake goes 40 KB deep into the stack, which whoever
    /// reads the stream for minutes would keep, for hundreds of streams.
    fn start_apart(
        &self,
        current: &Current,
        request: &Request<'_>,
        pool: Pool,
    ) -> Result<http::Response<ureq::Body>, Failure> {
        let start = || self.start(current, request, pool);
        std::thread::scope(|scope| {
            let name = std::thread::current().name().unwrap_or("stream").to_owned();
            let opener = std::thread::Builder::new().name(name).stack_size(OPENER_STACK_BYTES);
            match opener.spawn_scoped(scope, start) {
                Ok(opener) => opener.join().unwrap_or_else(|_| {
                    Err(Failure::Other(invalid(request, "a fault in this program: it panicked")))
                }),
                // No more threads: it costs memory instead.
                Err(_) => start(),
            }
        })
    }

    /// Sends the request and waits for the head of the answer.
    fn start(
        &self,
        current: &Current,
        request: &Request<'_>,
        pool: Pool,
    ) -> Result<http::Response<ureq::Body>, Failure> {
        // Without the slash a path could turn the server's address into another host's.
        if !request.path.starts_with('/') {
            return Err(Failure::Other(invalid(request, "the path does not start with '/'")));
        }
        let mut builder = http::Request::builder()
            .method(http::Method::from(request.method))
            .uri(format!("{}{}", self.base, request.path));
        for (name, value) in
            [(http::header::ACCEPT, request.accept), (http::header::CONTENT_TYPE, request.content_type)]
        {
            if !value.is_empty() {
                builder = builder.header(name, value);
            }
        }
        for (name, value) in current.headers.iter() {
            builder = builder.header(name, value);
        }
        let asked = Instant::now();
        let unfit = |error: http::Error| Failure::Other(invalid(request, &error.to_string()));
        let (agent, within) = match pool {
            Pool::Api => (&current.agents.api, None),
            Pool::List(within) => (&current.agents.list, Some(within)),
            Pool::Watch(within) => (&current.agents.watch, Some(within)),
            Pool::Probe(within) => (&current.agents.probe, Some(within)),
        };
        let sent = match within {
            Some(within) => {
                let built = agent.configure_request(builder.body(()).map_err(unfit)?);
                agent.run(built.timeout_recv_response(Some(within)).timeout_per_read(Some(within)).build())
            }
            None if request.body.is_empty() => agent.run(builder.body(()).map_err(unfit)?),
            None => agent.run(builder.body(request.body).map_err(unfit)?),
        };
        let head = sent.map_err(|error| self.failure(request, &error));
        if log::log_enabled!(log::Level::Trace) {
            let ms = asked.elapsed().as_millis();
            match &head {
                Ok(head) => log::trace!("{}: {} after {ms} ms", request.label(), head.status().as_u16()),
                Err(failure) => log::trace!("{} after {ms} ms", failure.error()),
            }
        }
        head
    }

    /// Whether there are other credentials or authorities than those that were not taken; looked for once a call.
    fn renew(&self, retry: &mut Retry, current: &Current, what: Renew) -> Result<bool, Error> {
        if std::mem::replace(&mut retry.refreshed, true) {
            return Ok(false);
        }
        self.session.refresh(&self.gate, current.generation, what)
    }

    /// Reads the body to its end, so that the connection can be used again.
    fn finish(
        &self,
        response: http::Response<ureq::Body>,
        request: &Request<'_>,
    ) -> Result<Response, Failure> {
        let code = response.status().as_u16();
        let content_type = header(&response, http::header::CONTENT_TYPE);
        let retry_after = header(&response, http::header::RETRY_AFTER);
        let date = header(&response, http::header::DATE);
        let reader = response.into_body().into_with_config().limit(BODY_BYTES_MAX).reader();
        let body = read_within(reader, BODY_WITHIN).map_err(|error| self.failure(request, &error))?;
        Ok(Response { code, content_type, retry_after: self::retry_after(&retry_after), date, body })
    }

    fn failure(&self, request: &Request<'_>, error: &ureq::Error) -> Failure {
        let is_stale = matches!(error, ureq::Error::Io(e) if matches!(
            e.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionAborted
        ));
        let is_distrust = crate::tls::is_distrust(error);
        let is_slow = match error {
            ureq::Error::Timeout(_) => true,
            ureq::Error::Io(error) => is_timeout(error),
            _ => false,
        };
        let (label, cause) = (request.label(), crate::tls::explain(error));
        let error = match error {
            ureq::Error::BodyExceedsLimit(_) => {
                Error::Decode { request: label, cause: "the answer is larger than 16 MiB".into() }
            }
            ureq::Error::LargeResponseHeader(..) => {
                Error::Decode { request: label, cause: "the head of the answer is larger than 8 KiB".into() }
            }
            _ if has_too_many_headers(error) => {
                Error::Decode { request: label, cause: "the answer has more than 128 headers".into() }
            }
            _ => Error::Transport { request: format!("{label} at {}", host_and_port(&self.base)), cause },
        };
        match () {
            () if is_stale => Failure::Stale(error),
            () if is_distrust => Failure::Distrust(error),
            () if is_slow => Failure::Slow(error),
            () => Failure::Other(error),
        }
    }

    /// Whether, and after how long, to ask again.
    fn after_answer(
        &self,
        retry: &mut Retry,
        current: &Current,
        request: &Request<'_>,
        response: &Response,
    ) -> Result<Option<Duration>, Error> {
        let is_read = request.method == Method::Get;
        if response.code == 401 && !retry.refreshed {
            let is_renewed = self.renew(retry, current, Renew::All)?;
            return Ok((is_renewed && is_read).then_some(Duration::ZERO));
        }
        let is_asked_to_wait = is_read && matches!(response.code, 429 | 503);
        let Some(wait) = response.retry_after.filter(|_| is_asked_to_wait) else { return Ok(None) };
        if retry.waits >= RETRIES_MAX || retry.waited + wait > RETRY_TOTAL_MAX {
            return Ok(None);
        }
        retry.waits += 1;
        retry.waited += wait;
        Ok(Some(wait))
    }
}

/// Of a URL, which names its server by them.
fn host_and_port(base: &str) -> &str {
    let behind_scheme = base.split_once("://").map_or(base, |(_, rest)| rest);
    behind_scheme.split('/').next().unwrap_or_default()
}

/// Seconds as u32: more than a century is no time to wait but a mistake. The form with a date is not used by any API
/// server.
pub(crate) fn retry_after(header: &str) -> Option<Duration> {
    header.trim().parse::<u32>().ok().map(|s| Duration::from_secs(u64::from(s)))
}

fn read_within(mut reader: impl Read, within: Duration) -> Result<Vec<u8>, ureq::Error> {
    let started = Instant::now();
    let (mut body, mut piece) = (Vec::new(), [0; 8 << 10]);
    loop {
        let n = reader.read(&mut piece)?;
        if n == 0 {
            return Ok(body);
        }
        body.extend_from_slice(&piece[..n]);
        if started.elapsed() > within {
            return Err(ureq::Error::Timeout(ureq::Timeout::RecvBody));
        }
    }
}

fn header(response: &http::Response<ureq::Body>, name: http::HeaderName) -> String {
    response.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
}

fn invalid(request: &Request<'_>, cause: &str) -> Error {
    Error::Invalid { request: request.label(), cause: cause.to_owned() }
}

/// The body of a list or watch.
///
/// A read that waits longer than the `within` of [`Client::open`] fails with [`io::ErrorKind::TimedOut`]; no byte is
/// lost by that, and reading may go on. After [`Client::shut_down`] a read fails with
/// [`io::ErrorKind::ConnectionAborted`]. A body that ends before its time fails with
/// [`io::ErrorKind::UnexpectedEof`]; only a body that ended as announced gives 0.
pub struct Stream {
    reader: ureq::BodyReader<'static>,
    content_type: String,
    client: Client,
    /// Keeps the agents of a time before the credentials were changed within reach of `shut_down`.
    _agents: Arc<session::Agents>,
}

impl Stream {
    /// The header `Content-Type`; empty when absent.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let result = self.reader.read(buf);
        match result {
            // A shutdown can look like the end of the body.
            Ok(0) if !buf.is_empty() && self.client.inner.gate.is_closed() => Err(shut_down_io()),
            Ok(n) => Ok(n),
            Err(_) if self.client.inner.gate.is_closed() => Err(shut_down_io()),
            Err(error) => Err(plain_kind(error)),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("content_type", &self.content_type).finish_non_exhaustive()
    }
}

fn shut_down_io() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, Error::ShutDown.to_string())
}

/// ureq's parser has this limit, and no type of it that could be named here.
fn has_too_many_headers(error: &ureq::Error) -> bool {
    matches!(error, ureq::Error::Protocol(error) if error.to_string().contains("too many headers"))
}

/// ureq wraps its time-outs in an error of kind `Other`.
fn is_timeout(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
    error.kind() == io::ErrorKind::TimedOut || matches!(inner, Some(ureq::Error::Timeout(_)))
}

fn plain_kind(error: io::Error) -> io::Error {
    if is_timeout(&error) { io::Error::new(io::ErrorKind::TimedOut, "nothing came in time") } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r7_a_body_that_drips_is_given_up() {
        let error = read_within(io::repeat(b'x'), Duration::ZERO).unwrap_err();
        assert!(matches!(error, ureq::Error::Timeout(ureq::Timeout::RecvBody)), "{error}");
        assert_eq!(read_within(&b"whole"[..], Duration::from_secs(60)).unwrap(), b"whole");
    }
}
