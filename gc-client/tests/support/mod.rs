//! A small HTTP/1.1 server on loopback, with TLS if wanted. It answers by a function and remembers what it was asked.

// Each test binary uses its own part of this.
#![allow(dead_code)]
// A test that cannot set itself up fails, which is what unwrapping does.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Builder;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// For example `GET /version`.
    pub line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
    /// Which connection, counted from 0.
    pub connection: usize,
}

impl Seen {
    /// All values of a header, joined with `, `.
    pub fn header(&self, name: &str) -> String {
        let values = self.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str());
        values.collect::<Vec<_>>().join(", ")
    }

    /// The request as text, with the named headers only.
    pub fn text(&self, headers: &[&str]) -> String {
        let mut text = format!("{}\n", self.line);
        for name in headers {
            let _ = writeln!(text, "{name}: {}", self.header(name));
        }
        if !self.body.is_empty() {
            let _ = writeln!(text, "\n{}", self.body);
        }
        text
    }
}

/// Bytes to write, and what to do then.
pub enum Reply {
    /// Write and wait for the next request.
    Keep(Vec<u8>),
    /// Write and close the connection.
    Close(Vec<u8>),
    /// Write, and neither write more nor close until the client does.
    Hang(Vec<u8>),
}

/// A whole answer with a JSON body.
pub fn json(code: u16, extra_headers: &str, body: &str) -> Reply {
    let length = body.len();
    Reply::Keep(
        format!("HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{extra_headers}\r\n{body}")
            .into_bytes(),
    )
}

pub struct Server {
    address: String,
    scheme: &'static str,
    seen: Arc<Mutex<Vec<Seen>>>,
    stopping: Arc<AtomicBool>,
}

type Handler = Arc<dyn Fn(&Seen) -> Reply + Send + Sync>;

impl Server {
    pub fn plain(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Server {
        Server::start(None, Arc::new(handler))
    }

    pub fn tls(config: ServerConfig, handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Server {
        Server::start(Some(Arc::new(config)), Arc::new(handler))
    }

    fn start(tls: Option<Arc<ServerConfig>>, handler: Handler) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (seen, stopping) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let server = Server { address, scheme, seen: seen.clone(), stopping: stopping.clone() };
        let accept = move || {
            for (connection, stream) in listener.incoming().enumerate() {
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                let (tls, handler, seen) = (tls.clone(), handler.clone(), seen.clone());
                // A client that goes away, or that does not like the certificate, ends the connection; its test sees why.
                let serve = move || {
                    let _ = serve(stream.unwrap(), tls, &handler, &seen, connection);
                };
                Builder::new().name("connection".into()).spawn(serve).unwrap();
            }
        };
        Builder::new().name("server".into()).spawn(accept).unwrap();
        server
    }

    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    pub fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap()
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The requests as lines of text.
    pub fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Wakes the accept loop.
        let _ = TcpStream::connect(&self.address);
    }
}

fn serve(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    handler: &Handler,
    seen: &Mutex<Vec<Seen>>,
    connection: usize,
) -> io::Result<()> {
    match tls {
        None => talk(BufReader::new(stream), handler, seen, connection),
        Some(config) => {
            let conn = ServerConnection::new(config).map_err(io::Error::other)?;
            talk(BufReader::new(StreamOwned::new(conn, stream)), handler, seen, connection)
        }
    }
}

/// Reading and writing over one reader: `TcpStream` and the TLS stream both are `Read + Write`.
fn talk<S: Read + Write>(
    mut stream: BufReader<S>,
    handler: &Handler,
    seen: &Mutex<Vec<Seen>>,
    connection: usize,
) -> io::Result<()> {
    loop {
        let Some(request) = read_request(&mut stream, connection)? else { return Ok(()) };
        seen.lock().unwrap().push(request.clone());
        let (bytes, close, hang) = match handler(&request) {
            Reply::Keep(bytes) => (bytes, false, false),
            Reply::Close(bytes) => (bytes, true, false),
            Reply::Hang(bytes) => (bytes, false, true),
        };
        stream.get_mut().write_all(&bytes)?;
        stream.get_mut().flush()?;
        if hang {
            io::copy(&mut stream, &mut io::sink())?;
        }
        if close || hang {
            return Ok(());
        }
    }
}

fn read_request(stream: &mut impl BufRead, connection: usize) -> io::Result<Option<Seen>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let line = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        stream.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(n, _)| n == "content-length").and_then(|(_, v)| v.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body)?;
    Ok(Some(Seen { line, headers, body: String::from_utf8(body).unwrap(), connection }))
}
