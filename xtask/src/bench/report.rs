//! The table, and the same as JSON.

use serde_json::{Value, json};

use crate::bench::ground::Contender;
use crate::bench::rows::{Goal, ROWS, Row, Unit};
use crate::bench::{Plan, Results};
use crate::failure::Failure;
use crate::process;

/// Where and when it was measured.
#[derive(Clone, Debug)]
pub struct About {
    /// Processor, cores, kernel.
    pub machine: String,
    /// Of everything that took part.
    pub versions: String,
    /// Of the day.
    pub date: String,
    /// How often, and how much.
    pub extent: String,
}

impl About {
    /// Of this run.
    ///
    /// # Errors
    ///
    /// When the machine does not say what it is.
    pub fn this_run(kubernetes: &str, plan: &Plan) -> Result<About, Failure> {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let kernel = process::output("uname", {
            let mut uname = std::process::Command::new("uname");
            uname.args(["-s", "-r"]);
            uname
        })?;
        let rounds =
            if plan.rounds == 1 { "one round".into() } else { format!("median of {} rounds", plan.rounds) };
        Ok(About {
            machine: format!(
                "{}, {cores} cores, {}",
                model.map_or("unknown", |(_, name)| name),
                kernel.trim()
            ),
            versions: format!(
                "gc-daemon {}, kube-controller-manager, kube-apiserver and etcd of Kubernetes {kubernetes}",
                env!("CARGO_PKG_VERSION")
            ),
            date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            extent: format!("{rounds}, {} objects in the filled cluster", plan.objects),
        })
    }
}

/// The table in Markdown, and what stands below it.
pub fn table(plan: &Plan, results: &Results, about: &About) -> String {
    let with_static = plan.contenders().any(|who| who == Contender::Static);
    // Goals are for figures that were measured at length; a short run is held against its floors.
    let bound = if plan.is_quick { "floor" } else { "goal" };
    let mut head = vec!["row", "ours", "reference", "times as good", bound, ""];
    if with_static {
        head.insert(2, "static");
    }
    let mut lines = vec![head.into_iter().map(str::to_owned).collect::<Vec<String>>()];
    lines.extend(chosen(plan, results).map(|row| line(row, plan, results, with_static)));
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    lines.insert(1, widths.iter().map(|width| "-".repeat(*width)).collect());
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!(" {cell:<width$} |"));
        text += &format!("|{}\n", cells.collect::<String>());
    }
    let About { machine, versions, date, extent } = about;
    text += &format!("\n{date}; {extent}; {machine}; {versions}.\n");
    if let Some(limit) = results.limit() {
        text += &format!("The server's limit: {limit:.0} plain DELETEs a second");
        if let Some(reference) = results.reference("background") {
            text +=
                &format!(", {:.1} times what the reference deletes in the row background", limit / reference);
        }
        if let Some(watched) = results.watched_limit() {
            text += &format!("; {watched:.0} while a collector watches");
        }
        text += ".\n";
    }
    results.notes.iter().for_each(|note| text += &format!("- {note}\n"));
    text
}

/// The rows that were asked for and measured.
pub fn chosen<'r>(plan: &'r Plan, results: &'r Results) -> impl Iterator<Item = &'static Row> + 'r {
    ROWS.iter().filter(|row| plan.wants(&[row.name]) && results.median(row.name, Contender::Ours).is_some())
}

fn line(row: &Row, plan: &Plan, results: &Results, with_static: bool) -> Vec<String> {
    let show = |figure: Option<f64>| figure.map(|figure| figure_of(row.unit, figure)).unwrap_or_default();
    let ours = results.median(row.name, Contender::Ours);
    let reference = results.reference(row.name);
    let ratio = ours.zip(reference).and_then(|(ours, reference)| row.ratio(ours, reference));
    let (bound, is_met) = if plan.is_quick {
        let floor = row.floor.map(|floor| format!("≥ {floor}×")).unwrap_or_default();
        (floor, ratio.zip(row.floor).map(|(ratio, floor)| floor <= ratio))
    } else {
        (goal_of(row), ours.and_then(|ours| row.is_met(ours, reference)))
    };
    let met = match is_met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "",
    };
    let mut cells = vec![
        row.name.to_owned(),
        show(ours),
        show(reference),
        ratio.map(|ratio| format!("{ratio:.1}")).unwrap_or_default(),
        bound,
        met.to_owned(),
    ];
    if with_static {
        cells.insert(2, show(results.median(row.name, Contender::Static)));
    }
    cells
}

/// A figure with its unit.
pub fn figure_of(unit: Unit, figure: f64) -> String {
    match unit {
        Unit::Megabytes if figure < 99.5e6 => format!("{:.1} MB", figure / 1e6),
        Unit::Megabytes => format!("{:.0} MB", figure / 1e6),
        Unit::Bytes => format!("{figure:.0} B"),
        Unit::Seconds => format!("{figure:.2} s"),
        Unit::Milliseconds => format!("{:.0} ms", figure * 1e3),
        Unit::PerSecond => format!("{figure:.0}/s"),
        Unit::Percent if figure < 10.0 => format!("{figure:.2} %"),
        Unit::Percent => format!("{figure:.0} %"),
        Unit::Requests | Unit::Count => format!("{figure:.0}"),
        Unit::RequestsEach => format!("{figure:.2}"),
        Unit::Nanoseconds => format!("{figure:.0} ns"),
    }
}

fn goal_of(row: &Row) -> String {
    match row.goal {
        Goal::Times(times) => format!("≥ {times}×"),
        Goal::AtMost(limit) => format!("≤ {}", figure_of(row.unit, limit)),
        Goal::AtLeast(limit) => format!("≥ {}", figure_of(row.unit, limit)),
        Goal::None => String::new(),
    }
}

/// Every figure.
pub fn json(plan: &Plan, results: &Results, about: &About) -> Value {
    let row = |row: &'static Row| {
        let ours = results.median(row.name, Contender::Ours);
        let reference = results.reference(row.name);
        let samples = |who| results.samples(row.name, who);
        json!({
            "name": row.name,
            "what": row.what,
            "unit": format!("{:?}", row.unit),
            "ours": ours,
            "reference": reference,
            "timesAsGood": ours.zip(reference).and_then(|(ours, reference)| row.ratio(ours, reference)),
            "goal": goal_of(row),
            "met": ours.and_then(|ours| row.is_met(ours, reference)),
            "samples": {
                "ours": samples(Contender::Ours),
                "static": samples(Contender::Static),
                "reference": samples(Contender::Reference),
                "limited": samples(Contender::Limited),
            },
        })
    };
    json!({
        "date": about.date,
        "machine": about.machine,
        "versions": about.versions,
        "extent": about.extent,
        "plainDeletesPerSecond": results.limits,
        "watchedDeletesPerSecond": results.watched_limits,
        "rows": chosen(plan, results).map(row).collect::<Vec<_>>(),
        "notes": results.notes,
    })
}

/// The rows in which the daemon is worse than it may be even on a noisy machine, each in words.
pub fn below_floor(plan: &Plan, results: &Results) -> Vec<String> {
    let below = |row: &'static Row| {
        let floor = row.floor?;
        let (ours, reference) = (results.median(row.name, Contender::Ours)?, results.reference(row.name)?);
        // Where one of them is zero there is nothing to divide; the better one is zero.
        let ratio = row.ratio(ours, reference)?;
        let words = || format!("{}: {ratio:.2} times as good as the reference, floor {floor}", row.name);
        (ratio < floor).then(words)
    };
    chosen(plan, results).filter_map(below).collect()
}

#[cfg(test)]
pub mod tests {
    use std::time::{Duration, Instant};

    use expect_test::expect;

    use super::*;

    /// Made-up figures.
    pub fn example() -> (Plan, Results, About) {
        let plan = Plan {
            rows: vec!["memory-empty", "idle-requests", "background", "background-limited"],
            contenders: vec![Contender::Ours, Contender::Reference],
            began: Instant::now(),
            rounds: 1,
            objects: 21,
            is_quick: true,
            minute: Duration::ZERO,
            idle: Duration::ZERO,
        };
        let mut results = Results::default();
        for (row, ours, reference) in
            [("memory-empty", 12e6, 90e6), ("idle-requests", 0.0, 5000.0), ("background", 700.0, 500.0)]
        {
            results.add(row, Contender::Ours, ours);
            results.add(row, Contender::Reference, reference);
        }
        results.add("background-limited", Contender::Ours, 700.0);
        results.add("background-limited", Contender::Limited, 12.5);
        results.limits.push(1800.0);
        results.watched_limits.push(1600.0);
        results.note("a note");
        let text = |text: &str| text.to_owned();
        let about = About {
            machine: text("a machine"),
            versions: text("versions"),
            date: text("2026-01-01"),
            extent: text("one round"),
        };
        (plan, results, about)
    }

    #[test]
    fn the_table() {
        let (mut plan, results, about) = example();
        plan.is_quick = false;
        expect![[r#"
            | row                | ours    | reference | times as good | goal      |        |
            | ------------------ | ------- | --------- | ------------- | --------- | ------ |
            | memory-empty       | 12.0 MB | 90.0 MB   | 7.5           | ≤ 10.0 MB | MISSED |
            | idle-requests      | 0       | 5000      |               | ≤ 0       | met    |
            | background         | 700/s   | 500/s     | 1.4           | ≥ 3×      | MISSED |
            | background-limited | 700/s   | 12/s      | 56.0          |           |        |

            2026-01-01; one round; a machine; versions.
            The server's limit: 1800 plain DELETEs a second, 3.6 times what the reference deletes in the row background; 1600 while a collector watches.
            - a note
        "#]]
        .assert_eq(&table(&plan, &results, &about));
    }

    #[test]
    fn a_short_run_is_held_against_its_floors() {
        let (plan, results, about) = example();
        expect![[r#"
            | row                | ours    | reference | times as good | floor  |     |
            | ------------------ | ------- | --------- | ------------- | ------ | --- |
            | memory-empty       | 12.0 MB | 90.0 MB   | 7.5           | ≥ 4×   | met |
            | idle-requests      | 0       | 5000      |               |        |     |
            | background         | 700/s   | 500/s     | 1.4           | ≥ 1.2× | met |
            | background-limited | 700/s   | 12/s      | 56.0          |        |     |

            2026-01-01; one round; a machine; versions.
            The server's limit: 1800 plain DELETEs a second, 3.6 times what the reference deletes in the row background; 1600 while a collector watches.
            - a note
        "#]].assert_eq(&table(&plan, &results, &about));
    }

    #[test]
    fn what_is_below_its_floor_is_named() {
        let (plan, mut results, _) = example();
        assert_eq!(below_floor(&plan, &results), Vec::<String>::new());
        results.add("background", Contender::Ours, 300.0);
        expect!["background: 1.00 times as good as the reference, floor 1.2"]
            .assert_eq(&below_floor(&plan, &results).join("\n"));
    }

    #[test]
    fn json_has_every_sample() {
        let (plan, results, about) = example();
        let json = json(&plan, &results, &about);
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(4));
        assert_eq!(json["rows"][3]["samples"]["limited"], serde_json::json!([12.5]));
        assert_eq!(json["rows"][0]["met"], false);
        assert!(json["rows"][1]["timesAsGood"].is_null());
    }
}
