//! What the graph may take: its limits to the unit, and the memory that its documentation promises.

use crate::fixture::Fixture;
use crate::store::{Limits, reserve_one_eighth};

/// Whether a graph with these limits takes the last of these objects, after all the others.
#[track_caller]
fn takes(limits: Limits, objects: &str) -> bool {
    let mut fixture = Fixture::new();
    fixture.graph.store.limits = limits;
    fixture.run(objects).unwrap();
    fixture.graph.check_invariants().unwrap();
    let refused = fixture.graph.refused();
    let lines = objects.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(refused <= 1, "only the last of {lines} may be refused");
    refused == 0
}

#[test]
fn g2_as_many_nodes_as_there_is_room_for() {
    let (full, one_more) =
        ("cm/a @ns\ncm/b @ns owners=[cm/x, cm/y]", "cm/a @ns\ncm/b @ns owners=[cm/x, cm/y, cm/z]");
    let limits = Limits { nodes: 4, ..Limits::MAX };
    assert!(takes(limits, full) && !takes(limits, one_more));
}

#[test]
fn g2_as_many_references_as_there_is_room_for() {
    let (full, one_more) = (
        "cm/a @ns owners=[cm/x]\ncm/b @ns owners=[cm/x, cm/y]",
        "cm/a @ns owners=[cm/x]\ncm/b @ns owners=[cm/x, cm/y, cm/z]",
    );
    let limits = Limits { edges: 3, ..Limits::MAX };
    assert!(takes(limits, full) && !takes(limits, one_more));
}

/// Each reference may say something else of its owner than others do, and so may change what they said.
#[test]
fn g2_as_many_written_coordinates_as_there_is_room_for() {
    let world = "cm/owner @ns\ncm/a @ns owners=[cm/wrong#owner]\n";
    let (full, one_more) =
        ("cm/b @ns owners=[cm/p#owner, cm/q#owner]", "cm/b @ns owners=[cm/p#owner, cm/q#owner, cm/r#owner]");
    let limits = Limits { written: 7, ..Limits::MAX };
    assert!(takes(limits, &format!("{world}{full}")) && !takes(limits, &format!("{world}{one_more}")));
}

#[test]
fn g2_as_much_text_as_there_is_room_for() {
    // Texts take whole eights, and twice that when they are long: 3 for UID, name and version, 1 for each 4 bytes.
    let object = |name: &str| format!("cm/{name} @ns uid=12345678 rv=x2345678");
    let limits = Limits { text_units: 3 + 2 * 4, ..Limits::MAX };
    assert!(takes(limits, &object("n2345678")), "24 bytes");
    assert!(takes(limits, &object("n2345678901234567890123")), "39 bytes");
    assert!(!takes(limits, &object("n23456789012345678901234")), "40 bytes");
    // A UID and a name for each reference.
    let limits = Limits { text_units: 5 + 2 * 5, ..Limits::MAX };
    let owned =
        |owner: &str| format!("cm/n2345678 @ns uid=12345678 rv=x2345678 owners=[cm/{owner}#u2345678]");
    assert!(takes(limits, &owned("o2345678")) && takes(limits, &owned("o23456789012345")));
    assert!(!takes(limits, &owned("o234567890123456")));
}

/// What the crate's documentation says: 116 bytes for an object with one owner and a name of 24 characters.
#[test]
fn g12_an_object_takes_as_many_bytes_as_the_documentation_says() {
    let with = |objects: usize, namespaces: usize, written: usize| {
        let mut fixture = Fixture::new();
        let mut script = "cm/owner @ns uid=00000000-0000-4000-8000-000000000000\n".to_owned();
        for i in 0..objects {
            let (namespace, owner) = (i % namespaces, i % written);
            let owner = if owner == 0 { "owner".into() } else { format!("wrong-{owner}") };
            script += &format!(
                "cm/a-name-of-24-chars-{i:05} @ns-{namespace} uid={:08x}-0000-4000-8000-000000000000 \
                 owners=[cm/{owner}#00000000-0000-4000-8000-000000000000]\n",
                i + 1
            );
        }
        fixture.run(&script).unwrap();
        fixture.graph.memory_bytes()
    };
    let object = with(20_000, 1, 1) as f64 / 20_000.0;
    assert!((114.0..124.0).contains(&object), "{object} bytes an object");
    // The numbers of namespaces, and of what references say besides, count as well.
    let namespace = (with(20_000, 20_000, 1) - with(20_000, 1, 1)) as f64 / 20_000.0;
    assert!((55.0..70.0).contains(&namespace), "{namespace} bytes a namespace");
    let written = (with(20_000, 1, 20_000) - with(20_000, 1, 1)) as f64 / 20_000.0;
    assert!((65.0..85.0).contains(&written), "{written} bytes a written coordinate");
}

/// Each kind of memory comes back by itself, whatever the others hold.
#[test]
fn g12_memory_comes_back_of_whatever_there_was_too_much() {
    let uid = |number: usize| format!("{number:08x}-0000-4000-8000-000000000000");
    let object = |i: usize, owners: &str| format!("cm/n{i} @ns uid={} owners=[{owners}]\n", uid(i));
    let all = |count: usize, owners: &dyn Fn(usize) -> String| -> String {
        (0..count).map(|i| object(i, &owners(i))).collect()
    };
    let many = |i: usize| {
        (0..40).map(|j| format!("cm/o{j}#{}", uid((1 << 20) + (i + j) % 64))).collect::<Vec<_>>().join(", ")
    };
    let spelled =
        |i: usize| (0..10).map(|j| format!("cm/w{i}-{j}#{}", uid(1 << 20))).collect::<Vec<_>>().join(", ");
    let long = |i: usize| format!("cm/{}{i}#{}", "x".repeat(400), uid((2 << 20) + i));
    for (what, full) in [
        ("references", all(1_000, &many)),
        ("written coordinates", all(2_000, &spelled)),
        ("names", all(1_500, &long)),
    ] {
        let mut fixture = Fixture::new();
        fixture.run(&full).unwrap();
        let held = fixture.graph.memory_bytes();
        // The objects stay; what they said is taken back.
        fixture.run(&all(2_000, &|_| String::new())).unwrap();
        let left = fixture.graph.memory_bytes();
        fixture.graph.check_invariants().unwrap();
        assert!(left < 512 << 10 && left < held / 2, "{what}: {held} bytes, then {left}");
    }
}

#[test]
fn g12_nothing_is_rebuilt_while_more_than_half_is_in_use() {
    let mut fixture = Fixture::new();
    let lines = |verb: &str, numbers: std::ops::Range<usize>| -> String {
        numbers.map(|i| format!("{verb} cm/a-name-of-usual-length-{i} @namespace-{i}\n")).collect()
    };
    fixture.run(&lines("observe", 0..20_000)).unwrap();
    let full = fixture.graph.memory_bytes();
    fixture.run(&lines("delete", 0..9_000)).unwrap();
    let nodes = &fixture.graph.store.nodes;
    assert_eq!(nodes.slots.len(), 20_000);
    // The lists of free places, of nodes and of namespaces, are all that came to it.
    assert_eq!(fixture.graph.memory_bytes() - full, 2 * nodes.free.capacity() * size_of::<u32>());
    fixture.run(&lines("delete", 9_000..13_000)).unwrap();
    assert!(fixture.graph.store.nodes.slots.len() < 11_000);
}

/// Small graphs are never rebuilt: there is nothing to win.
#[test]
fn g12_a_small_graph_keeps_its_memory() {
    let mut fixture = Fixture::new();
    let all: String = (0..1_500).map(|i| format!("cm/a-name-of-usual-length-{i} @ns\n")).collect();
    fixture.run(&all).unwrap();
    let gone: String = (0..1_499).map(|i| format!("delete cm/a-name-of-usual-length-{i} @ns\n")).collect();
    fixture.run(&gone).unwrap();
    assert_eq!(fixture.graph.store.nodes.slots.len(), 1_500);
}

#[test]
fn g12_buffers_grow_by_an_eighth() {
    let grown = |len: usize, more: usize| {
        let mut buffer = vec![0_u8; len];
        reserve_one_eighth(&mut buffer, more);
        buffer.capacity()
    };
    assert_eq!(grown(8_008, 1), 8_008 + 1_001);
    assert_eq!(grown(8, 1), 8 + 64, "by 64 at least");
    assert_eq!(grown(8, 500), 508, "by what is needed at least");
    let mut roomy: Vec<u8> = Vec::with_capacity(1_000);
    roomy.resize(990, 0);
    reserve_one_eighth(&mut roomy, 10);
    assert_eq!(roomy.capacity(), 1_000, "there is room");
    reserve_one_eighth(&mut roomy, 11);
    assert_eq!(roomy.capacity(), 990 + 123);
}

/// Versions are numbers in every cluster there is; as text they would take twice their place.
#[test]
fn g12_a_version_that_is_a_number_takes_no_text() {
    let text = |version: &str| {
        let mut fixture = Fixture::new();
        fixture.run(&format!("cm/a @ns rv={version}")).unwrap();
        fixture.graph.store.texts.used_bytes()
    };
    let without = text("1");
    for number in ["0", "7", "123456789012", "18446744073709551615"] {
        assert_eq!(text(number), without, "{number}");
    }
    for other in ["007", "x", "18446744073709551616"] {
        assert!(without < text(other), "{other}");
    }
}
