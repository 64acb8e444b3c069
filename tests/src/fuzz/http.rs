//! Answers as they come over a connection.

use std::cell::OnceCell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use gc_client::wire::Format;
use gc_client::{Client, Config, Options};

use super::wire::{self, Listed, Made, places};
use super::{Dice, Memory, Target, ensure, ensure_one_line, outline};

/// The server closes each connection behind its answer, so that nobody ever waits this long.
const WITHIN: Duration = Duration::from_secs(30);

/// The answer to a list: head, framing and body.
pub(super) const ANSWER: Target = Target {
    name: "http",
    promise: "a list whose answer is cut anywhere, head, chunk or body, is an error, and never a part of the list",
    corpus: answers,
    words: &[
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 18446744073709551615\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Connection: close\r\n",
        b"Content-Type: application/json\r\n",
        b"\r\n",
        b"\n",
        b"0\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"5;x=y\r\n",
        b"Content-Encoding: gzip\r\n",
        b"Location: /x\r\n",
        b"304",
        b"204",
        b"410",
        b"401",
    ],
    memory: Memory { fixed_bytes: 2 << 20, per_input_byte: 600 },
    check: |input| {
        let whole = ask(input);
        match &whole {
            Err(error) => {
                ensure_one_line(error)?;
                return Ok(outline(error));
            }
            Ok((_, Err(error))) => return Ok(outline(error)),
            Ok((_, Ok(_))) => {}
        }
        for at in places(input).into_iter().take(8) {
            let cut = ask(input.get(..at).unwrap_or_default());
            let is_error = !matches!(&cut, Ok((_, Ok(_))));
            ensure(is_error || cut == whole, || format!("cut after {at} bytes: {cut:?} and not {whole:?}"))?;
        }
        Ok("a list".into())
    },
};

/// What the client makes of an answer of these bytes.
fn ask(answer: &[u8]) -> Result<Listed, String> {
    thread_local! {
        static SERVER: OnceCell<Option<Server>> = const { OnceCell::new() };
    }
    SERVER.with(|server| {
        let server = server.get_or_init(Server::start).as_ref().ok_or("no port of loopback is free")?;
        *server.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer.to_vec();
        let mut stream =
            server.client.open("/api/v1/pods", "application/json", WITHIN).map_err(|e| e.to_string())?;
        match Format::from_content_type(stream.content_type()) {
            Some(format) => Ok(wire::list(format, &mut stream)),
            None => Err("another content type".into()),
        }
    })
}

/// A server that gives the same bytes to everybody, and the client that asks it.
struct Server {
    client: Client,
    address: SocketAddr,
    answer: Arc<Mutex<Vec<u8>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> Option<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        let address = listener.local_addr().ok()?;
        let client = Client::new(&Config::plain(&format!("http://{address}")), &Options::default()).ok()?;
        let answer = Arc::new(Mutex::new(Vec::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let (theirs, over) = (answer.clone(), is_over.clone());
        let thread = Builder::new()
            .name("fuzz-http".into())
            .spawn(move || {
                while let Ok((stream, _)) = listener.accept()
                    && !over.load(Ordering::SeqCst)
                {
                    let answer = theirs.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    // A client that has seen enough goes away.
                    let _ = serve(stream, &answer);
                }
            })
            .ok()?;
        Some(Server { client, address, answer, is_over, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: TcpStream, answer: &[u8]) -> std::io::Result<()> {
    stream.set_read_timeout(Some(WITHIN))?;
    let (mut head, mut byte) = (Vec::new(), [0; 512]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte)? {
            0 => return Ok(()),
            count => head.extend_from_slice(byte.get(..count).unwrap_or_default()),
        }
    }
    stream.write_all(answer)
}

fn answers() -> Vec<Vec<u8>> {
    let made = Made::from(&mut Dice::new(
        &[3, 7, 1, 9, 2, 200, 30, 4, 4, 90, 17, 1, 77, 3, 3, 9, 120, 5, 66, 8].repeat(8),
    ));
    let bodies = [
        ("application/json", made.json_list().to_string().into_bytes()),
        ("application/vnd.kubernetes.protobuf", made.protobuf_list()),
    ];
    let mut answers = Vec::new();
    for (content_type, body) in bodies {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n");
        let with = |rest: &str, body: &[u8]| [head.as_bytes(), rest.as_bytes(), body].concat();
        answers.push(with(&format!("Content-Length: {}\r\n\r\n", body.len()), &body));
        answers.push(with("Connection: close\r\n\r\n", &body));
        let mut chunks = Vec::new();
        for piece in body.chunks(40) {
            chunks.extend(format!("{:x}\r\n", piece.len()).into_bytes());
            chunks.extend_from_slice(piece);
            chunks.extend_from_slice(b"\r\n");
        }
        chunks.extend_from_slice(b"0\r\n\r\n");
        answers.push(with("Transfer-Encoding: chunked\r\n\r\n", &chunks));
    }
    answers.push(b"HTTP/1.1 410 Gone\r\nContent-Type: application/json\r\nContent-Length: 2\r\nRetry-After: 1\r\n\r\n{}".to_vec());
    answers
}
