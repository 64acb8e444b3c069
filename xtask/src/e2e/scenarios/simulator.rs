//! Whether the simulator, on which so much else is tried, is true.

use gc_tests::conversation::{RECORDED, Real, converse, difference, requests};

use crate::e2e::world::World;
use crate::failure::Failure;

/// Holds every recorded conversation with the real server again; `cargo test` holds the same with the simulator.
pub fn answers_as_the_server_does(world: &mut World<'_>) -> Result<(), Failure> {
    let mut differences = String::new();
    let mut asked = 0;
    for (name, recorded) in RECORDED {
        let answered = converse(recorded, &mut Real::new(world.api().client()))
            .map_err(|why| Failure::new(format!("{name}: {why}")))?;
        let difference = difference(["recorded", "now"], [recorded, &answered]);
        if !difference.is_empty() {
            differences += &format!("{name}:\n{difference}");
        }
        asked += requests(recorded);
    }
    if !differences.is_empty() {
        return Err(Failure::new(format!("the server does not answer as was recorded:\n{differences}")));
    }
    eprintln!("the simulator answers as the server does: {asked} requests");
    Ok(())
}
