//! The command line: flags, their bounds, and the one line that a bad flag gets.
//!
//! Flags carry the reference's names where kube-controller-manager has them (spec R1). Parsing does no work: it
//! opens no file and no socket.

use std::ffi::OsString;
use std::fmt;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser};

/// The kinds that are never watched, whatever the flags say (spec S1): Kubernetes' own events come by the thousand,
/// expire by themselves and own nothing.
pub const ALWAYS_IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// More workers than this only queue up behind the server's own limits on concurrent writes.
const CONCURRENT_GC_SYNCS_MAX: u32 = 1_000;
/// The same for jobs whose TTL has expired.
const TTL_WORKERS_MAX: u32 = 1_000;
/// Ten thousand requests, a second or at once, are more than any API server answers; a larger figure is a slip of the finger.
const REQUESTS_MAX: u32 = 10_000;
/// A list longer than this belongs in fewer words: somebody generated it by mistake.
const IGNORED_RESOURCES_MAX: usize = 1_000;
/// klog knows no higher level either.
const VERBOSITY_MAX: u32 = 10;
/// A value is repeated in an error message up to this many characters, so that the message stays one line.
const SHOWN_VALUE_MAX: usize = 80;
/// …and a sentence of clap's own, which may repeat a value, after so many.
const SHOWN_LINE_MAX: usize = 400;

const ABOUT: &str = "\
gc-daemon deletes what its owner leaves behind: it is the Kubernetes garbage collector as a program of its own. It \
watches every kind that can be deleted, follows metadata.ownerReferences, and carries out background, foreground and \
orphan deletion. With --controllers it deletes finished jobs with a TTL, too. It never deletes without the UID and the \
resourceVersion that it decided on.

Run one instance against an API server whose own collector is off: kube-controller-manager \
--controllers=*,-garbage-collector-controller, or an API server that never had one (envtest, kwokctl without its controller manager).";

const EXAMPLES: &str = "\
Exit status: 0 after a signal or --help, 1 when it cannot go on, 2 for a bad flag.

Examples:
  Beside a test API server, saying each write and its reason:
    gc-daemon --kubeconfig ./envtest.kubeconfig -v 2

  In a cluster, gentle with a small API server, leaving one kind alone:
    gc-daemon --kube-api-qps 50 --kube-api-burst 100 --gc-ignored-resources widgets.example.com

  Finished jobs as well, Volcano's among them; and when is each of them due?
    gc-daemon --controllers='*' --ttl-config ttl.yaml
    gc-daemon --ttl-list

  What is it doing, and why does that object not go?
    curl 'http://127.0.0.1:10262/readyz?verbose'
    curl 'http://127.0.0.1:10262/debug/controllers/garbagecollector/graph?uid=UID' | dot -Tsvg";

/// What the command line asks for, checked.
///
/// ```
/// use gc_daemon::flags::Flags;
///
/// let flags = Flags::from_args(["gc-daemon", "--concurrent-gc-syncs=5", "-v", "2"]).unwrap();
/// assert_eq!((flags.concurrent_gc_syncs, flags.verbosity), (5, 2));
///
/// let exit = Flags::from_args(["gc-daemon", "--concurrent-gc-syncs", "0"]).unwrap_err();
/// assert_eq!(exit.code, 2);
/// assert_eq!(exit.text, "gc-daemon: --concurrent-gc-syncs 0: must be a whole number from 1 to 1000; 20 is the default");
/// ```
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(
    name = "gc-daemon",
    version,
    about = "The Kubernetes garbage collector as a program of its own.",
    long_about = ABOUT,
    after_help = EXAMPLES,
    args_override_self = true,
    disable_help_subcommand = true
)]
pub struct Flags {
    /// The kubeconfig file to use.
    ///
    /// Without it, the files named by $KUBECONFIG are merged; without those, the service account is used when running
    /// in a pod; without that, ~/.kube/config.
    #[arg(long, value_name = "FILE", help_heading = "Which API server", value_parser = path)]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use; without it, its current-context.
    #[arg(long, value_name = "NAME", help_heading = "Which API server", value_parser = context_name)]
    pub context: Option<String>,

    /// How many objects are worked on at the same time, 1 to 1000.
    ///
    /// As many workers delete, and as many orphan. More finish a large cascade sooner and load the API server more;
    /// the figure also bounds the requests in flight.
    #[arg(long, value_name = "N", help_heading = "Collecting", default_value = "20", allow_negative_numbers = true, value_parser = concurrent_gc_syncs)]
    pub concurrent_gc_syncs: usize,

    /// Kinds to leave alone: `resource.group`, or `resource` for the core group.
    ///
    /// Separated by commas; the flag may be given several times, and the lists add up. Events are always left alone.
    /// Objects of these kinds are neither watched nor deleted; as owners they are read when one of their dependents
    /// is looked at. Name a kind here when it comes by the million and is never owned.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Collecting",
        value_delimiter = ',',
        action = clap::ArgAction::Append,
        value_parser = group_resource
    )]
    pub gc_ignored_resources: Vec<GroupResource>,

    /// Which controllers run: their names, `*` for all, `-NAME` for all but one.
    ///
    /// garbage-collector-controller (or garbagecollector), ttl-after-finished-controller (or ttl-after-finished) and
    /// volcano-gc-controller. Separated by commas; the flag may be given several times, and the lists add up.
    ///
    /// Only the collector runs by default: where kube-controller-manager or Volcano's controller manager runs, it
    /// deletes finished jobs already. Two that do it harm no job, but they do the work twice.
    #[arg(
        long,
        value_name = "LIST",
        help_heading = "Controllers",
        default_value = "garbage-collector-controller",
        value_delimiter = ',',
        allow_hyphen_values = true,
        action = clap::ArgAction::Append,
        value_parser = controller_choice
    )]
    pub controllers: Vec<ControllerChoice>,

    /// How many finished jobs are worked on at the same time, 1 to 1000.
    ///
    /// By ttl-after-finished-controller: `batch/v1` and what --ttl-config adds.
    #[arg(long, value_name = "N", help_heading = "Finished jobs", default_value = "5", allow_negative_numbers = true, value_parser = ttl_syncs)]
    pub concurrent_ttl_after_finished_syncs: usize,

    /// The same for Volcano's jobs, 1 to 1000.
    ///
    /// By volcano-gc-controller; Volcano's own name for it.
    #[arg(long, value_name = "N", help_heading = "Finished jobs", default_value = "1", allow_negative_numbers = true, value_parser = volcano_syncs)]
    pub worker_threads_for_gc: usize,

    /// A file of profiles: other kinds with TTLs, defaults and floors.
    ///
    /// YAML; docs/ttl.md describes it. A profile for jobs.batch or jobs.batch.volcano.sh changes the one that is built in.
    #[arg(long, value_name = "FILE", help_heading = "Finished jobs", value_parser = path)]
    pub ttl_config: Option<PathBuf>,

    /// Print all jobs with phase, finish time, TTL and when each is due, and exit.
    ///
    /// It only reads, and works on any cluster, whoever deletes the jobs there. --controllers does not matter.
    #[arg(long, help_heading = "Finished jobs")]
    pub ttl_list: bool,

    /// Requests per second to the API server, 0 to 10000; 0 sets no limit.
    ///
    /// The number in flight is bounded without it, and a server that answers 429 with Retry-After is obeyed, so a
    /// limit is needed only where others must be protected from this program.
    #[arg(long, value_name = "N", help_heading = "Load on the API server", default_value = "0", allow_negative_numbers = true, value_parser = qps)]
    pub kube_api_qps: f32,

    /// Requests that may go out at once before --kube-api-qps holds them back, 0 to 10000.
    ///
    /// 0 means one second's worth.
    #[arg(long, value_name = "N", help_heading = "Load on the API server", default_value = "0", allow_negative_numbers = true, value_parser = burst)]
    pub kube_api_burst: u32,

    /// Whether several instances elect one that acts: true or false.
    ///
    /// Not built yet: true is refused, so that nobody runs two instances believing that one of them waits.
    #[arg(
        long,
        value_name = "BOOL",
        help_heading = "Running it",
        num_args = 0..=1,
        default_value = "false",
        default_missing_value = "true",
        value_parser = boolean
    )]
    pub leader_elect: bool,

    /// Where /metrics, /healthz, /livez, /readyz and the debug graph are served; 0 turns them off.
    ///
    /// An IP address and a port; port 0 takes any free one, and the log says which. Until serving with TLS is built,
    /// only loopback addresses are taken: the graph names every object of the cluster.
    #[arg(
        long,
        value_name = "ADDRESS",
        help_heading = "Running it",
        default_value = "127.0.0.1:10262",
        value_parser = metrics_bind_address
    )]
    pub metrics_bind_address: MetricsBindAddress,

    /// How much to log, 0 to 10, as klog counts.
    ///
    /// 0: starting, stopping, warnings and errors. 2: each write and why. 4: discovery and watches. 5: each decision.
    /// 8: each request. Tokens are never logged, at any level.
    #[arg(short, long = "v", value_name = "N", help_heading = "Logging", default_value = "0", allow_negative_numbers = true, value_parser = verbosity)]
    pub verbosity: u8,

    /// How a line of the log looks: text or json.
    ///
    /// json writes one object a line, with ts, level, target and msg. The log goes to standard error.
    #[arg(long, value_name = "FORMAT", help_heading = "Logging", default_value = "text", value_parser = log_format)]
    pub log_format: LogFormat,
}

impl Flags {
    /// Parses this process's own command line. `Err` holds what to print and the exit code, `--help` and
    /// `--version` included.
    pub fn from_env() -> Result<Flags, Exit> {
        Flags::from_args(std::env::args_os())
    }

    /// Parses a command line; the first argument is the program's name.
    pub fn from_args<I, T>(args: I) -> Result<Flags, Exit>
    where
        I: IntoIterator<Item = T>,
        T: Into<OsString> + Clone,
    {
        let matches = Flags::command().try_get_matches_from(args).map_err(|e| Exit::from_clap(&e))?;
        let mut flags = Flags::from_arg_matches(&matches).map_err(|e| Exit::from_clap(&e))?;
        flags.check_together()?;
        // An empty value is the reference's way to say "not given".
        flags.kubeconfig = flags.kubeconfig.filter(|path| !path.as_os_str().is_empty());
        flags.context = flags.context.filter(|name| !name.is_empty());
        flags.ttl_config = flags.ttl_config.filter(|path| !path.as_os_str().is_empty());
        Ok(flags)
    }

    /// Whether a controller is to run, as the reference understands the list: its own name decides, the first time it
    /// is there; else `*` does.
    pub fn runs(&self, controller: Controller) -> bool {
        let named = self.controllers.iter().find(|choice| choice.controller == Some(controller));
        match named {
            Some(choice) => choice.runs,
            None => self.controllers.iter().any(|choice| choice.controller.is_none()),
        }
    }

    fn check_together(&self) -> Result<(), Exit> {
        if !self.ttl_list && Controller::ALL.iter().all(|controller| !self.runs(*controller)) {
            return Err(Exit::bad_flag("--controllers: leaves nothing to run; name a controller, or *"));
        }
        if self.leader_elect {
            return Err(Exit::bad_flag(
                "--leader-elect true: leader election is not built yet; run one instance, without this flag",
            ));
        }
        if self.kube_api_burst > 0 && self.kube_api_qps == 0.0 {
            let burst = self.kube_api_burst;
            return Err(Exit::bad_flag(&format!(
                "--kube-api-burst {burst}: has no effect without a rate; set --kube-api-qps as well"
            )));
        }
        let count = self.gc_ignored_resources.len();
        if count > IGNORED_RESOURCES_MAX {
            return Err(Exit::bad_flag(&format!(
                "--gc-ignored-resources: names {count} kinds; name at most {IGNORED_RESOURCES_MAX}"
            )));
        }
        Ok(())
    }
}

/// A text to print and the exit code to end with: `--help`, `--version`, or a bad flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Without a final newline. One line when the code is not 0.
    pub text: String,
    /// 0 for help and version, 2 for a bad flag.
    pub code: u8,
}

impl Exit {
    /// Prints the text (standard output for code 0, else standard error) and gives the code to return from `main`.
    pub fn report(&self) -> ExitCode {
        // A reader that went away (`gc-daemon --help | head -1`) is no error of ours.
        let _ = match self.code {
            0 => writeln!(std::io::stdout(), "{}", self.text),
            _ => writeln!(std::io::stderr(), "{}", self.text),
        };
        ExitCode::from(self.code)
    }

    fn bad_flag(what: &str) -> Exit {
        Exit { text: format!("gc-daemon: {what}"), code: 2 }
    }

    /// Puts clap's many-lined findings into the one line of the house: flag, value, what is wrong, the mend.
    fn from_clap(error: &clap::Error) -> Exit {
        let context = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
        // Clap names the flag together with its value's placeholder: `--v <N>`.
        let argument = context(ContextKind::InvalidArg);
        let flag = argument.split([' ', '[']).next().unwrap_or_default();
        let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Exit { text: error.to_string().trim_end().to_owned(), code: 0 }
            }
            ErrorKind::ValueValidation => {
                let value = shown(&context(ContextKind::InvalidValue));
                Exit::bad_flag(&format!("{flag} {value}: {cause}"))
            }
            ErrorKind::InvalidValue => {
                Exit::bad_flag(&format!("{flag}: needs a value; gc-daemon --help says which"))
            }
            ErrorKind::UnknownArgument if argument.starts_with('-') => {
                Exit::bad_flag(&format!("{}: no such flag; gc-daemon --help lists them", shown(&argument)))
            }
            ErrorKind::UnknownArgument => Exit::bad_flag(&format!(
                "{}: is no flag and belongs to none; flags begin with --, gc-daemon --help lists them",
                shown(&argument)
            )),
            ErrorKind::InvalidUtf8 => {
                Exit::bad_flag("an argument is not UTF-8; write it in plain characters")
            }
            ErrorKind::TooManyValues => {
                let value = shown(&context(ContextKind::InvalidValue));
                Exit::bad_flag(&format!("{flag} {value}: {flag} takes no value"))
            }
            _ => {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
                // Clap repeats what it was given, whatever that is.
                let printable = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
                Exit::bad_flag(&first.chars().take(SHOWN_LINE_MAX).map(printable).collect::<String>())
            }
        }
    }
}

/// A resource of a group, as `--gc-ignored-resources` names it and as Kubernetes prints it: `deployments.apps`,
/// or `pods` in the core group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupResource {
    /// Empty for the core group.
    pub group: String,
    /// The plural of the path, in lower case.
    pub resource: String,
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// What this program runs, by the names that the reference and Volcano give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Deletes what its owner leaves behind.
    GarbageCollector,
    /// Deletes `batch/v1` Jobs, and what --ttl-config names, some time after they have finished.
    TtlAfterFinished,
    /// The same for Volcano's Jobs.
    VolcanoGc,
}

impl Controller {
    /// All of them.
    pub const ALL: [Controller; 3] =
        [Controller::GarbageCollector, Controller::TtlAfterFinished, Controller::VolcanoGc];

    /// As `--controllers` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Controller::GarbageCollector => "garbage-collector-controller",
            Controller::TtlAfterFinished => "ttl-after-finished-controller",
            Controller::VolcanoGc => "volcano-gc-controller",
        }
    }

    /// The name that kube-controller-manager had before 1.28 and still takes.
    fn alias(self) -> Option<&'static str> {
        match self {
            Controller::GarbageCollector => Some("garbagecollector"),
            Controller::TtlAfterFinished => Some("ttl-after-finished"),
            Controller::VolcanoGc => None,
        }
    }
}

/// One entry of `--controllers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerChoice {
    /// `None` stands for `*`.
    pub controller: Option<Controller>,
    /// False for `-NAME`.
    pub runs: bool,
}

/// Where metrics and health are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsBindAddress {
    /// Nothing is served.
    Off,
    /// A loopback address.
    On(SocketAddr),
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people: `2026-11-30T03:15:00.123Z INFO gc_daemon::workers deleted …`.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.contains('\0') {
        return Err("has a NUL character; name a file".to_owned());
    }
    Ok(PathBuf::from(text))
}

fn context_name(text: &str) -> Result<String, String> {
    if text.chars().any(char::is_control) {
        return Err("has a control character; kubectl config get-contexts lists the names".to_owned());
    }
    Ok(text.to_owned())
}

fn concurrent_gc_syncs(text: &str) -> Result<usize, String> {
    whole_number(text, 1, CONCURRENT_GC_SYNCS_MAX, "20 is the default").map(|n| n as usize)
}

fn ttl_syncs(text: &str) -> Result<usize, String> {
    whole_number(text, 1, TTL_WORKERS_MAX, "5 is the default").map(|n| n as usize)
}

fn volcano_syncs(text: &str) -> Result<usize, String> {
    whole_number(text, 1, TTL_WORKERS_MAX, "1 is the default").map(|n| n as usize)
}

fn controller_choice(text: &str) -> Result<ControllerChoice, String> {
    let text = text.trim();
    if text == "*" {
        return Ok(ControllerChoice { controller: None, runs: true });
    }
    let (name, runs) = text.strip_prefix('-').map_or((text, true), |name| (name, false));
    let found = Controller::ALL.into_iter().find(|c| c.name() == name || c.alias() == Some(name));
    match found {
        Some(controller) => Ok(ControllerChoice { controller: Some(controller), runs }),
        None => {
            let names = Controller::ALL.map(Controller::name).join(", ");
            Err(format!("is no controller of this program; it has {names}, and * for all"))
        }
    }
}

fn burst(text: &str) -> Result<u32, String> {
    whole_number(text, 0, REQUESTS_MAX, "0 means one second's worth")
}

fn verbosity(text: &str) -> Result<u8, String> {
    let number = whole_number(text, 0, VERBOSITY_MAX, "0 says least, 8 logs each request")?;
    u8::try_from(number).map_err(|e| e.to_string())
}

fn whole_number(text: &str, min: u32, max: u32, mend: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("must be a whole number from {min} to {max}; {mend}")),
    }
}

fn qps(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        // The range holds neither NaN nor infinity.
        Ok(number) if (0.0..=REQUESTS_MAX as f32).contains(&number) => Ok(number),
        _ => Err(format!("must be a number from 0 to {REQUESTS_MAX}; 0 sets no limit")),
    }
}

/// The spellings that Go's flags take, so that manifests written for the reference go on working.
fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "True" | "TRUE" | "t" | "T" | "1" => Ok(true),
        "false" | "False" | "FALSE" | "f" | "F" | "0" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("must be text or json".to_owned()),
    }
}

fn metrics_bind_address(text: &str) -> Result<MetricsBindAddress, String> {
    const LOOPBACK_ONLY: &str =
        "only loopback is served until TLS is built; use 127.0.0.1:PORT or [::1]:PORT";
    if text.is_empty() || text == "0" {
        return Ok(MetricsBindAddress::Off);
    }
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok(MetricsBindAddress::On(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
    }
    if let Some(port) = text.strip_prefix(':') {
        return match port.parse::<u16>() {
            Ok(_) => Err(format!("means every address of this machine; {LOOPBACK_ONLY}")),
            Err(_) => Err("must be ADDRESS:PORT, such as 127.0.0.1:10262; 0 turns serving off".to_owned()),
        };
    }
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(MetricsBindAddress::On(address)),
        Ok(_) => Err(format!("is no loopback address; {LOOPBACK_ONLY}")),
        Err(_) => Err("must be ADDRESS:PORT, such as 127.0.0.1:10262; 0 turns serving off".to_owned()),
    }
}

fn group_resource(text: &str) -> Result<GroupResource, String> {
    let text = text.trim();
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    if text.contains('/') {
        return Err("has a slash; write resource.group, such as deployments.apps".to_owned());
    }
    if text.chars().any(char::is_uppercase) {
        return Err(
            "is no resource name; write the plural in lower case, such as deployments.apps".to_owned()
        );
    }
    if group == "core" || group == "v1" {
        return Err(format!("has no such group; the core group has no name, write {resource}"));
    }
    let is_core = !text.contains('.');
    let is_group = group.split('.').all(is_dns_label) && group.len() <= 253;
    if !is_dns_label(resource) || !(is_core || is_group) {
        return Err("is no resource; write resource.group, such as deployments.apps".to_owned());
    }
    Ok(GroupResource { group: group.to_owned(), resource: resource.to_owned() })
}

/// RFC 1123: lower-case letters, digits and inner hyphens, at most 63 of them.
fn is_dns_label(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A value as an error message repeats it: on one line, not too long, quoted where it would not be seen otherwise.
fn shown(value: &str) -> String {
    let plain = !value.is_empty() && value.chars().all(|c| !c.is_whitespace() && !c.is_control());
    let short: String = value.chars().take(SHOWN_VALUE_MAX).collect();
    let cut = if short.len() < value.len() { "…" } else { "" };
    if plain { format!("{short}{cut}") } else { format!("{short:?}{cut}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// Parses one line of arguments, split at blanks; `''` is an empty argument.
    fn parse(line: &str) -> Result<Flags, Exit> {
        let words = line.split_whitespace().map(|word| word.trim_matches('\''));
        Flags::from_args(std::iter::once("gc-daemon").chain(words))
    }

    /// Each line of arguments with its answer.
    fn check_errors(lines: &str, expected: &Expect) {
        let mut actual = String::new();
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let exit = parse(line).expect_err(line);
            assert_eq!(exit.code, 2, "{line}");
            assert_eq!(exit.text.lines().count(), 1, "{line}");
            actual.push_str(&exit.text);
            actual.push('\n');
        }
        expected.assert_eq(&actual);
    }

    #[test]
    fn r1_defaults() {
        expect![[r#"
            Flags {
                kubeconfig: None,
                context: None,
                concurrent_gc_syncs: 20,
                gc_ignored_resources: [],
                controllers: [
                    ControllerChoice {
                        controller: Some(
                            GarbageCollector,
                        ),
                        runs: true,
                    },
                ],
                concurrent_ttl_after_finished_syncs: 5,
                worker_threads_for_gc: 1,
                ttl_config: None,
                ttl_list: false,
                kube_api_qps: 0.0,
                kube_api_burst: 0,
                leader_elect: false,
                metrics_bind_address: On(
                    127.0.0.1:10262,
                ),
                verbosity: 0,
                log_format: Text,
            }
        "#]]
        .assert_debug_eq(&parse("").expect("the defaults are good"));
    }

    #[test]
    fn r1_a_bad_flag_is_one_clean_line_whatever_is_in_it() {
        for line in ["--help=\u{2}", "--v=\u{1b}[31m", "--\u{7}", "\u{7}", "--version=\u{85}", "-\u{2}"] {
            let exit = parse(line).expect_err(line);
            assert_eq!(exit.code, 2, "{line:?}");
            assert!(!exit.text.contains(char::is_control), "{line:?}: {:?}", exit.text);
        }
    }

    #[test]
    fn r1_every_flag_with_and_without_equals() {
        let with = "--kubeconfig=k --context=c --concurrent-gc-syncs=7 --gc-ignored-resources=pods,jobs.batch \
                    --kube-api-qps=2.5 --kube-api-burst=9 --leader-elect=false --metrics-bind-address=[::1]:99 \
                    --v=4 --log-format=json";
        let without = with.replace('=', " ");
        let flags = parse(with).expect("with =");
        assert_eq!(Ok(&flags), parse(&without).as_ref());
        expect![[r#"
            Flags {
                kubeconfig: Some(
                    "k",
                ),
                context: Some(
                    "c",
                ),
                concurrent_gc_syncs: 7,
                gc_ignored_resources: [
                    GroupResource {
                        group: "",
                        resource: "pods",
                    },
                    GroupResource {
                        group: "batch",
                        resource: "jobs",
                    },
                ],
                controllers: [
                    ControllerChoice {
                        controller: Some(
                            GarbageCollector,
                        ),
                        runs: true,
                    },
                ],
                concurrent_ttl_after_finished_syncs: 5,
                worker_threads_for_gc: 1,
                ttl_config: None,
                ttl_list: false,
                kube_api_qps: 2.5,
                kube_api_burst: 9,
                leader_elect: false,
                metrics_bind_address: On(
                    [::1]:99,
                ),
                verbosity: 4,
                log_format: Json,
            }
        "#]]
        .assert_debug_eq(&flags);
    }

    #[test]
    fn r1_verbosity_in_every_spelling() {
        for line in ["-v 3", "-v=3", "-v3", "--v 3", "--v=3", "-v 9 -v 3"] {
            assert_eq!(parse(line).map(|flags| flags.verbosity), Ok(3), "{line}");
        }
    }

    #[test]
    fn r1_metrics_can_be_turned_off_and_take_localhost() {
        for (line, expected) in [
            ("--metrics-bind-address=0", MetricsBindAddress::Off),
            ("--metrics-bind-address ''", MetricsBindAddress::Off),
            (
                "--metrics-bind-address=localhost:0",
                MetricsBindAddress::On(SocketAddr::from(([127, 0, 0, 1], 0))),
            ),
            (
                "--metrics-bind-address=127.1.2.3:5",
                MetricsBindAddress::On(SocketAddr::from(([127, 1, 2, 3], 5))),
            ),
        ] {
            assert_eq!(parse(line).map(|flags| flags.metrics_bind_address), Ok(expected), "{line}");
        }
    }

    #[test]
    fn s1_ignored_resources_add_up() {
        let flags =
            parse("--gc-ignored-resources widgets.example.com,pods --gc-ignored-resources=jobs.batch");
        let names = flags.unwrap().gc_ignored_resources.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names, ["widgets.example.com", "pods", "jobs.batch"]);
    }

    #[test]
    fn t5_controllers_are_chosen_as_the_reference_understands_the_list() {
        let runs = |line: &str| {
            let flags = parse(line).expect(line);
            Controller::ALL.map(|controller| flags.runs(controller))
        };
        assert_eq!(runs(""), [true, false, false]);
        assert_eq!(runs("--controllers=*"), [true, true, true]);
        assert_eq!(runs("--controllers *,-garbage-collector-controller"), [false, true, true]);
        assert_eq!(runs("--controllers=-ttl-after-finished,*"), [true, false, true]);
        assert_eq!(runs("--controllers=garbagecollector,ttl-after-finished"), [true, true, false]);
        assert_eq!(runs("--controllers volcano-gc-controller"), [false, false, true]);
        assert_eq!(runs("--controllers -volcano-gc-controller,* --controllers=*"), [true, true, false]);
        // What comes first decides.
        assert_eq!(runs("--controllers=garbagecollector,-garbagecollector"), [true, false, false]);
    }

    #[test]
    fn t5_r7_bad_flags_for_finished_jobs_get_one_line() {
        check_errors(
            "
            --controllers=gc
            --controllers=job-controller,*
            --controllers=-garbagecollector
            --controllers ''
            --concurrent-ttl-after-finished-syncs 0
            --worker-threads-for-gc many
            --ttl-config
            ",
            &expect![[r#"
                gc-daemon: --controllers gc: is no controller of this program; it has garbage-collector-controller, ttl-after-finished-controller, volcano-gc-controller, and * for all
                gc-daemon: --controllers job-controller: is no controller of this program; it has garbage-collector-controller, ttl-after-finished-controller, volcano-gc-controller, and * for all
                gc-daemon: --controllers: leaves nothing to run; name a controller, or *
                gc-daemon: --controllers "": is no controller of this program; it has garbage-collector-controller, ttl-after-finished-controller, volcano-gc-controller, and * for all
                gc-daemon: --concurrent-ttl-after-finished-syncs 0: must be a whole number from 1 to 1000; 5 is the default
                gc-daemon: --worker-threads-for-gc many: must be a whole number from 1 to 1000; 1 is the default
                gc-daemon: --ttl-config: needs a value; gc-daemon --help says which
            "#]],
        );
    }

    #[test]
    fn an_empty_kubeconfig_is_none() {
        let flags = parse("--kubeconfig '' --context=").unwrap();
        assert_eq!((flags.kubeconfig, flags.context), (None, None));
    }

    #[test]
    fn r7_a_bad_flag_gets_one_line() {
        check_errors(
            "
            --concurrent-gc-syncs 0
            --concurrent-gc-syncs 1001
            --concurrent-gc-syncs=-1
            --concurrent-gc-syncs many
            --concurrent-gc-syncs ''
            --concurrent-gc-syncs
            --concurrent-gc-sync 3
            --frobnicate
            -x
            now
            --kube-api-qps -1
            --kube-api-qps NaN
            --kube-api-qps inf
            --kube-api-burst 30
            --kube-api-qps 20 --kube-api-burst 1e3
            --leader-elect
            --leader-elect=true
            --leader-elect perhaps
            --v 11
            -v loud
            --log-format yaml
            --help=yes
            ",
            &expect![[r#"
                gc-daemon: --concurrent-gc-syncs 0: must be a whole number from 1 to 1000; 20 is the default
                gc-daemon: --concurrent-gc-syncs 1001: must be a whole number from 1 to 1000; 20 is the default
                gc-daemon: --concurrent-gc-syncs -1: must be a whole number from 1 to 1000; 20 is the default
                gc-daemon: --concurrent-gc-syncs many: must be a whole number from 1 to 1000; 20 is the default
                gc-daemon: --concurrent-gc-syncs "": must be a whole number from 1 to 1000; 20 is the default
                gc-daemon: --concurrent-gc-syncs: needs a value; gc-daemon --help says which
                gc-daemon: --concurrent-gc-sync: no such flag; gc-daemon --help lists them
                gc-daemon: --frobnicate: no such flag; gc-daemon --help lists them
                gc-daemon: -x: no such flag; gc-daemon --help lists them
                gc-daemon: now: is no flag and belongs to none; flags begin with --, gc-daemon --help lists them
                gc-daemon: --kube-api-qps -1: must be a number from 0 to 10000; 0 sets no limit
                gc-daemon: --kube-api-qps NaN: must be a number from 0 to 10000; 0 sets no limit
                gc-daemon: --kube-api-qps inf: must be a number from 0 to 10000; 0 sets no limit
                gc-daemon: --kube-api-burst 30: has no effect without a rate; set --kube-api-qps as well
                gc-daemon: --kube-api-burst 1e3: must be a whole number from 0 to 10000; 0 means one second's worth
                gc-daemon: --leader-elect true: leader election is not built yet; run one instance, without this flag
                gc-daemon: --leader-elect true: leader election is not built yet; run one instance, without this flag
                gc-daemon: --leader-elect perhaps: must be true or false
                gc-daemon: --v 11: must be a whole number from 0 to 10; 0 says least, 8 logs each request
                gc-daemon: --v loud: must be a whole number from 0 to 10; 0 says least, 8 logs each request
                gc-daemon: --log-format yaml: must be text or json
                gc-daemon: --help yes: --help takes no value
            "#]],
        );
    }

    #[test]
    fn r7_a_bad_address_or_resource_gets_one_line() {
        check_errors(
            "
            --metrics-bind-address 0.0.0.0:10262
            --metrics-bind-address :8080
            --metrics-bind-address [::]:1
            --metrics-bind-address 127.0.0.1
            --metrics-bind-address 10262
            --metrics-bind-address localhost:99999
            --gc-ignored-resources apps/deployments
            --gc-ignored-resources Deployment.apps
            --gc-ignored-resources pods.core
            --gc-ignored-resources pods,
            --gc-ignored-resources pods.
            --gc-ignored-resources -pods
            ",
            &expect![[r#"
                gc-daemon: --metrics-bind-address 0.0.0.0:10262: is no loopback address; only loopback is served until TLS is built; use 127.0.0.1:PORT or [::1]:PORT
                gc-daemon: --metrics-bind-address :8080: means every address of this machine; only loopback is served until TLS is built; use 127.0.0.1:PORT or [::1]:PORT
                gc-daemon: --metrics-bind-address [::]:1: is no loopback address; only loopback is served until TLS is built; use 127.0.0.1:PORT or [::1]:PORT
                gc-daemon: --metrics-bind-address 127.0.0.1: must be ADDRESS:PORT, such as 127.0.0.1:10262; 0 turns serving off
                gc-daemon: --metrics-bind-address 10262: must be ADDRESS:PORT, such as 127.0.0.1:10262; 0 turns serving off
                gc-daemon: --metrics-bind-address localhost:99999: must be ADDRESS:PORT, such as 127.0.0.1:10262; 0 turns serving off
                gc-daemon: --gc-ignored-resources apps/deployments: has a slash; write resource.group, such as deployments.apps
                gc-daemon: --gc-ignored-resources Deployment.apps: is no resource name; write the plural in lower case, such as deployments.apps
                gc-daemon: --gc-ignored-resources pods.core: has no such group; the core group has no name, write pods
                gc-daemon: --gc-ignored-resources "": is no resource; write resource.group, such as deployments.apps
                gc-daemon: --gc-ignored-resources pods.: is no resource; write resource.group, such as deployments.apps
                gc-daemon: -p: no such flag; gc-daemon --help lists them
            "#]],
        );
    }

    #[test]
    fn r7_a_long_or_strange_value_stays_on_one_line() {
        let long = "9".repeat(500);
        for value in ["two words", "two\nlines", "\u{1b}[31mred", long.as_str()] {
            let exit = Flags::from_args(["gc-daemon", "--log-format", value]).unwrap_err();
            assert_eq!(exit.text.lines().count(), 1);
            assert!(exit.text.len() < 200 && !exit.text.contains('\u{1b}'), "{}", exit.text);
        }
    }

    #[test]
    fn r1_version_and_help_end_well() {
        let version = parse("--version").unwrap_err();
        assert_eq!(version, Exit { text: format!("gc-daemon {}", env!("CARGO_PKG_VERSION")), code: 0 });
        assert_eq!(parse("--help").unwrap_err().code, 0);
        assert_eq!(parse("-h").unwrap_err().code, 0);
    }
}
