//! A server that is no API server: it answers discovery, and then more than anybody asked for.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::chaos::stage::{Figures, Place, sleep};
use crate::chaos::{IDLE_CPU_MAX, PEAK_BYTES_MAX};
use crate::collector::{Launcher, Program};
use crate::failure::{Doing, Failure};
use crate::kubeconfig;
use crate::made_up::{Asked, MadeUp, Then, head};
use crate::poll::{Look, eventually};
use crate::vitals;

/// How long the bodies are.
const BODY_BYTES: u64 = 300 << 20;
/// The first object of the long list, which owns all others (and itself, which does no harm): only what has owners is
/// worth a place in the graph.
const OWNER: &str = "00000000-0000-4000-8000-000000000000";
/// Of one object in the long list, as a real one with its managed fields.
const OBJECT_BYTES: usize = 1_600;
/// A list of this length is read in seconds; the rest is for slow machines, on which collection starts without it after
/// 30 s.
const DEADLINE: Duration = Duration::from_secs(120);
/// What a list costs in processor time.
const LIST_CPU_MAX: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(3);

/// What the server answers to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    /// Some hundred thousand objects, in one page though pages were asked for.
    OfManyObjects,
    /// One object with one endless string.
    OfOneObject,
}

/// Memory stays bounded whatever a list holds: objects that are whole are kept in the graph's few bytes each, one that is
/// too large is not.
///
/// # Errors
///
/// When memory or processor time do not stay bounded, or a daemon ends.
pub fn long_list(place: &mut Place<'_>) -> Result<Figures, Failure> {
    let mut figures = Figures::default();
    for list in [List::OfManyObjects, List::OfOneObject] {
        let server = Server::start(list)?;
        let dir = place.dir.join(format!("{list:?}"));
        std::fs::create_dir(&dir).doing(|| format!("cannot create {}", dir.display()))?;
        let config = dir.join("kubeconfig");
        kubeconfig::write(&config, &format!("http://{}", server.made_up.address), None, None)?;
        let mut launcher = Launcher::new(Program::Daemon(place.daemon.into()), config, &dir);
        let start = Instant::now();
        let mut collector = launcher.spawn(20)?;
        let pid = collector.process().id();
        eventually("the list has been sent", DEADLINE, || {
            collector.check_alive()?;
            let sent = server.shared.sent.load(Ordering::Relaxed);
            let is_listed = server.shared.is_watched.load(Ordering::Relaxed);
            Ok(match list {
                List::OfManyObjects if is_listed => Look::Done(()),
                List::OfOneObject if server.shared.is_refused.load(Ordering::Relaxed) => Look::Done(()),
                _ => Look::NotYet(format!("{sent} bytes sent")),
            })
        })?;
        let (took, cpu) = (start.elapsed(), vitals::cpu(pid)?);
        figures.recovered = (figures.recovered.0.max(took), DEADLINE);
        figures.faults.push(format!(
            "{list:?}: {} MiB in {:.1} s, {:.1} s of CPU, peak {} MiB",
            server.shared.sent.load(Ordering::Relaxed) >> 20,
            took.as_secs_f64(),
            cpu.as_secs_f64(),
            vitals::peak_bytes(pid)? >> 20
        ));
        if cpu > LIST_CPU_MAX {
            return Err(Failure::new(format!("a list cost {cpu:?}")));
        }
        sleep(IDLE)?;
        let idle_from = vitals::cpu(pid)?;
        sleep(IDLE)?;
        let share = vitals::cpu(pid)?.saturating_sub(idle_from).as_secs_f64() / IDLE.as_secs_f64();
        figures.idle_cpu = Some(figures.idle_cpu.unwrap_or_default().max(share));
        figures.peak_bytes = figures.peak_bytes.max(vitals::peak_bytes(pid)?);
        collector.check_alive()?;
        let log = std::fs::read_to_string(collector.process().log()).unwrap_or_default();
        if let Some(line) = log.lines().find(|line| line.contains("panicked")) {
            return Err(Failure::new(line));
        }
        if share > IDLE_CPU_MAX && list == List::OfManyObjects {
            return Err(Failure::new(format!("an idle daemon uses {:.1} % of a processor", share * 100.0)));
        }
    }
    if figures.peak_bytes > PEAK_BYTES_MAX {
        return Err(Failure::new(format!("a peak of {} MiB", figures.peak_bytes >> 20)));
    }
    Ok(figures)
}

struct Server {
    made_up: MadeUp,
    shared: Arc<Shared>,
}

struct Shared {
    list: List,
    /// Bytes of lists.
    sent: AtomicU64,
    /// A list was read to its end, and a watch begun after it.
    is_watched: AtomicBool,
    /// A list was cut off by the client.
    is_refused: AtomicBool,
}

impl Server {
    fn start(list: List) -> Result<Server, Failure> {
        let shared = Arc::new(Shared {
            list,
            sent: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
        });
        let answering = shared.clone();
        let made_up = MadeUp::start(move |asked| answering.answer(asked))?;
        Ok(Server { made_up, shared })
    }
}

impl Shared {
    fn answer(&self, Asked { query, writer }: Asked<'_, '_>) -> io::Result<Then> {
        head(writer, "application/json")?;
        if query.contains("watch=true") {
            self.is_watched.store(true, Ordering::Relaxed);
            return Ok(Then::Silence);
        }
        let sent = self.send_list(writer).and_then(|()| writer.flush());
        if sent.is_err() {
            self.is_refused.store(true, Ordering::Relaxed);
        }
        sent.map(|()| Then::Close)
    }

    fn send_list(&self, writer: &mut impl Write) -> io::Result<()> {
        let mut send = |bytes: &[u8]| {
            self.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            writer.write_all(bytes)
        };
        send(br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":["#)?;
        match self.list {
            List::OfManyObjects => {
                let filler = "x".repeat(OBJECT_BYTES);
                let count = BODY_BYTES / OBJECT_BYTES as u64;
                for number in 0..count {
                    let comma = if number == 0 { "" } else { "," };
                    send(
                        format!(
                            r#"{comma}{{"metadata":{{"name":"configmap-{number}","namespace":"n","uid":"00000000-0000-4000-8000-{number:012x}","resourceVersion":"8","ownerReferences":[{{"apiVersion":"v1","kind":"ConfigMap","name":"configmap-0","uid":"{OWNER}"}}],"annotations":{{"a":"{filler}"}}}}}}"#
                        )
                        .as_bytes(),
                    )?;
                }
            }
            List::OfOneObject => {
                send(br#"{"metadata":{"uid":"u","resourceVersion":"8","name":""#)?;
                let piece = [b'x'; 64 << 10];
                for _ in 0..BODY_BYTES / piece.len() as u64 {
                    send(&piece)?;
                }
                send(br#""}}"#)?;
            }
        }
        send(b"]}")
    }
}
