//! Who is taken for whom: objects and owners that share a UID, a name or a kind, and nothing else.

use expect_test::expect;

use super::check;
use crate::fixture::Fixture;
use crate::{Node, Uid};

/// The owner was deleted and made anew under its name; its dependent now names the new one.
#[test]
fn g6_a_reference_to_another_uid_under_the_same_name_is_another_reference() {
    check(
        "
        cm/owner @ns uid=old
        cm/child @ns owners=[cm/owner!#old]
        cm/child @ns rv=2 owners=[cm/owner!#new]
        cm/owner @ns uid=new",
        expect![[r#"
            cm/owner @ns uid=old
            cm/child @ns owners=[cm/owner!#old]
            cm/child @ns rv=2 owners=[cm/owner!#new]
                attempt-to-delete new
                attempt-to-delete old
            cm/owner @ns uid=new
            ---
            ConfigMap.v1 ns/child (child) rv=2 owners=[new!]
            ConfigMap.v1 ns/owner (new) rv=1
            ConfigMap.v1 ns/owner (old) rv=1
        "#]],
    );
}

/// As `Ingress` was in `extensions` and `networking.k8s.io`.
#[test]
fn g5b_one_object_in_two_groups_does_not_flap() {
    check(
        "
        ingress.extensions/v1beta1/i @ns uid=u rv=1 source=8
        ingress.networking.k8s.io/v1/i @ns uid=u rv=2 source=9",
        expect![[r#"
            ingress.extensions/v1beta1/i @ns uid=u rv=1 source=8
            ingress.networking.k8s.io/v1/i @ns uid=u rv=2 source=9
            ---
            ingress.extensions/v1beta1 ns/i (u) rv=2
        "#]],
    );
}

/// It is checked with every change of the references: the last check may have ended at one that is gone now. In another
/// namespace it means another owner.
#[test]
fn g4_a_wrong_reference_is_reported_again_only_where_it_means_something_else() {
    check(
        "
        cm/owner @a
        cm/child @b owners=[cm/owner]
        cm/child @b rv=2 owners=[cm/owner, cm/other]
        cm/child @c rv=3 owners=[cm/owner, cm/other, cm/more]",
        expect![[r#"
            cm/owner @a
            cm/child @b owners=[cm/owner]
                invalid-owner-reference ConfigMap.v1 b/child (child) -> ConfigMap.v1 owner (owner), which is in "a"
                attempt-to-delete child
            cm/child @b rv=2 owners=[cm/owner, cm/other]
                attempt-to-delete other
                attempt-to-delete child
            cm/child @c rv=3 owners=[cm/owner, cm/other, cm/more]
                invalid-owner-reference ConfigMap.v1 c/child (child) -> ConfigMap.v1 owner (owner), which is in "a"
                attempt-to-delete more
                attempt-to-delete child
            ---
            ConfigMap.v1 c/child (child) rv=3 owners=[owner, other, more]
            ConfigMap.v1 c/more (more) virtual
            ConfigMap.v1 b/other (other) virtual
            ConfigMap.v1 a/owner (owner) rv=1
        "#]],
    );
}

/// Nobody knows what becomes of a kind that is no longer served, so nothing of it is under way.
#[test]
fn s2_what_is_no_longer_served_is_neither_deleting_dependents_nor_orphaning() {
    for finalizer in ["foreground", "orphan"] {
        let mut fixture = Fixture::new();
        fixture
            .run(&format!(
                "widget/owner @ns finalizers=[{finalizer}] deleting
                 cm/child @ns owners=[widget/owner!]
                 unserve widget"
            ))
            .unwrap();
        let owner = fixture.graph.get(&Uid::new("owner")).unwrap();
        let says = [owner.is_being_deleted(), owner.is_deleting_dependents(), owner.is_orphaning()];
        assert!(owner.is_virtual() && says == [false; 3], "{finalizer}: {says:?}");
    }
}

#[test]
fn g9_the_least_of_the_coordinates_that_follow_is_taken_whatever_their_order() {
    for order in [["b", "c", "d"], ["d", "c", "b"], ["c", "b", "d"]] {
        let mut fixture = Fixture::new();
        fixture.run("cm/first @ns owners=[cm/a#owner]").unwrap();
        for name in order {
            fixture.run(&format!("cm/of-{name} @ns owners=[cm/{name}#owner]")).unwrap();
        }
        for (absent, next) in [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")] {
            fixture.run(&format!("vdelete cm/{absent} @ns uid=owner")).unwrap();
            let owner = fixture.graph.get(&Uid::new("owner")).unwrap();
            assert_eq!(owner.name(), next, "{order:?}");
        }
    }
}

#[test]
fn g9_a_virtual_node_all_of_whose_coordinates_are_absent_is_deleted() {
    let mut fixture = Fixture::new();
    fixture.run("cm/a @ns owners=[cm/x#o]\ncm/b @ns owners=[cm/y#o]\ncm/seen @ns").unwrap();
    let mut effects = Vec::new();
    for uid in ["o", "seen", "nobody"] {
        fixture.graph.virtual_delete_all(&Uid::new(uid), &mut effects);
        fixture.graph.check_invariants().unwrap();
    }
    let effects: Vec<String> = effects.iter().map(ToString::to_string).collect();
    assert_eq!(effects, ["absent ConfigMap.v1 ns/x (o)", "attempt-to-delete a", "attempt-to-delete b"]);
    assert_eq!((fixture.graph.len(), fixture.graph.virtual_len()), (3, 0), "what is seen stays");
}

#[test]
fn g11_a_node_that_nobody_has_seen_has_no_version() {
    let mut fixture = Fixture::new();
    fixture.run("cm/a @ns rv=7 owners=[cm/x#o]\ncm/b @ns owners=[cm/y#o]").unwrap();
    let version = |uid: &str| fixture.graph.get(&Uid::new(uid)).unwrap().resource_version();
    assert_eq!((version("a").as_str(), version("o").as_str()), ("7", ""));
}

#[test]
fn g11_nodes_are_the_same_when_they_are_one_node() {
    let mut fixture = Fixture::new();
    assert!(fixture.graph.is_empty());
    fixture.run("cm/a @ns owners=[cm/o]\ncm/o @ns").unwrap();
    assert!(!fixture.graph.is_empty());
    let node = |uid: &str| fixture.graph.get(&Uid::new(uid)).unwrap();
    let owner = node("a").owners().next().map(|(owner, _)| owner);
    assert!(owner == Some(node("o")) && owner != Some(node("a")));
    assert_eq!([node("a"), node("o")].map(|node: Node<'_>| node.has_dependents()), [false, true]);
}

/// One ring in the order of ownership, begun at its least; a group that is more than a ring in the order of its UIDs.
#[test]
fn g11_a_group_that_is_more_than_a_ring_is_in_the_order_of_its_uids() {
    let cycles = |text: &str| {
        let mut fixture = Fixture::new();
        fixture.run(text).unwrap();
        let cycles = fixture.graph.cycles();
        cycles
            .iter()
            .map(|cycle| cycle.iter().map(ToString::to_string).collect::<String>())
            .collect::<Vec<_>>()
    };
    assert_eq!(cycles("cm/a owners=[cm/c]\ncm/c owners=[cm/b]\ncm/b owners=[cm/a]"), ["acb"]);
    // From a one comes to d and back, and b hangs on it: not all are on the way.
    assert_eq!(cycles("cm/a owners=[cm/d, cm/b]\ncm/d owners=[cm/a]\ncm/b owners=[cm/a]"), ["abd"]);
    // From a one comes into a ring that a is not on.
    assert_eq!(
        cycles("cm/a owners=[cm/d]\ncm/d owners=[cm/c]\ncm/c owners=[cm/d, cm/b]\ncm/b owners=[cm/a]"),
        ["abcd"]
    );
}
