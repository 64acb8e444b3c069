//! The requirements as text: changes in, effects and graphs out.

mod bounds;
mod changes;
mod coordinates;
mod hostile;
mod lists;
mod model;
mod properties;
mod questions;
mod reference;
mod small_worlds;

use expect_test::Expect;

use crate::fixture::{Fixture, print};

/// Runs a script of changes; what is expected are its lines, each followed by its effects, then the graph.
#[expect(clippy::needless_pass_by_value, reason = "expect![] stands in the argument list without a sigil")]
fn check(script: &str, expect: Expect) {
    let mut fixture = Fixture::new();
    let mut printed = String::new();
    for step in fixture.parse(script).unwrap() {
        let mut effects = Vec::new();
        step.change.apply(&mut fixture.graph, &mut effects);
        fixture.graph.check_invariants().unwrap_or_else(|problem| panic!("{problem} after {:?}", step.line));
        printed += &step.line;
        printed += "\n";
        for effect in effects {
            printed += &format!("    {effect}\n");
        }
    }
    expect.assert_eq(&format!("{printed}---\n{}", print(&fixture.graph)));
}
