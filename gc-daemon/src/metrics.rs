//! Metrics, in the reference's names where it has them.
//!
//! What happens is counted where it happens, through the methods of [`Metrics`]. What merely stands (queue depths, the
//! size of the graph) is not pushed at every change: the [`Sources`] are asked when somebody scrapes.
//!
//! Every label has a closed set of values, or one that grows only with the kinds the API server serves. No object's
//! name, namespace or UID is ever a label.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gc_client::ApiResource;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, MetricEncoder, NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::lag::WatchLag;
use crate::ttl::metrics::TtlMetrics;

/// The reference's names for its work queues, the label `name` of the metrics `workqueue_…`.
pub mod queue_names {
    /// Objects to look at: delete, unblock or leave.
    pub const ATTEMPT_TO_DELETE: &str = "garbage_collector_attempt_to_delete";
    /// Owners whose dependents are to be orphaned.
    pub const ATTEMPT_TO_ORPHAN: &str = "garbage_collector_attempt_to_orphan";
    /// Changes on their way from the watches to the graph.
    pub const GRAPH_CHANGES: &str = "garbage_collector_graph_changes";
}

/// The content type of [`Metrics::open_metrics`].
pub const OPEN_METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The content type of [`Metrics::prometheus_text`].
pub const PROMETHEUS_TEXT_CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// Where the numbers come from that are read at each scrape: two ordinary closures. Each is called once a scrape and
/// should return within milliseconds.
pub struct Sources {
    /// Each work queue by its name, see [`queue_names`].
    pub queues: Box<dyn Fn() -> Vec<(&'static str, QueueNumbers)> + Send + Sync>,
    /// The graph and what belongs to it.
    pub graph: Box<dyn Fn() -> GraphNumbers + Send + Sync>,
}

/// One reading of a work queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueNumbers {
    /// Items that are ready or, added again while in work, will be: client-go's meaning of depth.
    pub depth: usize,
    /// Items that became ready since the start.
    pub adds_total: u64,
    /// Delayed adds since the start.
    pub retries_total: u64,
    /// How long items waited, in seconds. `None` where nobody measures it.
    pub queue_duration: Option<gc_queue::Histogram>,
    /// How long items were worked on, in seconds. `None` where nobody measures it.
    pub work_duration: Option<gc_queue::Histogram>,
    /// Seconds that the items now in work have been there, summed up.
    pub unfinished_work_seconds: f64,
    /// Seconds that the longest of them has been there.
    pub longest_running_processor_seconds: f64,
}

impl From<gc_queue::Snapshot> for QueueNumbers {
    fn from(snapshot: gc_queue::Snapshot) -> QueueNumbers {
        QueueNumbers {
            depth: snapshot.depth + snapshot.pending_again,
            adds_total: snapshot.adds_total,
            retries_total: snapshot.retries_total,
            queue_duration: Some(snapshot.queue_duration_seconds),
            work_duration: Some(snapshot.work_duration_seconds),
            unfinished_work_seconds: snapshot.unfinished_work_seconds,
            longest_running_processor_seconds: snapshot.longest_running_processor_seconds,
        }
    }
}

/// One reading of the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphNumbers {
    /// Nodes of objects that a watch has reported.
    pub observed_nodes: usize,
    /// Nodes of owners that are only named by their dependents.
    pub virtual_nodes: usize,
    /// Estimated memory of the graph, in bytes.
    pub bytes: usize,
    /// Coordinates in the absent-owner cache (spec G10).
    pub absent_owner_cache_entries: usize,
    /// Times since the start that an owner was read as absent while the graph held it as alive (spec D16).
    pub absence_unconfirmed_total: u64,
}

/// All metrics of one daemon. Nothing is global: two daemons in one process do not mix.
#[derive(Debug)]
pub struct Metrics {
    /// How far the watches are behind.
    pub watch_lag: WatchLag,
    /// What the TTL controllers do.
    pub ttl: TtlMetrics,
    registry: Registry,
    sync_errors: Counter,
    requests: Family<RequestLabels, Counter>,
    request_duration: Family<Label, Histogram, fn() -> Histogram>,
    deletes: Family<Label, Counter>,
    patches: Family<Label, Counter>,
    patch_conflicts: Family<Label, Counter>,
    watch_restarts: Counter,
    watch_failures: Counter,
    events_dropped: Counter,
    kinds: Arc<Mutex<Kinds>>,
}

/// The watched kinds by `resource.group`. One entry a kind, so that a preferred version that moves replaces the line
/// of the old one.
type Kinds = BTreeMap<String, (KindLabels, bool)>;

/// One label whose values are known when the program is written.
type Label = [(&'static str, &'static str); 1];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    group: String,
    version: String,
    resource: String,
}

impl Metrics {
    /// Registers everything. The process is taken to start now.
    pub fn new(sources: Sources) -> Metrics {
        // The library appends `_total` to the name of each counter by itself.
        let mut registry = Registry::default();
        let metrics = Metrics {
            sync_errors: counter(
                &mut registry,
                "garbagecollector_controller_resources_sync_error",
                "Number of garbage collector resources sync errors",
            ),
            requests: counters(
                &mut registry,
                "gc_requests",
                "Reads, writes and events sent to the API server, by verb and HTTP status; <error> when no answer came",
            ),
            request_duration: Family::new_with_constructor(request_duration),
            watch_lag: WatchLag::default(),
            deletes: counters(&mut registry, "gc_deletes", "Objects deleted, by propagation policy"),
            patches: counters(&mut registry, "gc_patches", "Objects patched, by what the patch does"),
            patch_conflicts: counters(
                &mut registry,
                "gc_patch_conflicts",
                "Patches that the server refused because the object had changed",
            ),
            watch_restarts: counter(&mut registry, "gc_watch_restarts", "Watches that had to list anew"),
            watch_failures: counter(
                &mut registry,
                "gc_watch_failures",
                "Lists and watches that failed and were tried again",
            ),
            events_dropped: counter(
                &mut registry,
                "gc_events_dropped",
                "Events not posted: too many waiting, too many on one object, or refused by the server",
            ),
            kinds: Arc::default(),
            ttl: TtlMetrics::register(&mut registry),
            registry,
        };
        metrics.with_collectors(sources)
    }

    fn with_collectors(mut self, sources: Sources) -> Metrics {
        self.registry.register(
            "rest_client_request_duration_seconds",
            "Request latency in seconds by verb, the wait for a place and for the rate limit included",
            self.request_duration.clone(),
        );
        self.registry.register(
            "gc_watch_lag_seconds",
            "Seconds from the server's answer to a delete of this program until a watch had shown it to the graph",
            self.watch_lag.histogram(),
        );
        let start_time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.registry.register_collector(Box::new(AtScrape {
            sources,
            kinds: Arc::clone(&self.kinds),
            start_time_seconds: start_time.as_millis() as f64 / 1e3,
        }));
        self
    }

    /// Discovery or the set of watches could not be brought up to date.
    pub fn resources_sync_error(&self) {
        self.sync_errors.inc();
    }

    /// A request was answered with this status code, or with none: 0. The verb is one of a few fixed words. The
    /// duration is the caller's wait, as client-go measures it.
    pub fn request(&self, verb: &'static str, code: u16, duration: Duration) {
        let code = match code {
            // No server has reason to send another; one that does must not make the table grow.
            100..=599 => code.to_string(),
            0 => "<error>".to_owned(),
            _ => "<other>".to_owned(),
        };
        self.requests.get_or_create(&RequestLabels { verb, code }).inc();
        self.request_duration.get_or_create(&[("verb", verb)]).observe(duration.as_secs_f64());
    }

    /// An object was deleted with this propagation policy, as the API spells it.
    pub fn deleted(&self, policy: &str) {
        let policy = match policy {
            "Background" => "Background",
            "Foreground" => "Foreground",
            "Orphan" => "Orphan",
            _ => "<other>",
        };
        self.deletes.get_or_create(&[("policy", policy)]).inc();
    }

    /// An object was patched: `owner_references` or `finalizers`.
    pub fn patched(&self, op: &'static str) {
        self.patches.get_or_create(&[("op", op)]).inc();
    }

    /// A patch was refused because the object had changed (kubernetes/kubernetes#64536).
    pub fn patch_conflict(&self, op: &'static str) {
        self.patch_conflicts.get_or_create(&[("op", op)]).inc();
    }

    /// A watch could not go on from its version and listed anew.
    pub fn watch_restarted(&self) {
        self.watch_restarts.inc();
    }

    /// A list or a watch failed and will be tried again.
    pub fn watch_failed(&self) {
        self.watch_failures.inc();
    }

    /// An event was not posted.
    pub fn event_dropped(&self) {
        self.events_dropped.inc();
    }

    /// Says of a watched kind whether its objects have been listed.
    pub fn kind_synced(&self, resource: &ApiResource, synced: bool) {
        let ApiResource { group, version, resource, .. } = resource;
        let dot = if group.is_empty() { "" } else { "." };
        let labels =
            KindLabels { group: group.clone(), version: version.clone(), resource: resource.clone() };
        lock(&self.kinds).insert(format!("{resource}{dot}{group}"), (labels, synced));
    }

    /// Forgets a kind that is no longer watched, as `resource.group`.
    pub fn forget_kind(&self, kind: &str) {
        lock(&self.kinds).remove(kind);
    }

    /// Everything in the OpenMetrics text format, for scrapers that ask for it.
    pub fn open_metrics(&self) -> Result<String, fmt::Error> {
        let mut page = String::new();
        text::encode(&mut page, &self.registry)?;
        Ok(page)
    }

    /// Everything in the older Prometheus text format 0.0.4, which every scraper reads.
    pub fn prometheus_text(&self) -> Result<String, fmt::Error> {
        let mut page = String::new();
        prometheus_text::encode(&mut page, &self.registry)?;
        Ok(page)
    }
}

fn lock(kinds: &Mutex<Kinds>) -> MutexGuard<'_, Kinds> {
    // No code panics while it holds the lock, and each change is a single step: the table is whole.
    kinds.lock().unwrap_or_else(PoisonError::into_inner)
}

/// client-go's buckets, in seconds. Its label `host` is left out: there is one server.
fn request_duration() -> Histogram {
    Histogram::new([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0])
}

fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}

fn counters<L>(registry: &mut Registry, name: &str, help: &str) -> Family<L, Counter>
where
    L: EncodeLabelSet + Clone + std::hash::Hash + Eq + fmt::Debug + Send + Sync + 'static,
{
    let family = Family::default();
    registry.register(name, help, family.clone());
    family
}

/// The numbers that are read when somebody scrapes.
struct AtScrape {
    sources: Sources,
    kinds: Arc<Mutex<Kinds>>,
    start_time_seconds: f64,
}

impl fmt::Debug for AtScrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtScrape")
    }
}

impl Collector for AtScrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        encode_queues(&mut encoder, &(self.sources.queues)())?;
        encode_graph(&mut encoder, &(self.sources.graph)())?;
        encode_kinds(&mut encoder, &lock(&self.kinds))?;
        gauge(
            &mut encoder,
            "process_start_time_seconds",
            "Start time of the process since the Unix epoch in seconds",
            &self.start_time_seconds,
        )?;
        if let Some(bytes) = read_proc("/proc/self/status").and_then(|text| resident_bytes(&text)) {
            gauge(&mut encoder, "process_resident_memory_bytes", "Resident memory size in bytes", &bytes)?;
        }
        if let Some(seconds) = read_proc("/proc/self/stat").and_then(|text| cpu_seconds(&text)) {
            let help = "Total user and system CPU time spent in seconds";
            encoder
                .encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, f64>(&seconds, None)?;
        }
        Ok(())
    }
}

type Queues = [(&'static str, QueueNumbers)];

/// The seven metrics of client-go's work queue, with its help texts' meaning and its buckets.
fn encode_queues(encoder: &mut DescriptorEncoder<'_>, queues: &Queues) -> Result<(), fmt::Error> {
    per_queue(encoder, "depth", "Current depth of workqueue", MetricType::Gauge, queues, |out, queue| {
        out.encode_gauge(&queue.depth)
    })?;
    let help = "Total number of adds handled by workqueue";
    per_queue(encoder, "adds", help, MetricType::Counter, queues, |out, queue| {
        out.encode_counter::<NoLabelSet, _, f64>(&queue.adds_total, None)
    })?;
    let help = "Total number of retries handled by workqueue";
    per_queue(encoder, "retries", help, MetricType::Counter, queues, |out, queue| {
        out.encode_counter::<NoLabelSet, _, f64>(&queue.retries_total, None)
    })?;
    let help = "How long in seconds an item stays in workqueue before being requested";
    per_queue(encoder, "queue_duration_seconds", help, MetricType::Histogram, queues, |out, queue| {
        encode_histogram(out, queue.queue_duration.as_ref())
    })?;
    let help = "How long in seconds processing an item from workqueue takes";
    per_queue(encoder, "work_duration_seconds", help, MetricType::Histogram, queues, |out, queue| {
        encode_histogram(out, queue.work_duration.as_ref())
    })?;
    let help =
        "Seconds of work that is in progress and not yet in work_duration; large values mean stuck workers";
    per_queue(encoder, "unfinished_work_seconds", help, MetricType::Gauge, queues, |out, queue| {
        out.encode_gauge(&queue.unfinished_work_seconds)
    })?;
    let help = "How many seconds the longest running processor for workqueue has been running";
    per_queue(encoder, "longest_running_processor_seconds", help, MetricType::Gauge, queues, |out, queue| {
        out.encode_gauge(&queue.longest_running_processor_seconds)
    })
}

/// One metric `workqueue_…` with a value for each queue.
fn per_queue(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric_type: MetricType,
    queues: &Queues,
    encode: impl Fn(&mut MetricEncoder<'_>, &QueueNumbers) -> Result<(), fmt::Error>,
) -> Result<(), fmt::Error> {
    let name = format!("workqueue_{name}");
    let mut metric = encoder.encode_descriptor(&name, help, None, metric_type)?;
    for (queue, numbers) in queues {
        encode(&mut metric.encode_family(&[("name", *queue)])?, numbers)?;
    }
    Ok(())
}

fn encode_histogram(
    out: &mut MetricEncoder<'_>,
    histogram: Option<&gc_queue::Histogram>,
) -> Result<(), fmt::Error> {
    let Some(histogram) = histogram else { return Ok(()) };
    let bounds = gc_queue::Histogram::BOUNDS_SECONDS.into_iter().chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(histogram.counts()).collect();
    out.encode_histogram::<NoLabelSet>(histogram.sum_seconds(), histogram.count(), &buckets, None)
}

fn encode_graph(encoder: &mut DescriptorEncoder<'_>, graph: &GraphNumbers) -> Result<(), fmt::Error> {
    let help = "Nodes of the ownership graph; virtual ones are owners that no watch has reported";
    let mut nodes = encoder.encode_descriptor("gc_graph_nodes", help, None, MetricType::Gauge)?;
    nodes.encode_family(&[("state", "observed")])?.encode_gauge(&graph.observed_nodes)?;
    nodes.encode_family(&[("state", "virtual")])?.encode_gauge(&graph.virtual_nodes)?;
    gauge(encoder, "gc_graph_bytes", "Estimated memory of the ownership graph in bytes", &graph.bytes)?;
    let help = "Owners remembered as absent";
    gauge(encoder, "gc_absent_owner_cache_entries", help, &graph.absent_owner_cache_entries)?;
    let help =
        "Times an owner was read as absent while the graph held it as alive, so that nothing was deleted";
    encoder
        .encode_descriptor("gc_absence_unconfirmed", help, None, MetricType::Counter)?
        .encode_counter::<NoLabelSet, _, f64>(&graph.absence_unconfirmed_total, None)
}

fn encode_kinds(encoder: &mut DescriptorEncoder<'_>, kinds: &Kinds) -> Result<(), fmt::Error> {
    let help = "Whether the objects of a watched kind have been listed";
    let mut metric = encoder.encode_descriptor("gc_kind_synced", help, None, MetricType::Gauge)?;
    for (labels, synced) in kinds.values() {
        metric.encode_family(labels)?.encode_gauge(&i64::from(*synced))?;
    }
    Ok(())
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: &impl EncodeGaugeValue,
) -> Result<(), fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(value)
}

/// `None` on systems without /proc: those metrics are then left out.
fn read_proc(path: &str) -> Option<String> {
    // The command's name, which anybody may set, need not be UTF-8.
    std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// From /proc/self/status: the line `VmRSS:   1234 kB`.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// From /proc/self/stat: utime and stime, the 14th and 15th field, in hundredths of a second (Linux fixes USER_HZ at
/// 100 for everything it tells programs). The second field is the command in brackets and may hold anything, brackets
/// and blanks included, so the fields are counted from the last closing bracket.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, after_command) = stat.rsplit_once(')')?;
    let mut fields = after_command.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()?.checked_add(fields.next()?.parse().ok()?)?;
    Some(ticks as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect_file;

    fn sources() -> Sources {
        let queues = || {
            let mut queue = gc_queue::WorkQueue::<u8>::new(gc_queue::RateLimiter::default());
            let empty = QueueNumbers::from(queue.metrics(Duration::ZERO));
            vec![
                (queue_names::ATTEMPT_TO_DELETE, QueueNumbers { depth: 3, adds_total: 9, ..empty.clone() }),
                (queue_names::ATTEMPT_TO_ORPHAN, QueueNumbers { unfinished_work_seconds: 0.25, ..empty }),
                (queue_names::GRAPH_CHANGES, QueueNumbers { adds_total: 1 << 40, ..QueueNumbers::default() }),
            ]
        };
        let graph = || GraphNumbers {
            observed_nodes: 105_000,
            virtual_nodes: 2,
            bytes: 16_800_000,
            absent_owner_cache_entries: 500,
            absence_unconfirmed_total: 7,
        };
        Sources { queues: Box::new(queues), graph: Box::new(graph) }
    }

    fn resource(group: &str, version: &str, resource: &str) -> ApiResource {
        ApiResource {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
            kind: "Any".into(),
            namespaced: true,
            preferred: true,
            can_delete: true,
            can_list: true,
            can_watch: true,
        }
    }

    /// Metrics where everything has happened.
    fn busy() -> Metrics {
        let metrics = Metrics::new(sources());
        metrics.resources_sync_error();
        metrics.request("DELETE", 200, Duration::from_millis(3));
        metrics.request("DELETE", 200, Duration::from_millis(25));
        metrics.request("DELETE", 200, Duration::from_secs(61));
        metrics.deleted("Background");
        metrics.patched("finalizers");
        metrics.patch_conflict("finalizers");
        metrics.watch_restarted();
        metrics.watch_failed();
        metrics.event_dropped();
        metrics.kind_synced(&resource("example.com", "v1", "gone"), true);
        metrics.forget_kind("gone.example.com");
        metrics.kind_synced(&resource("", "v1", "pods"), true);
        metrics.kind_synced(&resource("example.com", "v1beta1", "widgets"), true);
        metrics.kind_synced(&resource("example.com", "v1", "widgets"), false);
        metrics
    }

    /// The numbers of this very process, replaced by N.
    fn without_process(page: &str) -> String {
        let line = |line: &str| match line.split_once(' ') {
            Some((name, _)) if name.starts_with("process_") => format!("{name} N\n"),
            _ => format!("{line}\n"),
        };
        page.lines().map(line).collect()
    }

    #[test]
    fn r2_the_page_in_open_metrics() {
        let page = busy().open_metrics().unwrap();
        expect_file!["../tests/metrics.openmetrics.txt"].assert_eq(&without_process(&page));
    }

    #[test]
    fn r2_the_page_in_prometheus_text() {
        let page = busy().prometheus_text().unwrap();
        expect_file!["../tests/metrics.prometheus.txt"].assert_eq(&without_process(&page));
    }

    #[test]
    fn r2_dashboards_for_the_reference_find_their_names() {
        for page in [busy().open_metrics().unwrap(), busy().prometheus_text().unwrap()] {
            for name in [
                "workqueue_depth{name=\"garbage_collector_attempt_to_delete\"} 3",
                "workqueue_adds_total{name=\"garbage_collector_attempt_to_delete\"} 9",
                "workqueue_retries_total{name=\"garbage_collector_attempt_to_orphan\"} 0",
                "workqueue_unfinished_work_seconds{name=\"garbage_collector_attempt_to_orphan\"} 0.25",
                "garbagecollector_controller_resources_sync_error_total 1",
            ] {
                assert!(page.lines().any(|line| line == name), "{name}\n{page}");
            }
        }
    }

    #[test]
    fn r2_status_codes_cannot_make_the_table_grow() {
        let metrics = Metrics::new(sources());
        (0..=u16::MAX).for_each(|code| metrics.request("GET", code, Duration::ZERO));
        let page = metrics.prometheus_text().unwrap();
        assert_eq!(page.lines().filter(|line| line.starts_with("gc_requests_total{")).count(), 502);
    }

    #[test]
    fn r2_what_proc_says_is_read_and_nonsense_is_left_out() {
        assert_eq!(resident_bytes("Name:\tgc\nVmRSS:\t    8192 kB\nX: 1\n"), Some(8_388_608));
        for nonsense in ["", "VmRSS:", "VmRSS: 1 MB", "VmRSS: -1 kB", "VmRSS: 99999999999999999999 kB"] {
            assert_eq!(resident_bytes(nonsense), None, "{nonsense}");
        }
        assert_eq!(cpu_seconds("1 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0"), Some(3.0));
        for nonsense in
            ["", ")", "1 (a) S 1 2", "1 (a) S 1 2 3 4 5 6 7 8 9 10 x 50", "1 (a) S 1 2 3 4 5 6 7 8 9 10 250"]
        {
            assert_eq!(cpu_seconds(nonsense), None, "{nonsense}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn r2_this_process_has_memory_and_a_start() {
        let page = Metrics::new(sources()).prometheus_text().unwrap();
        let value = |name: &str| -> f64 {
            let line = page.lines().find_map(|line| line.strip_prefix(name)).expect(name);
            line.trim().parse().expect(name)
        };
        assert!(value("process_resident_memory_bytes ") > 100_000.0);
        assert!(value("process_start_time_seconds ") > 1.7e9);
        assert!(value("process_cpu_seconds_total ") >= 0.0);
    }
}
