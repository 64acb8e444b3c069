//! Conversations with a real kube-apiserver, replayed to the simulator, which must answer the same; the end-to-end suite
//! holds them with a real server again. What a conversation is: `gc_tests::conversation`.
//!
//! To record anew, run a fresh API server without controllers (`cargo xtask rig --run`) and
//! `GC_TESTS_RECORD=KUBECONFIG cargo test -p gc-tests --test wire`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test may stop where it stands.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gc_client::{Client, Config, Options};
use gc_tests::conversation::{RECORDED, Real, Simulator, converse, difference, requests};

#[test]
fn the_simulator_answers_as_the_real_server_did() {
    if let Ok(kubeconfig) = std::env::var("GC_TESTS_RECORD") {
        return record(Path::new(&kubeconfig));
    }
    let mut wrong = String::new();
    for (name, recorded) in RECORDED {
        let answered = converse(recorded, &mut Simulator::new()).unwrap();
        let difference = difference(["real", "simulator"], [recorded, &answered]);
        if !difference.is_empty() {
            wrong += &format!("{name}:\n{difference}");
        }
    }
    assert!(wrong.is_empty(), "the simulator answers differently:\n{wrong}");
}

#[test]
fn there_are_hundreds_of_requests_and_no_file_is_forgotten() {
    let asked: usize = RECORDED.iter().map(|(_, script)| requests(script)).sum();
    assert!(asked >= 300, "{asked}");
    let names: BTreeSet<String> = RECORDED.iter().map(|(name, _)| format!("{name}.txt")).collect();
    let files = std::fs::read_dir(directory()).unwrap();
    let files: BTreeSet<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names, files);
}

/// Writes the answers of a real server into the conversations.
fn record(kubeconfig: &Path) {
    let config = Config::from_kubeconfig(kubeconfig, None).unwrap();
    let client = Client::new(&config, &Options::default()).unwrap();
    for (name, _) in RECORDED {
        let path = directory().join(format!("{name}.txt"));
        let script = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, converse(&script, &mut Real::new(&client)).unwrap()).unwrap();
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire")
}
