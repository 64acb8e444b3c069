//! The rules of the house that no compiler holds: which crate may know which, what the pure crates must not touch, and
//! that the documents say what is true.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every Rust file below a folder, with its path from the root.
fn rust_files(folder: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(root()).unwrap().display().to_string();
                files.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

const CRATES: [&str; 8] =
    ["gc-core", "gc-graph", "gc-queue", "gc-client", "gc-builder", "gc-daemon", "tests", "xtask"];

/// The names in a section of a manifest.
fn dependencies(manifest: &str, section: &str) -> BTreeSet<String> {
    manifest
        .split_once(&format!("\n[{section}]\n"))
        .map_or("", |(_, rest)| rest)
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', '=', ' ']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .map(Into::into)
        .collect()
}

#[test]
fn arrows_between_crates_go_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("gc-graph", &[] as &[&str]),
        ("gc-queue", &[]),
        ("gc-client", &[]),
        ("gc-core", &["gc-graph"]),
        ("gc-builder", &["gc-client", "gc-core", "gc-graph"]),
        ("gc-daemon", &["gc-builder", "gc-client", "gc-core", "gc-graph", "gc-queue"]),
        ("tests", &["gc-builder", "gc-client", "gc-core", "gc-graph", "gc-queue"]),
        ("xtask", &["gc-client", "gc-tests"]),
    ]);
    for name in CRATES {
        let manifest = read(format!("{name}/Cargo.toml"));
        let ours = dependencies(&manifest, "dependencies").into_iter().filter(|d| d.starts_with("gc-"));
        for dependency in ours {
            assert!(
                allowed[name].contains(&dependency.as_str()),
                "{name} must not know {dependency}: a line between two of our crates is the gravest change there is; \
                 see ARCHITECTURE.md for the direction of the arrows"
            );
        }
    }
}

#[test]
fn the_reusable_crates_depend_on_nothing_of_ours_even_in_tests() {
    for name in ["gc-graph", "gc-queue"] {
        let manifest = read(format!("{name}/Cargo.toml"));
        let ours: Vec<_> = dependencies(&manifest, "dev-dependencies")
            .into_iter()
            .filter(|d| d.starts_with("gc-"))
            .collect();
        assert!(ours.is_empty(), "{name} is to build and pass alone, but its tests need {ours:?}");
    }
}

#[test]
fn there_is_no_async_runtime_in_the_tree() {
    let lock = read("Cargo.lock");
    let names =
        lock.lines().filter_map(|line| line.strip_prefix("name = \"")).map(|name| name.trim_end_matches('"'));
    for name in names {
        let is_runtime = ["tokio", "hyper", "futures-executor", "smol", "mio", "reqwest", "h2"]
            .contains(&name)
            || name.starts_with("async-");
        assert!(
            !is_runtime,
            "{name} is in Cargo.lock: this program is threads and blocking calls, so that it can be audited; \
             `cargo tree -i {name}` says what brought it"
        );
    }
}

#[test]
fn every_crate_forbids_unsafe_code_and_has_a_readme_that_says_what_it_is_not() {
    for name in CRATES {
        for file in ["src/lib.rs", "src/main.rs"] {
            let Ok(source) = fs::read_to_string(root().join(name).join(file)) else { continue };
            assert!(source.contains("#![forbid(unsafe_code)]"), "{name}/{file} does not forbid unsafe code");
        }
        let readme = read(format!("{name}/README.md"));
        assert!(readme.contains(" not "), "{name}/README.md does not say what the crate is not");
        assert!(readme.contains("```"), "{name}/README.md has no example");
    }
}

#[test]
fn the_pure_crates_touch_no_clock_no_thread_no_socket_no_file_and_no_log() {
    let forbidden = [
        "Instant::now",
        "SystemTime",
        "std::thread",
        "std::net",
        "std::fs",
        "std::process",
        "log::",
        "println!",
        "Mutex",
        "RwLock",
    ];
    for name in ["gc-graph", "gc-core", "gc-builder"] {
        for (file, source) in rust_files(&format!("{name}/src")) {
            // Tests at the end of a file, and files of tests, may measure.
            let code = source.split("#[cfg(test)]").next().unwrap();
            if file.contains("/tests") {
                continue;
            }
            for (number, line) in code.lines().enumerate() {
                let line = line.split("//").next().unwrap();
                for word in forbidden {
                    assert!(!line.contains(word), "{file}:{}: {name} must not touch {word}", number + 1);
                }
            }
        }
    }
}

#[test]
fn gc_queue_has_no_word_of_kubernetes_in_its_code() {
    for (file, source) in rust_files("gc-queue/src") {
        // Tests are named by the public reports that they check.
        if file.contains("tests") {
            continue;
        }
        let source = source.split("#[cfg(test)]").next().unwrap();
        for (number, line) in source.lines().enumerate() {
            let code = line.split("//").next().unwrap().to_lowercase();
            assert!(!code.contains("kubernetes"), "{file}:{}", number + 1);
        }
    }
}

#[test]
fn no_test_is_switched_off_and_nothing_is_left_to_do() {
    for name in CRATES {
        for (file, source) in rust_files(name) {
            if file.ends_with("house.rs") {
                continue;
            }
            for word in ["#[ignore", "FIXME", "XXX", "todo!(", "unimplemented!("] {
                assert!(!source.contains(word), "{file} has {word}");
            }
        }
    }
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The variants of every enum of that name.
fn variants(enumeration: &str) -> BTreeSet<String> {
    let opening = format!("pub enum {enumeration} {{\n");
    let is_name = |line: &str| line.starts_with(|first: char| first.is_ascii_uppercase());
    let mut found = BTreeSet::new();
    for (_, source) in CRATES.iter().flat_map(|name| rust_files(name)) {
        let Some((_, body)) = source.split_once(&opening) else { continue };
        let body = body.split_once("\n}").map_or(body, |(body, _)| body);
        let names = body.lines().map(str::trim).filter(|line| is_name(line));
        found.extend(names.map(|name| name.trim_end_matches(',').split(['(', ' ']).next().unwrap().into()));
    }
    found
}

/// Whether one of the ways that SAFETY.md describes has something of that name.
fn is_tried_by(way: &str, name: &str) -> bool {
    let (of, variant) = name.split_once("::").unwrap_or(("", name));
    let is_variant = || variants(of).contains(variant);
    match (way, of) {
        ("simulation", "Check") | ("differential", "Feature") => is_variant(),
        // A mistake that no seeds are given for shows nothing; `Core::AbsenceByUid` there is a `Mistake` here.
        ("simulation", "Mistake") => {
            let known = read("tests/src/simulation/known.rs");
            let mut code = known.lines().filter(|line| !line.trim_start().starts_with("//"));
            is_variant() && code.any(|line| line.contains(&format!("::{variant}")))
        }
        ("small worlds", "Check") => {
            let searched = ["search", "machine"]
                .map(|file| read(format!("tests/src/simulation/small_worlds/{file}.rs")).contains(name));
            is_variant() && searched.contains(&true)
        }
        ("small worlds", "Mistake") => is_variant() && read("tests/tests/small_worlds.rs").contains(name),
        ("differential", "") => {
            read("xtask/src/differential/on_purpose.rs").contains(&format!("name: \"{name}\""))
                || root().join(format!("xtask/src/differential/{name}.rs")).exists()
        }
        ("e2e" | "chaos", "") => rust_files(&format!("xtask/src/{way}"))
            .iter()
            .any(|(file, source)| file.contains("scenarios") && source.contains(&format!("\"{name}\""))),
        _ => false,
    }
}

#[test]
fn safety_names_checks_and_places_that_exist() {
    let sources: String = CRATES.iter().flat_map(|name| rust_files(name)).map(|(_, source)| source).collect();
    let safety = read("SAFETY.md");
    let hazards = safety.split_once("## Hazards").expect("a section on hazards").1;
    let rows: Vec<Vec<&str>> = hazards
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| hazard"))
        .map(|line| line.trim_matches('|').split(" | ").collect())
        .collect();
    assert!(10 < rows.len(), "the table of hazards is not where this test looks for it");
    for row in rows {
        let [hazard, _, places, checks] = row[..] else { panic!("not four columns: {row:?}") };
        let (tests, others) = checks.split_once("; ").map_or((checks, ""), |(tests, others)| (tests, others));
        for check in quoted(tests) {
            let name = check.trim_end_matches('…');
            assert!(sources.contains(&format!("fn {name}")), "{hazard}: no test is called {check}");
        }
        assert!(quoted(tests).next().is_some(), "{hazard}: no test would notice");
        for other in others.split("; ").filter(|other| !other.is_empty()) {
            let (way, names) =
                other.split_once(": ").unwrap_or_else(|| panic!("{hazard}: no way in {other}"));
            assert!(quoted(names).next().is_some(), "{hazard}: {way} names nothing");
            for name in quoted(names) {
                assert!(is_tried_by(way.trim(), name), "{hazard}: {way} has no {name}");
            }
        }
        for place in quoted(places) {
            let found = if place.contains('/') {
                root().join(place).exists()
            } else {
                sources.contains(place.rsplit("::").next().unwrap())
            };
            assert!(found, "{hazard}: there is no {place}");
        }
    }
}

#[test]
fn architecture_has_a_line_for_every_dependency_and_none_for_others() {
    let architecture = read("ARCHITECTURE.md");
    let table = architecture.split_once("## Dependencies").expect("a section on dependencies").1;
    let named: BTreeSet<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .filter_map(|line| line.split(" | ").next())
        .flat_map(|cell| cell.split('(').next().unwrap().split(", "))
        .map(str::trim)
        .filter(|name| !name.is_empty() && *name != "crate")
        .collect();
    let used: BTreeSet<String> = dependencies(&read("Cargo.toml"), "workspace.dependencies")
        .into_iter()
        .filter(|name| !name.starts_with("gc-"))
        .collect();
    for name in &used {
        assert!(named.contains(name.as_str()), "ARCHITECTURE.md does not say what {name} is for");
    }
    for name in named {
        assert!(used.contains(name), "ARCHITECTURE.md speaks of {name}, which is not a dependency");
    }
}

#[test]
fn the_readme_and_the_gate_run_the_same_tests() {
    let command = "cargo test --workspace";
    assert!(read("README.md").contains(command) && read(".ci/run").contains(command));
    assert!(read("README.md").contains("cargo xtask demo") && read(".ci/run").contains("cargo xtask demo"));
}
