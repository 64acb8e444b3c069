//! Reads the report that Kubernetes' suite writes (Ginkgo's JSON).

use serde_json::Value;

use crate::failure::{Doing, Failure};

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// One line a spec that was to run, in the order in which they ran.
    pub lines: Vec<String>,
    /// How many passed.
    pub passed: u64,
    /// How many did not, whatever the reason; a step before or after the specs counts as one when it fails.
    pub failed: u64,
}

/// Counts what was to run, so that a suite that stops half-way has failures and not merely fewer specs.
///
/// # Errors
///
/// When it is no such report.
pub fn read(json: &str) -> Result<Outcome, Failure> {
    let reports: Value = serde_json::from_str(json).doing(|| "the suite's report is no JSON".into())?;
    let report = &reports[0];
    let (Some(will_run), Some(specs)) =
        (report["PreRunStats"]["SpecsThatWillRun"].as_u64(), report["SpecReports"].as_array())
    else {
        return Err(Failure::new("the suite's report holds no specs"));
    };
    let mut outcome = Outcome::default();
    let mut ran = 0;
    for spec in specs.iter().filter(|spec| has_run(spec)) {
        let is_spec = spec["LeafNodeType"] == "It";
        ran += u64::from(is_spec);
        let (name, took_s) = (name(spec), spec["RunTime"].as_f64().unwrap_or_default() / 1e9);
        if spec["State"] != "passed" {
            outcome.failed += 1;
            outcome.lines.push(format!("FAILED {name}: {}", reason(spec)));
        } else if is_spec {
            outcome.passed += 1;
            outcome.lines.push(format!("ok {name} {took_s:.1}s"));
        }
    }
    let never_ran = will_run.saturating_sub(ran);
    if never_ran > 0 {
        outcome.failed += never_ran;
        outcome.lines.push(format!("FAILED {never_ran} more that never ran"));
    }
    Ok(outcome)
}

/// What the focus leaves out is in the report too, as skipped and without a time; a spec that skips itself has one.
fn has_run(spec: &Value) -> bool {
    let is_left_out = spec["State"] == "skipped" || spec["State"] == "pending";
    !is_left_out || spec["RunTime"].as_f64().is_some_and(|time_ns| time_ns > 0.0)
}

/// The texts of the containers and of the spec itself; a step around the specs has only a type.
fn name(spec: &Value) -> String {
    let containers = spec["ContainerHierarchyTexts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = containers.iter().chain([&spec["LeafNodeText"]]).filter_map(Value::as_str);
    let words: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    if words.is_empty() { spec["LeafNodeType"].as_str().unwrap_or("?").into() } else { words.join(" ") }
}

/// The suite likes to print whole objects; its log has them.
const REASON_CHARS: usize = 200;

/// The state and the beginning of the message's first line.
fn reason(spec: &Value) -> String {
    let state = spec["State"].as_str().unwrap_or("no state");
    let message = spec["Failure"]["Message"].as_str().unwrap_or_default();
    let first_line = message.lines().next().unwrap_or_default();
    let beginning: String = first_line.chars().take(REASON_CHARS).collect();
    if beginning.is_empty() { state.into() } else { format!("{state}: {beginning}") }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    /// A spec of a report: its type, text, state, seconds and message.
    fn spec((leaf_type, text, state, took_s, message): (&str, &str, &str, f64, &str)) -> Value {
        let containers = if leaf_type == "It" { json!(["[sig] Garbage collector"]) } else { Value::Null };
        json!({
            "LeafNodeType": leaf_type,
            "ContainerHierarchyTexts": containers,
            "LeafNodeText": text,
            "State": state,
            "RunTime": took_s * 1e9,
            "Failure": { "Message": message },
        })
    }

    fn check(will_run: u64, specs: &[(&str, &str, &str, f64, &str)], expected: &Expect) {
        let specs: Vec<Value> = specs.iter().copied().map(spec).collect();
        let report =
            json!([{ "PreRunStats": { "SpecsThatWillRun": will_run }, "SpecReports": specs }]).to_string();
        let outcome = read(&report).unwrap();
        let lines = outcome.lines.join("\n");
        expected.assert_eq(&format!("{lines}\n{} passed, {} failed\n", outcome.passed, outcome.failed));
    }

    #[test]
    fn specs_that_the_focus_leaves_out_are_not_told() {
        let specs = [
            ("SynchronizedBeforeSuite", "", "passed", 0.1, ""),
            ("It", "should collect", "passed", 5.25, ""),
            ("It", "should do another thing", "skipped", 0.0, ""),
            ("It", "should orphan", "failed", 30.0, "expect 2 pods, got 1 pods\nand more"),
            ("It", "should run some day", "pending", 0.0, ""),
        ];
        check(
            2,
            &specs,
            &expect![[r#"
                ok [sig] Garbage collector should collect 5.2s
                FAILED [sig] Garbage collector should orphan: failed: expect 2 pods, got 1 pods
                1 passed, 1 failed
            "#]],
        );
    }

    #[test]
    fn a_suite_that_stops_half_way_has_failed() {
        let specs = [
            ("SynchronizedBeforeSuite", "", "failed", 600.0, "no node is ready"),
            ("It", "should collect", "skipped", 0.0, ""),
        ];
        check(
            11,
            &specs,
            &expect![[r#"
                FAILED SynchronizedBeforeSuite: failed: no node is ready
                FAILED 11 more that never ran
                0 passed, 12 failed
            "#]],
        );
    }

    #[test]
    fn a_spec_that_skips_itself_proves_nothing() {
        let specs =
            [("It", "should collect", "skipped", 0.1, ""), ("It", "should orphan", "timedout", 3600.0, "")];
        check(
            2,
            &specs,
            &expect![[r#"
                FAILED [sig] Garbage collector should collect: skipped
                FAILED [sig] Garbage collector should orphan: timedout
                0 passed, 2 failed
            "#]],
        );
    }

    #[test]
    fn what_is_no_report_is_an_error() {
        for text in ["", "[]", "{}", r#"[{"SpecReports": []}]"#] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
