//! The README of the repository says what the program does: its table of flags is held to the flags.

use clap::{Arg, CommandFactory as _};
use gc_daemon::flags::Flags;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
const BEGIN: &str = "<!-- flags: gc-daemon/tests/readme.rs holds this table to the program. -->\n";
const END: &str = "<!-- end of flags -->\n";

/// Set UPDATE_EXPECT=1 to write the table anew.
#[test]
fn r1_the_readme_has_every_flag_with_its_default() {
    let readme = std::fs::read_to_string(README).unwrap();
    let (before, rest) = readme.split_once(BEGIN).expect("the README marks where the table begins");
    let (table, after) = rest.split_once(END).expect("the README marks where the table ends");
    let expected = flag_table();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(README, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
    } else {
        assert_eq!(table, expected, "run this test with UPDATE_EXPECT=1 to write the table anew");
    }
}

/// One row a flag: how it is written, its default, and the first line of its help.
fn flag_table() -> String {
    let mut table = "| flag | default | what it sets |\n|---|---|---|\n".to_owned();
    let command = Flags::command();
    let flags = command.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"));
    for arg in flags {
        let default: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let default = if default.is_empty() { String::new() } else { format!("`{}`", default.join(",")) };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        table += &format!("| `{}` | {default} | {help} |\n", spelling(arg));
    }
    table
}

/// `-v N, --v N`.
fn spelling(arg: &Arg) -> String {
    // A switch takes no value; the name of one that it has all the same is its own.
    let own = arg.get_id().as_str().to_uppercase();
    let names = arg.get_value_names().unwrap_or_default().iter().filter(|name| **name != own);
    let value: String = names.map(|name| format!(" {name}")).collect();
    let short = arg.get_short().map(|short| format!("-{short}{value}, ")).unwrap_or_default();
    let long = arg.get_long().map(|long| format!("--{long}{value}")).unwrap_or_default();
    format!("{short}{long}")
}
