//! The text of `gc-daemon --help`, as it reads on a terminal 100 columns wide.

use clap::CommandFactory as _;
use expect_test::expect_file;
use gc_daemon::flags::Flags;

#[test]
fn r1_help_is_worth_reading() {
    let help = Flags::command().term_width(100).render_long_help().to_string();
    let help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    expect_file!["help.txt"].assert_eq(&help);
}
