//! Input that no well-meaning client sends. Any of it may come: references are written by users.

use expect_test::expect;

use super::check;
use crate::fixture::Fixture;
use crate::store::Limits;
use crate::{Effect, Graph, Observation, OwnerReferenceRef, SourceId};

/// It is its own dependent while it is there; when it goes, nobody is left to be told.
#[test]
fn an_object_may_name_itself() {
    check(
        "
        cm/a @ns owners=[cm/a!]
        cm/a @ns rv=2 owners=[cm/a!] finalizers=[foreground] deleting
        cm/a @ns rv=3 owners=[cm/b]
        cm/a @ns rv=4 owners=[cm/a!]
        delete cm/a @ns",
        expect![[r#"
            cm/a @ns owners=[cm/a!]
            cm/a @ns rv=2 owners=[cm/a!] finalizers=[foreground] deleting
                attempt-to-delete a
            cm/a @ns rv=3 owners=[cm/b]
                attempt-to-delete b
                attempt-to-delete a
            cm/a @ns rv=4 owners=[cm/a!]
            delete cm/a @ns
            ---
        "#]],
    );
}

#[test]
fn an_object_may_name_itself_wrongly() {
    check(
        "
        cm/a @ns owners=[secret/x!#a, cm/a]
        vdelete secret/x @ns uid=a
        vdelete cm/a @ns",
        expect![[r#"
            cm/a @ns owners=[secret/x!#a, cm/a]
                attempt-to-delete a
            vdelete secret/x @ns uid=a
                absent Secret.v1 ns/x (a)
                attempt-to-delete a
            vdelete cm/a @ns
            ---
        "#]],
    );
}

/// kubernetes#50047
#[test]
fn objects_may_own_each_other() {
    check(
        "
        cm/a @ns owners=[cm/c!]
        cm/b @ns owners=[cm/a!]
        cm/c @ns owners=[cm/b!]
        delete cm/b @ns
        delete cm/a @ns
        delete cm/c @ns",
        expect![[r#"
            cm/a @ns owners=[cm/c!]
                attempt-to-delete c
            cm/b @ns owners=[cm/a!]
            cm/c @ns owners=[cm/b!]
            delete cm/b @ns
                absent ConfigMap.v1 ns/b (b)
                attempt-to-delete c
            delete cm/a @ns
            delete cm/c @ns
            ---
        "#]],
    );
}

#[test]
fn an_empty_uid_in_a_reference_names_nobody() {
    check(
        "
        cm/a @ns owners=[cm/x!#, secret/y#]
        cm/a @ns rv=2 owners=[cm/x!#, secret/y#]
        cm/a @ns rv=3 owners=[cm/x#]
        vdelete cm/x @ns uid=
        delete cm/a @ns",
        expect![[r#"
            cm/a @ns owners=[cm/x!#, secret/y#]
            cm/a @ns rv=2 owners=[cm/x!#, secret/y#]
            cm/a @ns rv=3 owners=[cm/x#]
            vdelete cm/x @ns uid=
            delete cm/a @ns
            ---
        "#]],
    );
}

#[test]
fn an_object_without_a_uid_is_refused() {
    check(
        "
        cm/a @ns uid=
        delete cm/a @ns uid=",
        expect![[r#"
            cm/a @ns uid=
            delete cm/a @ns uid=
            ---
        "#]],
    );
}

#[test]
fn spellings_of_a_uid_are_different_uids() {
    check(
        "
        cm/a @ns uid=0123abcd-4567-89ab-cdef-0123456789ab
        cm/b @ns uid=0123ABCD-4567-89AB-CDEF-0123456789AB
        cm/c @ns owners=[cm/a#0123abcd-4567-89ab-cdef-0123456789ab, cm/a#0123ABCD-4567-89ab-cdef-0123456789AB]
        delete cm/b @ns uid=0123ABCD-4567-89AB-CDEF-0123456789AB",
        expect![[r#"
            cm/a @ns uid=0123abcd-4567-89ab-cdef-0123456789ab
            cm/b @ns uid=0123ABCD-4567-89AB-CDEF-0123456789AB
            cm/c @ns owners=[cm/a#0123abcd-4567-89ab-cdef-0123456789ab, cm/a#0123ABCD-4567-89ab-cdef-0123456789AB]
                attempt-to-delete 0123ABCD-4567-89ab-cdef-0123456789AB
            delete cm/b @ns uid=0123ABCD-4567-89AB-CDEF-0123456789AB
            ---
            ConfigMap.v1 ns/a (0123ABCD-4567-89ab-cdef-0123456789AB) virtual
            ConfigMap.v1 ns/a (0123abcd-4567-89ab-cdef-0123456789ab) rv=1
            ConfigMap.v1 ns/c (c) rv=1 owners=[0123abcd-4567-89ab-cdef-0123456789ab, 0123ABCD-4567-89ab-cdef-0123456789AB]
        "#]],
    );
}

#[test]
fn a_resource_version_is_kept_to_the_letter() {
    check(
        "
        cm/a @ns rv=18446744073709551615
        cm/b @ns rv=18446744073709551616
        cm/c @ns rv=007
        cm/d @ns rv=
        cm/e @ns rv=0
        cm/f @ns rv=+1
        cm/g @ns rv=opaque
        cm/g @ns rv=opaque-too
        cm/h @ns rv=opaque
        cm/h @ns rv=1",
        expect![[r#"
            cm/a @ns rv=18446744073709551615
            cm/b @ns rv=18446744073709551616
            cm/c @ns rv=007
            cm/d @ns rv=
            cm/e @ns rv=0
            cm/f @ns rv=+1
            cm/g @ns rv=opaque
            cm/g @ns rv=opaque-too
            cm/h @ns rv=opaque
            cm/h @ns rv=1
            ---
            ConfigMap.v1 ns/a (a) rv=18446744073709551615
            ConfigMap.v1 ns/b (b) rv=18446744073709551616
            ConfigMap.v1 ns/c (c) rv=007
            ConfigMap.v1 ns/d (d) rv=
            ConfigMap.v1 ns/e (e) rv=0
            ConfigMap.v1 ns/f (f) rv=+1
            ConfigMap.v1 ns/g (g) rv=opaque-too
            ConfigMap.v1 ns/h (h) rv=1
        "#]],
    );
}

#[test]
fn duplicate_references_count_once() {
    check(
        "
        cm/o @ns
        cm/a @ns owners=[cm/o, cm/o!, secret/o#o, cm/o*]
        cm/o @ns rv=2 finalizers=[foreground] deleting
        cm/a @ns rv=2 owners=[secret/o#o, cm/o]
        delete cm/a @ns",
        expect![[r#"
            cm/o @ns
            cm/a @ns owners=[cm/o, cm/o!, secret/o#o, cm/o*]
                attempt-to-delete a
            cm/o @ns rv=2 finalizers=[foreground] deleting
                attempt-to-delete a
                attempt-to-delete o
            cm/a @ns rv=2 owners=[secret/o#o, cm/o]
                attempt-to-delete o
                attempt-to-delete a
            delete cm/a @ns
                attempt-to-delete o
            ---
            ConfigMap.v1 ns/o (o) rv=2 being-deleted deleting-dependents
        "#]],
    );
}

/// Fifty thousand references in one object, all to the same owner, all to different ones, and again: a step for each
/// pair of them would not end.
#[test]
fn many_references_in_one_object_take_linear_time() {
    let count = 50_000;
    let different: Vec<String> = (0..count).map(|i| format!("cm/o#{i}")).collect();
    let same = vec!["cm/o!#0"; count].join(",");
    let script = format!(
        "cm/a @ns owners=[{0}]\ncm/a @ns owners=[{same}]\ncm/a @ns owners=[{0}]\ndelete cm/a @ns",
        different.join(",")
    );
    let mut fixture = Fixture::new();
    let steps = fixture.parse(&script).unwrap();
    let mut counts = Vec::new();
    for step in steps {
        let mut effects = Vec::new();
        step.change.apply(&mut fixture.graph, &mut effects);
        counts.push((effects.len(), fixture.graph.len()));
    }
    // The owner that is left is freed of a blocking reference when the references are different again.
    assert_eq!(counts, [(count, count + 1), (0, 2), (count, count + 1), (0, 0)]);
    fixture.graph.check_invariants().unwrap();
}

/// A chain as deep as a user likes must not be a matter of the stack.
#[test]
fn depth_is_no_danger() {
    let depth = 200_000;
    let mut graph = Graph::new();
    let mut effects = Vec::new();
    for i in 0..depth {
        let (uid, owner) = (i.to_string(), ((i + 1) % depth).to_string());
        let owners = [OwnerReferenceRef { uid: &owner, ..OWNER }];
        graph.observe(&Observation { uid: &uid, owner_references: &owners, ..OBSERVATION }, &mut effects);
    }
    let cycles = graph.cycles();
    assert_eq!((cycles.len(), cycles[0].len()), (1, depth));
    assert!(graph.blocking_chain(&"0".into()).truncated);
    graph.check_invariants().unwrap();
}

#[test]
fn what_does_not_fit_is_refused_whole() {
    let mut graph = Graph::new();
    graph.store.limits = Limits { nodes: 3, edges: 2, ..Limits::MAX };
    let mut effects = Vec::new();
    let one = [OwnerReferenceRef { uid: "o", ..OWNER }];
    let three = [OWNER, OWNER, OWNER];
    let a = Observation { uid: "a", ..OBSERVATION };
    graph.observe(&Observation { owner_references: &one, ..a }, &mut effects);
    graph.begin_list(SourceId(0));
    let refused = Observation { resource_version: "2", owner_references: &three, ..a };
    graph.observe(&refused, &mut effects);
    graph.end_list(SourceId(0), &mut effects);
    // It is still there, as it was: what was refused must not count as gone, and no decision can be made on it,
    // since the server knows a newer version.
    let node = graph.get(&"a".into()).unwrap();
    assert_eq!(
        (node.resource_version(), node.owner_references().count(), graph.refused()),
        ("1".into(), 1, 1)
    );
    assert_eq!(effects, [Effect::AttemptToDelete("o".into()), Effect::AttemptToDelete("a".into())]);
    graph.observe(&Observation { uid: "b", owner_references: &one, ..OBSERVATION }, &mut effects);
    assert_eq!((graph.len(), graph.refused()), (2, 2));
    graph.delete(&a, &mut effects);
    assert_eq!(graph.len(), 0);
    graph.check_invariants().unwrap();
}

const OWNER: OwnerReferenceRef<'static> = OwnerReferenceRef {
    api_version: "v1",
    kind: "ConfigMap",
    name: "o",
    uid: "o",
    controller: false,
    block_owner_deletion: true,
};

const OBSERVATION: Observation<'static> = Observation {
    source: SourceId(0),
    api_version: "v1",
    kind: "ConfigMap",
    namespace: "ns",
    name: "a",
    uid: "a",
    resource_version: "1",
    being_deleted: true,
    has_foreground_finalizer: true,
    has_orphan_finalizer: false,
    owner_references: &[],
};
