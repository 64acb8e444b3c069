//! A proxy between the daemon and the API server that is told to misbehave. It passes bytes on and understands none of
//! them, so that TLS goes through it; where in a list, a watch line or a handshake it stops is up to chance.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::failure::{Doing, Failure};
use crate::random::Random;

/// How soon a connection on which nothing happens notices what has changed.
const TICK: Duration = Duration::from_millis(20);
/// A thread that passes bytes on needs little.
const STACK_BYTES: usize = 128 << 10;
const PIECE_BYTES: usize = 16 << 10;
/// No budget.
const UNLIMITED: u64 = u64::MAX;

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Passes everything on.
    Pass,
    /// Closes every connection, and each new one at once.
    Cut,
    /// Accepts connections and bytes, and passes nothing on; when this ends, what was held up goes on its way.
    Stall,
    /// Closes each connection after a random number of bytes from the server.
    Truncate,
    /// Passes nothing on in either direction after a random number of bytes from the server, and never again on that
    /// connection, which stays open.
    FallSilent,
}

/// A running proxy. Dropping it cuts every connection.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    upstream: SocketAddr,
    state: Mutex<State>,
    is_stopping: AtomicBool,
    accepted: AtomicU64,
}

struct State {
    mode: Mode,
    random: Random,
    connections: Vec<Arc<Connection>>,
}

/// One connection of the daemon's, and the one to the server behind it.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// How many more bytes from the server are passed on.
    left: AtomicU64,
    /// Nothing is passed on any more.
    is_silent: AtomicBool,
    is_closed: AtomicBool,
}

impl Proxy {
    /// A proxy on a free port of the loopback interface that passes everything on.
    ///
    /// # Errors
    ///
    /// When no port or no thread can be had.
    pub fn start(upstream: SocketAddr, seed: u64) -> Result<Proxy, Failure> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing(|| "no port for the proxy".into())?;
        let address = listener.local_addr().doing(|| "no port for the proxy".into())?;
        let state = State { mode: Mode::Pass, random: Random::new(seed), connections: Vec::new() };
        let shared = Arc::new(Shared {
            upstream,
            state: Mutex::new(state),
            is_stopping: AtomicBool::new(false),
            accepted: AtomicU64::new(0),
        });
        let accept = {
            let shared = shared.clone();
            move || shared.accept(&listener)
        };
        let thread = thread::Builder::new().name("proxy".into()).spawn(accept);
        let accepting = Some(thread.doing(|| "cannot start a thread".into())?);
        Ok(Proxy { address, shared, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections it has accepted.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Changes what it does, for the connections that there are and for those to come.
    pub fn set(&self, mode: Mode) {
        let mut state = self.shared.lock();
        state.mode = mode;
        state.connections.retain(|connection| !connection.is_closed());
        let connections = state.connections.clone();
        for connection in connections {
            connection.take_budget(mode, &mut state.random);
        }
    }

    /// From now on nothing is passed on for the connections that there are; they stay open.
    pub fn forget(&self) {
        for connection in &self.shared.lock().connections {
            connection.is_silent.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        self.set(Mode::Cut);
        // Wakes the thread that accepts.
        TcpStream::connect(self.address).ok();
        if let Some(thread) = self.accepting.take() {
            thread.join().ok();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Shared>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.is_stopping.load(Ordering::Relaxed) {
                return;
            }
            self.accepted.fetch_add(1, Ordering::Relaxed);
            // One that cannot be served is closed, which the client must bear like everything else here.
            let Ok(client) = client else { continue };
            if self.lock().mode != Mode::Cut {
                self.serve(client).ok();
            }
        }
    }

    fn serve(self: &Arc<Shared>, client: TcpStream) -> std::io::Result<()> {
        let server = TcpStream::connect(self.upstream)?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(TICK))?;
        }
        let connection = Arc::new(Connection {
            client,
            server,
            left: AtomicU64::new(UNLIMITED),
            is_silent: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        });
        {
            let mut state = self.lock();
            connection.take_budget(state.mode, &mut state.random);
            state.connections.push(connection.clone());
        }
        for is_from_server in [false, true] {
            let (shared, connection) = (self.clone(), connection.clone());
            let thread = thread::Builder::new().name("proxied".into()).stack_size(STACK_BYTES);
            thread.spawn(move || {
                // It ends when either side does.
                shared.pass_on(&connection, is_from_server).ok();
                connection.close();
            })?;
        }
        Ok(())
    }

    /// Moves bytes in one direction until one side ends.
    fn pass_on(&self, connection: &Connection, is_from_server: bool) -> std::io::Result<()> {
        let (mut from, mut to) = match is_from_server {
            true => (&connection.server, &connection.client),
            false => (&connection.client, &connection.server),
        };
        let mut piece = [0; PIECE_BYTES];
        while !connection.is_closed() {
            let count = match from.read(&mut piece) {
                // What has fallen silent does not say that the server has gone either.
                Ok(0) if is_from_server && connection.is_silent.load(Ordering::Relaxed) => {
                    thread::sleep(TICK);
                    continue;
                }
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(error) => return Err(error),
            };
            while self.lock().mode == Mode::Stall && !connection.is_closed() {
                thread::sleep(TICK);
            }
            let count = if is_from_server { self.spend(connection, count) } else { count };
            if !connection.is_silent.load(Ordering::Relaxed) {
                to.write_all(&piece[..count])?;
            }
            if connection.left.load(Ordering::Relaxed) == 0 {
                match self.lock().mode {
                    Mode::FallSilent => connection.is_silent.store(true, Ordering::Relaxed),
                    Mode::Pass | Mode::Cut | Mode::Stall | Mode::Truncate => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// How many of so many bytes may still be passed on.
    fn spend(&self, connection: &Connection, count: usize) -> usize {
        let left = connection.left.load(Ordering::Relaxed);
        if left == UNLIMITED {
            return count;
        }
        let count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        connection.left.fetch_sub(count as u64, Ordering::Relaxed);
        count
    }
}

impl Connection {
    fn take_budget(&self, mode: Mode, random: &mut Random) {
        let left = match mode {
            // From the first bytes of the handshake to the middle of a long list.
            Mode::Truncate | Mode::FallSilent => {
                let magnitude = 6 + random.below(12);
                random.below(1 << magnitude)
            }
            Mode::Pass | Mode::Cut | Mode::Stall => UNLIMITED,
        };
        self.left.store(left, Ordering::Relaxed);
        if mode == Mode::Cut {
            self.close();
        }
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        // Either may be closed already.
        self.client.shutdown(Shutdown::Both).ok();
        self.server.shutdown(Shutdown::Both).ok();
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let serve = move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let echo = move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).ok();
                thread::Builder::new().name("echo".into()).spawn(echo).unwrap();
            }
        };
        thread::Builder::new().name("echoes".into()).spawn(serve).unwrap();
        address
    }

    fn connect(proxy: &Proxy) -> TcpStream {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    fn says_back(stream: &mut TcpStream, bytes: &[u8]) -> bool {
        let mut back = vec![0; bytes.len()];
        stream.write_all(bytes).is_ok() && stream.read_exact(&mut back).is_ok() && back == bytes
    }

    #[test]
    fn what_is_held_up_goes_on_its_way_and_what_is_forgotten_does_not() {
        let proxy = Proxy::start(echo(), 7).unwrap();
        let mut stream = connect(&proxy);
        assert!(says_back(&mut stream, b"before"));
        proxy.set(Mode::Stall);
        stream.write_all(b"held up").unwrap();
        stream.set_read_timeout(Some(TICK * 5)).unwrap();
        assert!(stream.read(&mut [0; 8]).is_err());
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        proxy.set(Mode::Pass);
        let mut back = [0; 7];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"held up");

        proxy.forget();
        stream.set_read_timeout(Some(TICK * 5)).unwrap();
        assert!(!says_back(&mut stream, b"forgotten"));
        assert!(says_back(&mut connect(&proxy), b"another"));
        assert_eq!(proxy.accepted(), 2);
    }

    #[test]
    fn connections_are_cut_and_truncated() {
        let proxy = Proxy::start(echo(), 7).unwrap();
        let mut stream = connect(&proxy);
        assert!(says_back(&mut stream, b"before"));
        proxy.set(Mode::Cut);
        assert!(!says_back(&mut stream, b"after"));
        assert!(!says_back(&mut connect(&proxy), b"new"));
        proxy.set(Mode::Truncate);
        let mut all = Vec::new();
        let mut stream = connect(&proxy);
        let mut writer = stream.try_clone().unwrap();
        let write = move || writer.write_all(&[b'x'; 1 << 20]).ok();
        thread::Builder::new().name("writer".into()).spawn(write).unwrap();
        stream.read_to_end(&mut all).ok();
        assert!(all.len() < 1 << 18, "{}", all.len());
        proxy.set(Mode::Pass);
        assert!(says_back(&mut connect(&proxy), b"again"));
    }
}
