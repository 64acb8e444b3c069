//! The questions of spec G11.

use expect_test::{Expect, expect};

use crate::fixture::Fixture;
use crate::{BlockingChain, Coordinate, Graph, Node, Uid};

const WORLD: &str = "
    deploy/d @ns finalizers=[foreground] deleting
    rs/r @ns owners=[deploy/d!*] finalizers=[foreground] deleting
    pod/p1 @ns owners=[rs/r!*]
    pod/p2 @ns owners=[rs/r!*] finalizers=[x] deleting
    cm/loose @ns owners=[deploy/d]
    cm/dangling @ns owners=[cm/gone]
    cm/alone @ns";

fn world(text: &str) -> Graph {
    let mut fixture = Fixture::new();
    fixture.run(text).unwrap();
    fixture.graph.check_invariants().unwrap();
    fixture.graph
}

fn names<'g>(nodes: impl Iterator<Item = Node<'g>>) -> String {
    nodes.map(|node| node.name()).collect::<Vec<_>>().join(" ")
}

#[expect(clippy::needless_pass_by_value, reason = "expect![] stands in the argument list without a sigil")]
fn check_cycles(text: &str, expect: Expect) {
    let join = |uids: Vec<Uid>| uids.iter().map(Uid::to_string).collect::<Vec<_>>().join(" ") + "\n";
    expect.assert_eq(&world(text).cycles().into_iter().map(join).collect::<String>());
}

#[expect(clippy::needless_pass_by_value, reason = "expect![] stands in the argument list without a sigil")]
fn check_chain(text: &str, uid: &str, expect: Expect) {
    let graph = world(text);
    let BlockingChain { steps, truncated } = graph.blocking_chain(&uid.into());
    assert!(!truncated);
    let print = |step: &crate::BlockingStep<'_>| {
        let end = if step.is_end { " (holds)" } else { "" };
        let again = if step.is_repeated { " (again)" } else { "" };
        format!("{}{}{end}{again}\n", "  ".repeat(step.depth), step.node.name())
    };
    expect.assert_eq(&steps.iter().map(print).collect::<String>());
}

#[test]
fn g11_nodes_of_a_kind_roots_and_dependents() {
    let graph = world(WORLD);
    assert_eq!(names(graph.nodes_of_kind("v1", "Pod")), "p1 p2");
    assert_eq!(names(graph.nodes_of_kind("v1", "ConfigMap")), "loose dangling gone alone");
    assert_eq!(names(graph.nodes_of_kind("v2", "Pod")), "");
    assert_eq!(names(graph.roots()), "d gone alone");
    let deployment = graph.get(&"d".into()).unwrap();
    assert_eq!(names(deployment.dependents()), "r loose");
    assert_eq!(names(deployment.blocking_dependents()), "r");
    assert_eq!((graph.len(), graph.virtual_len()), (8, 1));
}

#[test]
fn g11_a_node_gives_back_what_was_observed() {
    let graph = world(
        "cm/o @ns
        cm/a @ns uid=0123abcd-4567-89ab-cdef-0123456789ab rv=5 owners=[secret/x!#o, cm/o, deployment.apps/v1beta1/d*#o, cm/none#]",
    );
    let node = graph.get(&"0123abcd-4567-89ab-cdef-0123456789ab".into()).unwrap();
    expect![[r#"
        ConfigMap.v1 ns/a (0123abcd-4567-89ab-cdef-0123456789ab) at 5
        [
            OwnerReference {
                api_version: "v1",
                kind: "Secret",
                name: "x",
                uid: Uid("o"),
                controller: false,
                block_owner_deletion: true,
            },
            OwnerReference {
                api_version: "v1",
                kind: "ConfigMap",
                name: "o",
                uid: Uid("o"),
                controller: false,
                block_owner_deletion: false,
            },
            OwnerReference {
                api_version: "apps/v1beta1",
                kind: "Deployment",
                name: "d",
                uid: Uid("o"),
                controller: true,
                block_owner_deletion: false,
            },
            OwnerReference {
                api_version: "v1",
                kind: "ConfigMap",
                name: "none",
                uid: Uid(""),
                controller: false,
                block_owner_deletion: false,
            },
        ]"#]]
    .assert_eq(&format!(
        "{} at {}\n{:#?}",
        node.coordinate(),
        node.resource_version(),
        node.owner_references().collect::<Vec<_>>()
    ));
    assert_eq!(node.owners().count(), 3);
}

#[test]
fn g11_the_blocking_chain_ends_at_what_really_holds() {
    check_chain(
        WORLD,
        "d",
        expect![[r#"
        d
          r
            p1 (holds)
            p2 (holds)
    "#]],
    );
}

#[test]
fn g11_the_blocking_chain_of_what_nothing_blocks_is_itself() {
    check_chain(
        WORLD,
        "p2",
        expect![[r#"
        p2 (holds)
    "#]],
    );
    check_chain(WORLD, "not there", expect![[""]]);
}

/// kubernetes#50047: a cycle of blocking references holds itself.
#[test]
fn g11_the_blocking_chain_passes_a_cycle_once() {
    check_chain(
        "cm/a @ns owners=[cm/c!] finalizers=[foreground] deleting
        cm/b @ns owners=[cm/a!, cm/b!] finalizers=[foreground] deleting
        cm/c @ns owners=[cm/b!, cm/a] finalizers=[foreground] deleting",
        "a",
        expect![[r#"
            a
              b
                b (again)
                c
                  a (again)
        "#]],
    );
}

#[test]
fn g11_cycles_are_found_once_in_the_order_of_ownership() {
    check_cycles(
        "cm/z @ns owners=[cm/a]
        cm/b @ns owners=[cm/z, cm/outside]
        cm/a @ns owners=[cm/b]
        cm/below @ns owners=[cm/a]
        cm/self @ns owners=[cm/self]
        cm/x @ns owners=[cm/y]
        cm/y @ns owners=[cm/x, cm/w]
        cm/w @ns owners=[cm/x]
        cm/outside @ns",
        expect![[r#"
            a b z
            self
            w x y
        "#]],
    );
    check_cycles(WORLD, expect![[""]]);
}

#[test]
fn g11_the_drawing_of_all_leaves_out_what_hangs_on_nothing() {
    let graph = world(
        "cm/alone @ns
        deploy/d @ns
        rs/r @ns owners=[deploy/d] finalizers=[foreground] deleting
        delete deploy/d @ns",
    );
    expect![[r#"
        strict digraph full {
          // Node definitions.
          "d" [
            label="uid=d\nnamespace=ns\nDeployment.v1.apps/d\nmissing\n"
            group="apps"
            version="v1"
            kind="Deployment"
            namespace="ns"
            name="d"
            uid="d"
            missing="true"
            beingDeleted="false"
            deletingDependents="false"
            virtual="false"
          ];
          "r" [
            label="uid=r\nnamespace=ns\nReplicaSet.v1.apps/r\nbeingDeleted,deletingDependents\n"
            group="apps"
            version="v1"
            kind="ReplicaSet"
            namespace="ns"
            name="r"
            uid="r"
            missing="false"
            beingDeleted="true"
            deletingDependents="true"
            virtual="false"
          ];
          // Edge definitions.
          "r" -> "d";
        }
    "#]]
    .assert_eq(&graph.dot(&[]));
}

#[test]
fn g11_the_drawing_around_some_follows_owners_and_dependents() {
    let graph =
        world("pod/a @ns owners=[pod/b, pod/c, pod/c]\npod/d @ns owners=[pod/f]\npod/f @ns owners=[pod/g]");
    let nodes = |around: &[Uid]| {
        let dot = graph.dot(around);
        dot.lines()
            .map(str::trim)
            .filter(|line| line.ends_with('[') || line.contains("->"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    expect![[r#"
          "d" [
          "f" [
          "g" [
          "d" -> "f";
          "f" -> "g";"#]]
    .assert_eq(&nodes(&["f".into()]));
    expect![[r#"
          "a" [
          "b" [
          "c" [
          "a" -> "b";
          "a" -> "c";"#]]
    .assert_eq(&nodes(&["b".into(), "a".into(), "not there".into()]));
    expect![[r#"
        strict digraph full {
        }
    "#]]
    .assert_eq(&graph.dot(&["not there".into()]));
}

#[test]
fn g11_the_drawing_quotes_everything() {
    let graph = world("pod/\"x\\\u{1b}é🐹 @ns uid=\"];evil->\"\\ owners=[pod/o]");
    expect![[r#"
        strict digraph full {
          // Node definitions.
          "\"];evil->\"\\" [
            label="uid=\"];evil->\"\\\nnamespace=ns\nPod.v1/\"x\\�é🐹\n"
            group=""
            version="v1"
            kind="Pod"
            namespace="ns"
            name="\"x\\�é🐹"
            uid="\"];evil->\"\\"
            missing="false"
            beingDeleted="false"
            deletingDependents="false"
            virtual="false"
          ];
          "o" [
            label="uid=o\nnamespace=ns\nPod.v1/o\nvirtual\n"
            group=""
            version="v1"
            kind="Pod"
            namespace="ns"
            name="o"
            uid="o"
            missing="false"
            beingDeleted="false"
            deletingDependents="false"
            virtual="true"
          ];
          // Edge definitions.
          "\"];evil->\"\\" -> "o";
        }
    "#]]
    .assert_eq(&graph.dot(&[]));
}

#[test]
fn d15_a_proof_of_absence_carries_the_time_at_which_it_was_given() {
    let mut fixture = Fixture::new();
    fixture
        .run("cm/a @ns owners=[cm/early cm/late cm/read cm/never]\ncm/early @ns\ncm/late @ns\ncm/read @ns")
        .unwrap();
    fixture.graph.set_stamp(7);
    fixture.run("delete cm/early @ns").unwrap();
    fixture.graph.set_stamp(8);
    fixture.run("delete cm/late @ns\nvdelete cm/read @ns").unwrap();
    let coordinate = |uid: &str| Coordinate {
        kind: "ConfigMap".into(),
        api_version: "v1".into(),
        namespace: "ns".into(),
        name: uid.into(),
        uid: uid.into(),
    };
    let since = |graph: &Graph| {
        ["early", "late", "read", "never", "a", "unheard"].map(|uid| graph.absent_since(&coordinate(uid)))
    };
    assert_eq!(since(&fixture.graph), [Some(7), Some(8), Some(8), None, None, None]);
    // It is of the whole coordinate.
    for other in [
        Coordinate { namespace: "elsewhere".into(), ..coordinate("late") },
        Coordinate { namespace: String::new(), ..coordinate("late") },
        Coordinate { name: "other".into(), ..coordinate("late") },
        Coordinate { kind: "Secret".into(), ..coordinate("late") },
        Coordinate { api_version: "v2".into(), ..coordinate("late") },
    ] {
        assert_eq!(fixture.graph.absent_since(&other), None, "{other}");
    }

    fixture.graph.forget_absent(&mut Vec::new());
    fixture.graph.check_invariants().unwrap();
    assert_eq!(since(&fixture.graph), [None; 6]);
}

#[test]
fn d10_a_finalizer_that_names_a_policy_is_told_while_the_object_is_not_being_deleted() {
    let told = |object: &str| world(object).get(&"a".into()).unwrap().names_policy();
    assert!(told("cm/a finalizers=[orphan]") && told("cm/a finalizers=[x foreground]"));
    assert!(!told("cm/a finalizers=[x]") && !told("cm/a finalizers=[orphan] deleting"));
    assert!(!told("cm/a finalizers=[orphan]\ncm/a") && !told("cm/a finalizers=[orphan]\nunserve cm\ncm/a"));
}

#[test]
fn d15_an_object_that_two_watches_show_under_two_kinds_is_known_as_such() {
    let told = |text: &str| world(text).get(&"u".into()).unwrap().has_two_kinds();
    assert!(told("ns/n uid=u\nproject.example.com/v1/n uid=u\nns/n uid=u"));
    assert!(!told("ns/n uid=u\nns/n uid=u rv=2"));
    assert!(!told(
        "cm/a owners=[ns/n#u]\nns/n uid=u\nproject.example.com/v1/n uid=u\ndelete ns/n uid=u\nns/n uid=u"
    ));
}

#[test]
fn g11_whether_a_node_is_blocked_and_by_one_that_is_not_on_its_way() {
    let print = |text: &str, uid: &str| {
        let graph = world(text);
        let node = graph.get(&uid.into()).unwrap();
        format!("blocked {}, by an idle one {}", node.is_blocked(), node.has_idle_blocking_dependents())
    };
    // By a replica set that is being deleted; by a pod that is not.
    assert_eq!(print(WORLD, "d"), "blocked true, by an idle one false");
    assert_eq!(print(WORLD, "r"), "blocked true, by an idle one true");
    assert_eq!(print(WORLD, "p1"), "blocked false, by an idle one false");
    // The same of one that does not wait, for which it is not counted.
    let without = "rs/r @ns\n pod/p @ns owners=[rs/r!]\n pod/q @ns owners=[rs/r]";
    assert_eq!(print(without, "r"), "blocked true, by an idle one true");
    let on_its_way = "rs/r @ns\n pod/p @ns owners=[rs/r!] finalizers=[x] deleting\n pod/q @ns owners=[rs/r]";
    assert_eq!(print(on_its_way, "r"), "blocked true, by an idle one false");
    let waits_for_nobody = "rs/r @ns finalizers=[foreground] deleting\n pod/q @ns owners=[rs/r]";
    assert_eq!(print(waits_for_nobody, "r"), "blocked false, by an idle one false");
}

#[test]
fn g9_g11_the_other_coordinates_of_a_node_that_was_never_observed() {
    let others = |text: &str, uid: &str| {
        let graph = world(text);
        let others = graph.get(&uid.into()).unwrap().other_coordinates();
        others.map(|coordinate| coordinate.to_string()).collect::<Vec<_>>().join(", ")
    };
    let named_in_two_ways = "
        cm/a @ns owners=[cm/o]
        cm/b @ns owners=[secret/x#o]
        cm/c @elsewhere owners=[cm/o]
        cm/d @ns owners=[cm/o]";
    assert_eq!(others(named_in_two_ways, "o"), "Secret.v1 ns/x (o), ConfigMap.v1 elsewhere/o (o)");
    assert_eq!(others("cm/a @ns owners=[cm/o]\n cm/b @ns owners=[cm/o]", "o"), "");
    // One that a watch has shown is what that showed.
    assert_eq!(others(&format!("{named_in_two_ways}\n cm/o @ns"), "o"), "");
}

/// One look goes through all of them: with each eighth that has gone there is one, and with each one once nobody is left
/// that has not begun to go.
#[test]
fn g11_an_owner_that_waits_is_looked_at_with_each_eighth() {
    let looks_for = |of_64: &str| {
        let mut world = "rs/r @ns finalizers=[foreground] deleting\n".to_owned();
        for n in 0..64 {
            world += &format!("pod/p{n} @ns owners=[rs/r!] {of_64}\n");
        }
        let mut fixture = Fixture::new();
        fixture.run(&world).unwrap();
        let mut looks = String::new();
        for n in 0..64 {
            let effects = fixture.run(&format!("delete pod/p{n} @ns")).unwrap();
            fixture.graph.check_invariants().unwrap();
            looks.push(if effects.contains("attempt-to-delete r\n") { 'r' } else { '.' });
        }
        looks
    };
    expect![".......r......r.....r....r....r...r...r..r..r..r.r.r.r.rrrrrrrrr"].assert_eq(&looks_for(""));
    assert_eq!(looks_for("finalizers=[x] deleting"), "r".repeat(64));
}
