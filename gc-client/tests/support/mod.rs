//! A small HTTP/1.1 server on loopback, with TLS if wanted. It answers by a function and remembers what it was asked.

// Each test binary uses its own part of this.
#![allow(dead_code)]
// A test that cannot set itself up fails, which is what unwrapping does.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Builder;

pub mod pki;

use gc_client::ApiResource;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// ConfigMaps, as discovery gives them.
pub fn config_maps() -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".into(),
        resource: "configmaps".into(),
        kind: "ConfigMap".into(),
        namespaced: true,
        preferred: true,
        can_delete: true,
        can_list: true,
        can_watch: true,
    }
}

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
    pub tls: Tls,
}

/// What the TLS handshake said about the client.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The name that the client wants to talk to (SNI).
    pub server_name: Option<String>,
    /// The client's certificate.
    pub client_certificate: Option<Vec<u8>>,
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
        None => talk(BufReader::new(stream), handler, seen, connection, |_| Tls::default()),
        Some(config) => {
            let conn = ServerConnection::new(config).map_err(io::Error::other)?;
            talk(BufReader::new(StreamOwned::new(conn, stream)), handler, seen, connection, |stream| {
                let client_certificate = stream.conn.peer_certificates().and_then(|chain| chain.first());
                Tls {
                    server_name: stream.conn.server_name().map(str::to_owned),
                    client_certificate: client_certificate.map(|der| der.to_vec()),
                }
            })
        }
    }
}

/// Reading and writing over one reader: `TcpStream` and the TLS stream both are `Read + Write`.
fn talk<S: Read + Write>(
    mut stream: BufReader<S>,
    handler: &Handler,
    seen: &Mutex<Vec<Seen>>,
    connection: usize,
    tls: impl Fn(&S) -> Tls,
) -> io::Result<()> {
    loop {
        let mut request = match read_request(&mut stream, connection) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            // As Go's server does with what is no HTTP.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return stream.get_mut().write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
            }
            Err(error) => return Err(error),
        };
        request.tls = tls(stream.get_ref());
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
    Ok(Some(Seen { line, headers, body: String::from_utf8(body).unwrap(), connection, tls: Tls::default() }))
}

/// A directory for one test, removed when the test ends.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A plugin `./plugin` that runs this shell script, and the lines of a kubeconfig's user that call it.
    ///
    /// The command is a link to the shell and the script its argument: an executable that is written and then run
    /// fails now and then, when another test forks in between ("text file busy").
    pub fn plugin(&self, script: &str) -> String {
        let script = self.write("plugin.sh", script);
        std::os::unix::fs::symlink("/bin/sh", self.path("plugin")).unwrap();
        format!(
            "exec:\n  apiVersion: client.authentication.k8s.io/v1\n  interactiveMode: Never\n  command: ./plugin\n  args:\n  - {}",
            script.display()
        )
    }

    /// A kubeconfig of one context, from the lines of the cluster and of the user.
    pub fn kubeconfig(&self, cluster: &str, user: &str) -> PathBuf {
        let indented = |text: &str| text.lines().map(|line| format!("    {line}\n")).collect::<String>();
        self.write(
            "config",
            &format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                 contexts:\n- name: c\n  context: {{cluster: prod, user: dev}}\n\
                 clusters:\n- name: prod\n  cluster:\n{}users:\n- name: dev\n  user:\n{}",
                indented(cluster),
                indented(user)
            ),
        )
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
