//! The command line of `cargo xtask`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// What the repository does with itself.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
pub struct Xtask {
    /// The thing to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the collector against a simulated API server, both started here; ends in a few seconds
    Demo,
    /// Build etcd, kube-apiserver and kube-controller-manager from Go modules into target/rig
    Rig(Rig),
    /// Run the end-to-end suite against a real API server
    E2e(E2e),
    /// Run the same random histories against the reference's collector and ours, on two real API servers
    Differential(Differential),
    /// Run Kubernetes' own tests of garbage collection against the daemon
    Conformance(Conformance),
    /// Run the collector, users and a simulated API server in one thread, with everything that happens chosen by seeds
    Simulate(Simulate),
    /// Kill, pause, cut off and mislead the daemon and its real API server at random moments of large cascades
    Chaos(Chaos),
    /// Measure the daemon and the reference's collector on the same real API server
    Bench(Bench),
    /// Feed damaged input to everything that reads bytes from outside
    Fuzz(Fuzz),
    /// Change the code of gc-queue, gc-core and gc-graph in a thousand small ways, and see that tests notice; takes
    /// an hour or more
    Mutants(Mutants),
}

/// `cargo xtask rig`
#[derive(Args, Debug)]
pub struct Rig {
    /// Start etcd and kube-apiserver, print the kubeconfigs, and run until Ctrl-C
    #[arg(long)]
    pub run: bool,
}

/// `cargo xtask e2e`
#[derive(Args, Debug)]
pub struct E2e {
    /// Where the API server comes from; by default kind where docker and kind answer, else the rig where Go is
    /// installed
    #[arg(long, value_enum)]
    pub provider: Option<Provider>,
    /// The cluster of `--provider kubeconfig`; no other garbage collector may run in it
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Run only the scenarios whose name contains this; may be given several times
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Print the scenarios and exit
    #[arg(long)]
    pub list: bool,
    /// Leave the cluster (kind) or the logs (rig) where they are
    #[arg(long)]
    pub keep: bool,
    /// With `--provider kind`: print the commands and the configuration, check it, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Try this gc-daemon instead of building one
    #[arg(long, value_name = "FILE")]
    pub daemon: Option<PathBuf>,
    /// Volcano's own definition of its Job: what is tried with the suite's short one is tried with this one as well
    #[arg(long, value_name = "FILE")]
    pub volcano_definition: Option<PathBuf>,
    /// The seed of every random choice, printed at the start of each run
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Who collects; `reference` is kube-controller-manager's own controller, to try the scenarios themselves
    #[arg(long, value_enum, default_value = "daemon", hide = true)]
    pub collector: CollectorKind,
}

/// `cargo xtask simulate`
#[derive(Args, Debug)]
pub struct Simulate {
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub seeds: u64,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub from: u64,
    /// Instead of seeds: every order of everything in every small world, some ten minutes
    #[arg(long, conflicts_with_all = ["seeds", "from", "minutes", "trace", "skip"])]
    pub small_worlds: bool,
    /// Instead of seeds that must pass: mistakes that somebody has made, each of which must be found
    #[arg(long, conflicts_with_all = ["seeds", "from", "minutes", "trace", "skip", "small_worlds"])]
    pub mistakes: bool,
    /// Stop after so many minutes, whatever is left
    #[arg(long, value_name = "M")]
    pub minutes: Option<u64>,
    /// Print every step
    #[arg(long)]
    pub trace: bool,
    /// Go on after a seed that fails
    #[arg(long)]
    pub keep_going: bool,
    /// At most so many steps under faults
    #[arg(long, value_name = "N")]
    pub steps: Option<u32>,
    /// At most so many objects at the start
    #[arg(long, value_name = "N")]
    pub objects: Option<u32>,
    /// Disturbances that do not happen, by the number that the trace shows (`#7`)
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub skip: Vec<u32>,
    /// No request fails
    #[arg(long)]
    pub calm: bool,
    /// How long an idle collector is watched, in virtual minutes; by default three, or, for one seed in ten, an hour
    #[arg(long, value_name = "M")]
    pub idle_minutes: Option<u64>,
}

/// `cargo xtask chaos`
#[derive(Args, Debug)]
pub struct Chaos {
    /// The seed of every random choice, printed at the start of each run
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Run the scenarios again and again for so long, each time larger and with another seed
    #[arg(long, value_name = "M")]
    pub minutes: Option<u64>,
    /// Run only the scenarios whose name contains one of these
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Print the scenarios and exit
    #[arg(long)]
    pub list: bool,
    /// How long a process or a connection stands still; by default 4, and 60 with --minutes
    #[arg(long, value_name = "S")]
    pub pause_seconds: Option<u64>,
    /// How many objects a scenario has; by default 1200, and 4000 with --minutes
    #[arg(long, value_name = "N")]
    pub objects: Option<usize>,
    /// Leave the logs where they are
    #[arg(long)]
    pub keep: bool,
    /// Try this gc-daemon instead of building one
    #[arg(long, value_name = "FILE")]
    pub daemon: Option<PathBuf>,
}

/// `cargo xtask bench`
#[derive(Args, Debug)]
pub struct Bench {
    /// Measure only these rows of the table, by name
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub rows: Vec<String>,
    /// Print the rows, what each measures and how, and exit
    #[arg(long)]
    pub list: bool,
    /// How often each figure is measured; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// How many objects stand in the filled cluster; by default 105000, and 5250 with --quick
    #[arg(long, value_name = "N")]
    pub objects: Option<usize>,
    /// One round with few objects, and ratios only: fails where one is worse than its floor
    #[arg(long, conflicts_with = "rounds")]
    pub quick: bool,
    /// Measure the static binary too, in a column of its own
    #[arg(long = "static")]
    pub with_static: bool,
    /// Write every figure to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a bar chart to this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Leave the logs where they are
    #[arg(long)]
    pub keep: bool,
    /// Measure this gc-daemon instead of building one
    #[arg(long, value_name = "FILE")]
    pub daemon: Option<PathBuf>,
}

/// `cargo xtask fuzz`
#[derive(Args, Debug)]
pub struct Fuzz {
    /// For so many minutes, shared by all targets
    #[arg(long, value_name = "M", default_value_t = 1)]
    pub minutes: u64,
    /// So many damaged inputs for each reader instead; with --seed every run of it is the same
    #[arg(long, value_name = "N", conflicts_with = "minutes")]
    pub cases: Option<u64>,
    /// Only this reader; each run names them all
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// The seed of every random choice, printed at the start of each run
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Try this one input, in hexadecimal, as a failure names it
    #[arg(long, value_name = "HEX", requires = "target")]
    pub input: Option<String>,
}

/// `cargo xtask mutants`
#[derive(Args, Debug)]
pub struct Mutants {
    /// Only this crate; may be given several times
    #[arg(long = "crate", value_name = "NAME")]
    pub only: Vec<String>,
    /// Arguments for `cargo mutants` itself, for example `--file gc-core/src/verdict.rs` or `--jobs 4`
    #[arg(last = true, value_name = "ARGUMENT")]
    pub args: Vec<String>,
}

/// `cargo xtask conformance`
#[derive(Args, Debug)]
pub struct Conformance {
    /// Run only the specs whose full text this regular expression (Go's) matches
    #[arg(long, value_name = "REGEX", default_value = "Garbage collector")]
    pub focus: String,
    /// Leave the logs of the servers, the collector and the suite where they are
    #[arg(long)]
    pub keep: bool,
    /// Try this gc-daemon instead of building one
    #[arg(long, value_name = "FILE")]
    pub daemon: Option<PathBuf>,
    /// The seed of the specs' order, printed at the start of each run
    #[arg(long, value_name = "N")]
    pub seed: Option<u32>,
    /// Who collects; `reference` is kube-controller-manager's own controller, to try the set-up itself
    #[arg(long, value_enum, default_value = "daemon")]
    pub collector: CollectorKind,
}

/// `cargo xtask differential`
#[derive(Args, Debug)]
pub struct Differential {
    /// How many histories
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub histories: u64,
    /// The first seed; each history has the next one
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub from: u64,
    /// Print each history with its end state, not only those that fail
    #[arg(long)]
    pub print: bool,
    /// Try this gc-daemon instead of building one
    #[arg(long, value_name = "FILE")]
    pub daemon: Option<PathBuf>,
    /// Who collects on our side; `reference` compares the reference with itself, to try the histories themselves
    #[arg(long, value_enum, default_value = "daemon", hide = true)]
    pub collector: CollectorKind,
}

/// Where the API server comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Provider {
    /// A cluster in docker, made by kind and deleted afterwards
    Kind,
    /// etcd and kube-apiserver on loopback, see `cargo xtask rig`
    Rig,
    /// A cluster that is already there
    Kubeconfig,
}

/// Who collects the garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CollectorKind {
    /// The binary of this repository
    Daemon,
    /// The garbage-collector controller of kube-controller-manager; with the rig only
    Reference,
}
