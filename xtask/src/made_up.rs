//! A server that is no API server: it answers discovery of one kind, ConfigMaps, and makes up the rest. It has no store,
//! so that its lists may be longer than any machine here could hold.

use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::{Doing, Failure};

/// How often a quiet watch looks whether the server stops.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A running server; it stops when dropped.
pub struct MadeUp {
    /// Where it listens, on 127.0.0.1.
    pub address: SocketAddr,
    is_stopping: Arc<AtomicBool>,
}

/// What was asked for of the one kind: the query of its collection.
pub struct Asked<'a, 's> {
    /// For example `limit=500&continue=7`.
    pub query: &'a str,
    /// Where the answer goes, its head included.
    pub writer: &'a mut BufWriter<&'s TcpStream>,
}

/// What follows after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The next request on the same connection.
    Next,
    /// The connection's end.
    Close,
    /// Nothing more, and no end either.
    Silence,
}

impl Drop for MadeUp {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        TcpStream::connect(self.address).ok();
    }
}

impl MadeUp {
    /// Starts one whose lists and watches are answered by `answer`.
    ///
    /// # Errors
    ///
    /// When there is no port or no thread.
    pub fn start<A>(answer: A) -> Result<MadeUp, Failure>
    where
        A: Fn(Asked<'_, '_>) -> io::Result<Then> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing(|| "no port".into())?;
        let address = listener.local_addr().doing(|| "no port".into())?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (answer, stopping) = (Arc::new(answer), is_stopping.clone());
        let accept = move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopping.load(Ordering::Relaxed) {
                    return;
                }
                let (answer, stopping) = (answer.clone(), stopping.clone());
                // A client that goes away ends its connection.
                let serve = move || serve(&stream, &*answer, &stopping).ok();
                thread::Builder::new().name("made-up".into()).spawn(serve).ok();
            }
        };
        thread::Builder::new().name("made-up".into()).spawn(accept).doing(|| "no thread".into())?;
        Ok(MadeUp { address, is_stopping })
    }
}

fn serve(
    stream: &TcpStream,
    answer: &impl Fn(Asked<'_, '_>) -> io::Result<Then>,
    is_stopping: &AtomicBool,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut header = String::from("-");
        while header.trim() != "" {
            header.clear();
            reader.read_line(&mut header)?;
        }
        let path = line.split(' ').nth(1).unwrap_or_default();
        let mut writer = BufWriter::with_capacity(64 << 10, stream);
        let then = match path.split_once('?').unwrap_or((path, "")) {
            ("/api/v1/configmaps", query) => answer(Asked { query, writer: &mut writer })?,
            (path, _) => discovery(&mut writer, path)?,
        };
        writer.flush()?;
        match then {
            Then::Next => {}
            Then::Close => return Ok(()),
            Then::Silence => {
                while !is_stopping.load(Ordering::Relaxed) {
                    thread::sleep(LOOK_EVERY);
                }
                return Ok(());
            }
        }
    }
}

/// The head of an answer whose end is the end of the connection.
///
/// # Errors
///
/// When the client is gone.
pub fn head(writer: &mut impl Write, content_type: &str) -> io::Result<()> {
    write!(writer, "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nConnection: close\r\n\r\n")
}

/// A whole answer.
///
/// # Errors
///
/// When the client is gone.
pub fn whole(writer: &mut impl Write, content_type: &str, body: &[u8]) -> io::Result<()> {
    let length = body.len();
    write!(writer, "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n")?;
    writer.write_all(body)
}

fn discovery(writer: &mut impl Write, path: &str) -> io::Result<Then> {
    let body: Value = match path {
        "/api" => json!({ "kind": "APIVersions", "versions": ["v1"] }),
        "/apis" => json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [] }),
        "/api/v1" => json!({ "kind": "APIResourceList", "groupVersion": "v1", "resources": [{
            "name": "configmaps", "kind": "ConfigMap", "namespaced": true,
            "verbs": ["delete", "get", "list", "patch", "watch"],
        }] }),
        "/version" => json!({ "gitVersion": "v1.36.3" }),
        _ => {
            write!(writer, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
            return Ok(Then::Next);
        }
    };
    whole(writer, "application/json", body.to_string().as_bytes())?;
    Ok(Then::Next)
}
