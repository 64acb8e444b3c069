//! What each change does: spec G3 to G9.

use expect_test::expect;

use super::check;

#[test]
fn g3_an_unknown_owner_becomes_a_virtual_node() {
    check(
        "
        cm/child @ns owners=[cm/owner!*]",
        expect![[r#"
            cm/child @ns owners=[cm/owner!*]
                attempt-to-delete owner
            ---
            ConfigMap.v1 ns/child (child) rv=1 owners=[owner*!]
            ConfigMap.v1 ns/owner (owner) virtual
        "#]],
    );
}

#[test]
fn g3_a_virtual_owner_is_put_on_the_queue_once() {
    check(
        "
        cm/a @ns owners=[cm/owner]
        cm/b @ns owners=[cm/owner]
        cm/b @ns rv=2 owners=[cm/owner]",
        expect![[r#"
            cm/a @ns owners=[cm/owner]
                attempt-to-delete owner
            cm/b @ns owners=[cm/owner]
            cm/b @ns rv=2 owners=[cm/owner]
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[owner]
            ConfigMap.v1 ns/b (b) rv=2 owners=[owner]
            ConfigMap.v1 ns/owner (owner) virtual
        "#]],
    );
}

#[test]
fn g3_the_virtual_owner_of_a_cluster_scoped_object_has_no_namespace() {
    check(
        "
        node/child owners=[cm/owner]",
        expect![[r#"
            node/child owners=[cm/owner]
                attempt-to-delete owner
            ---
            Node.v1 child (child) rv=1 owners=[owner]
            ConfigMap.v1 owner (owner) virtual
        "#]],
    );
}

/// The placeholder has the namespace of its dependent; the owner, once seen, has none, and no dependent is doubted.
#[test]
fn g3_kubernetes_54940_a_cluster_scoped_owner_corrects_its_namespace() {
    check(
        "
        cm/child @ns owners=[node/owner]
        node/owner",
        expect![[r#"
            cm/child @ns owners=[node/owner]
                attempt-to-delete owner
            node/owner
            ---
            ConfigMap.v1 ns/child (child) rv=1 owners=[owner]
            Node.v1 owner (owner) rv=1
        "#]],
    );
}

#[test]
fn g4_a_reference_that_fits_is_left_alone() {
    check(
        "
        cm/owner @ns
        node/big
        cm/child @ns owners=[cm/owner, node/big]",
        expect![[r#"
            cm/owner @ns
            node/big
            cm/child @ns owners=[cm/owner, node/big]
            ---
            Node.v1 big (big) rv=1
            ConfigMap.v1 ns/child (child) rv=1 owners=[owner, big]
            ConfigMap.v1 ns/owner (owner) rv=1
        "#]],
    );
}

/// Once: an update that leaves the references alone does not report again.
#[test]
fn g4_an_owner_in_another_namespace_is_reported() {
    check(
        "
        cm/owner @other
        cm/child @ns owners=[cm/owner]
        cm/child @ns rv=2 owners=[cm/owner]
        node/big owners=[cm/owner]",
        expect![[r#"
            cm/owner @other
            cm/child @ns owners=[cm/owner]
                invalid-owner-reference ConfigMap.v1 ns/child (child) -> ConfigMap.v1 owner (owner), which is in "other"
                attempt-to-delete child
            cm/child @ns rv=2 owners=[cm/owner]
            node/big owners=[cm/owner]
                invalid-owner-reference Node.v1 big (big) -> ConfigMap.v1 owner (owner), which is in "other"
                attempt-to-delete big
            ---
            Node.v1 big (big) rv=1 owners=[owner]
            ConfigMap.v1 ns/child (child) rv=2 owners=[owner]
            ConfigMap.v1 other/owner (owner) rv=1
        "#]],
    );
}

/// Other faults before it do not hide it.
#[test]
fn g4_one_observation_reports_one_reference() {
    check(
        "
        cm/a @other
        cm/b @other
        cm/c @ns
        cm/child @ns owners=[secret/x#c, cm/a, cm/b]",
        expect![[r#"
            cm/a @other
            cm/b @other
            cm/c @ns
            cm/child @ns owners=[secret/x#c, cm/a, cm/b]
                invalid-owner-reference ConfigMap.v1 ns/child (child) -> ConfigMap.v1 a (a), which is in "other"
                attempt-to-delete child
            ---
            ConfigMap.v1 other/a (a) rv=1
            ConfigMap.v1 other/b (b) rv=1
            ConfigMap.v1 ns/c (c) rv=1
            ConfigMap.v1 ns/child (child) rv=1 owners=[c as Secret.v1 x, a, b]
        "#]],
    );
}

#[test]
fn g4_other_coordinates_of_an_owner_are_checked() {
    check(
        "
        cm/owner @ns
        cm/name @ns owners=[cm/another#owner]
        cm/kind @ns owners=[secret/owner#owner]
        cm/version @ns owners=[configmap/v2/owner#owner]
        cm/good @ns owners=[cm/owner]",
        expect![[r#"
            cm/owner @ns
            cm/name @ns owners=[cm/another#owner]
                attempt-to-delete name
            cm/kind @ns owners=[secret/owner#owner]
                attempt-to-delete kind
            cm/version @ns owners=[configmap/v2/owner#owner]
                attempt-to-delete version
            cm/good @ns owners=[cm/owner]
            ---
            ConfigMap.v1 ns/good (good) rv=1 owners=[owner]
            ConfigMap.v1 ns/kind (kind) rv=1 owners=[owner as Secret.v1 owner]
            ConfigMap.v1 ns/name (name) rv=1 owners=[owner as ConfigMap.v1 another]
            ConfigMap.v1 ns/owner (owner) rv=1
            ConfigMap.v1 ns/version (version) rv=1 owners=[owner as ConfigMap.v2 owner]
        "#]],
    );
}

/// kubernetes#98040: nobody knows yet whether the kind is namespaced.
#[test]
fn g4_a_virtual_owner_without_namespace_is_checked_from_a_namespace() {
    check(
        "
        node/first owners=[pod/owner]
        cm/second @ns owners=[pod/owner]",
        expect![[r#"
            node/first owners=[pod/owner]
                attempt-to-delete owner
            cm/second @ns owners=[pod/owner]
                attempt-to-delete second
            ---
            Node.v1 first (first) rv=1 owners=[owner]
            Pod.v1 owner (owner) virtual
            ConfigMap.v1 ns/second (second) rv=1 owners=[owner]
        "#]],
    );
}

#[test]
fn g4_a_virtual_owner_with_namespace_is_checked_from_elsewhere() {
    check(
        "
        cm/first @ns owners=[pod/owner]
        node/second owners=[pod/owner]
        cm/third @other owners=[pod/owner]",
        expect![[r#"
            cm/first @ns owners=[pod/owner]
                attempt-to-delete owner
            node/second owners=[pod/owner]
                attempt-to-delete second
            cm/third @other owners=[pod/owner]
                attempt-to-delete third
            ---
            ConfigMap.v1 ns/first (first) rv=1 owners=[owner]
            Pod.v1 ns/owner (owner) virtual
            Node.v1 second (second) rv=1 owners=[owner]
            ConfigMap.v1 other/third (third) rv=1 owners=[owner]
        "#]],
    );
}

/// The reference checks new UIDs only, so that what it does depends on what it saw before. Going back to the right
/// coordinates is a change, too, but nothing is wrong with it.
#[test]
fn g4_a_reference_that_changes_under_its_uid_is_checked() {
    check(
        "
        cm/owner @ns
        cm/child @ns owners=[cm/owner]
        cm/child @ns rv=2 owners=[secret/owner#owner]
        cm/child @ns rv=3 owners=[cm/owner!*]",
        expect![[r#"
            cm/owner @ns
            cm/child @ns owners=[cm/owner]
            cm/child @ns rv=2 owners=[secret/owner#owner]
                attempt-to-delete child
            cm/child @ns rv=3 owners=[cm/owner!*]
            ---
            ConfigMap.v1 ns/child (child) rv=3 owners=[owner*!]
            ConfigMap.v1 ns/owner (owner) rv=1
        "#]],
    );
}

#[test]
fn g5_the_first_observation_of_an_owner_settles_it() {
    check(
        "
        cm/child @ns owners=[cm/owner]
        cm/owner @ns rv=7",
        expect![[r#"
            cm/child @ns owners=[cm/owner]
                attempt-to-delete owner
            cm/owner @ns rv=7
            ---
            ConfigMap.v1 ns/child (child) rv=1 owners=[owner]
            ConfigMap.v1 ns/owner (owner) rv=7
        "#]],
    );
}

#[test]
fn g5_kubernetes_65200_an_owner_seen_elsewhere_puts_in_doubt_who_named_it_here() {
    check(
        "
        cm/bad @b uid=bad owners=[cm/owner]
        cm/good @a uid=good owners=[cm/owner]
        cm/owner @a",
        expect![[r#"
            cm/bad @b uid=bad owners=[cm/owner]
                attempt-to-delete owner
            cm/good @a uid=good owners=[cm/owner]
                attempt-to-delete good
            cm/owner @a
                invalid-owner-reference ConfigMap.v1 b/bad (bad) -> ConfigMap.v1 owner (owner), which is in "a"
                attempt-to-delete bad
            ---
            ConfigMap.v1 b/bad (bad) rv=1 owners=[owner]
            ConfigMap.v1 a/good (good) rv=1 owners=[owner]
            ConfigMap.v1 a/owner (owner) rv=1
        "#]],
    );
}

/// kubernetes#92743: the report does not depend on who came first. The virtual node already had the right coordinate,
/// so the reference would say nothing here.
#[test]
fn g5_kubernetes_65200_the_good_child_first() {
    check(
        "
        cm/good @a uid=good owners=[cm/owner]
        cm/bad @b uid=bad owners=[cm/owner]
        cm/owner @a",
        expect![[r#"
            cm/good @a uid=good owners=[cm/owner]
                attempt-to-delete owner
            cm/bad @b uid=bad owners=[cm/owner]
                attempt-to-delete bad
            cm/owner @a
                invalid-owner-reference ConfigMap.v1 b/bad (bad) -> ConfigMap.v1 owner (owner), which is in "a"
                attempt-to-delete bad
            ---
            ConfigMap.v1 b/bad (bad) rv=1 owners=[owner]
            ConfigMap.v1 a/good (good) rv=1 owners=[owner]
            ConfigMap.v1 a/owner (owner) rv=1
        "#]],
    );
}

/// A dependent that names its owner both rightly and wrongly is checked.
#[test]
fn g5_other_coordinates_than_the_observed_ones_are_checked() {
    check(
        "
        cm/a @ns owners=[secret/x#owner]
        cm/b @ns owners=[cm/owner]
        cm/c @ns owners=[cm/owner, deploy/y#owner]
        cm/owner @ns",
        expect![[r#"
            cm/a @ns owners=[secret/x#owner]
                attempt-to-delete owner
            cm/b @ns owners=[cm/owner]
                attempt-to-delete b
            cm/c @ns owners=[cm/owner, deploy/y#owner]
                attempt-to-delete c
            cm/owner @ns
                attempt-to-delete a
                attempt-to-delete c
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[owner as Secret.v1 x]
            ConfigMap.v1 ns/b (b) rv=1 owners=[owner]
            ConfigMap.v1 ns/c (c) rv=1 owners=[owner, owner as Deployment.apps/v1 y]
            ConfigMap.v1 ns/owner (owner) rv=1
        "#]],
    );
}

#[test]
fn g5_kubernetes_72192_an_owner_of_another_version_is_checked_in_both_orders() {
    check(
        "
        cm/child @ns owners=[deployment.extensions/v1beta1/d]
        deploy/d @ns
        cm/later @ns owners=[deployment.extensions/v1beta1/d]",
        expect![[r#"
            cm/child @ns owners=[deployment.extensions/v1beta1/d]
                attempt-to-delete d
            deploy/d @ns
                attempt-to-delete child
            cm/later @ns owners=[deployment.extensions/v1beta1/d]
                attempt-to-delete later
            ---
            ConfigMap.v1 ns/child (child) rv=1 owners=[d as Deployment.extensions/v1beta1 d]
            Deployment.apps/v1 ns/d (d) rv=1
            ConfigMap.v1 ns/later (later) rv=1 owners=[d as Deployment.extensions/v1beta1 d]
        "#]],
    );
}

/// The dependent of before keeps what it wrote, and need not be looked at: nothing about it changed.
#[test]
fn g5b_another_version_of_the_kind_is_taken() {
    check(
        "
        deployment.extensions/v1beta1/d @ns rv=1
        cm/old @ns owners=[deployment.extensions/v1beta1/d]
        deployment.extensions/v1/d @ns rv=2
        cm/new @ns owners=[deployment.extensions/v1/d]",
        expect![[r#"
            deployment.extensions/v1beta1/d @ns rv=1
            cm/old @ns owners=[deployment.extensions/v1beta1/d]
            deployment.extensions/v1/d @ns rv=2
            cm/new @ns owners=[deployment.extensions/v1/d]
            ---
            Deployment.extensions/v1 ns/d (d) rv=2
            ConfigMap.v1 ns/new (new) rv=1 owners=[d]
            ConfigMap.v1 ns/old (old) rv=1 owners=[d as Deployment.extensions/v1beta1 d]
        "#]],
    );
}

/// Some servers show a namespace as a project, too. Each event of either would doubt every dependent.
#[test]
fn g5b_one_object_under_two_kinds_does_not_flap() {
    check(
        "
        ns/n uid=u rv=1
        cm/child @n owners=[ns/n#u]
        project.example.com/v1/n uid=u rv=2
        ns/n uid=u rv=3
        project.example.com/v1/n uid=u rv=4",
        expect![[r#"
            ns/n uid=u rv=1
            cm/child @n owners=[ns/n#u]
            project.example.com/v1/n uid=u rv=2
            ns/n uid=u rv=3
            project.example.com/v1/n uid=u rv=4
            ---
            ConfigMap.v1 n/child (child) rv=1 owners=[u]
            Namespace.v1 n (u) rv=4
        "#]],
    );
}

/// The virtual owner goes with the last reference to it; there is nothing left to look for.
#[test]
fn g6_a_new_owner_gains_the_dependent_and_an_old_one_loses_it() {
    check(
        "
        cm/a @ns
        cm/b @ns
        cm/child @ns rv=1 owners=[cm/a]
        cm/child @ns rv=2 owners=[cm/b, cm/c]
        cm/child @ns rv=3",
        expect![[r#"
            cm/a @ns
            cm/b @ns
            cm/child @ns rv=1 owners=[cm/a]
            cm/child @ns rv=2 owners=[cm/b, cm/c]
                attempt-to-delete c
            cm/child @ns rv=3
            ---
            ConfigMap.v1 ns/a (a) rv=1
            ConfigMap.v1 ns/b (b) rv=1
            ConfigMap.v1 ns/child (child) rv=3
        "#]],
    );
}

#[test]
fn s7_what_was_being_deleted_and_lives_again_is_looked_at_again() {
    check(
        "
        cm/owner @ns
        cm/child @ns rv=1 owners=[cm/owner]
        cm/child @ns rv=2 owners=[cm/owner] deleting
        cm/child @ns rv=1 owners=[cm/owner]
        cm/owner @ns rv=2 deleting
        cm/owner @ns rv=1",
        expect![[r#"
            cm/owner @ns
            cm/child @ns rv=1 owners=[cm/owner]
            cm/child @ns rv=2 owners=[cm/owner] deleting
            cm/child @ns rv=1 owners=[cm/owner]
                attempt-to-delete child
            cm/owner @ns rv=2 deleting
            cm/owner @ns rv=1
            ---
            ConfigMap.v1 ns/child (child) rv=1 owners=[owner]
            ConfigMap.v1 ns/owner (owner) rv=1
        "#]],
    );
}

#[test]
fn g6_an_owner_that_is_no_longer_blocked_is_put_on_the_queue() {
    check(
        "
        cm/a @ns
        cm/b @ns
        cm/c @ns
        cm/child @ns rv=1 owners=[cm/a!, cm/b!, cm/c]
        cm/child @ns rv=2 owners=[cm/b, cm/c!]
        cm/child @ns rv=3",
        expect![[r#"
            cm/a @ns
            cm/b @ns
            cm/c @ns
            cm/child @ns rv=1 owners=[cm/a!, cm/b!, cm/c]
            cm/child @ns rv=2 owners=[cm/b, cm/c!]
                attempt-to-delete a
                attempt-to-delete b
            cm/child @ns rv=3
                attempt-to-delete c
            ---
            ConfigMap.v1 ns/a (a) rv=1
            ConfigMap.v1 ns/b (b) rv=1
            ConfigMap.v1 ns/c (c) rv=1
            ConfigMap.v1 ns/child (child) rv=3
        "#]],
    );
}

#[test]
fn g6_an_owner_is_blocked_while_any_reference_blocks_it() {
    check(
        "
        cm/a @ns
        cm/child @ns rv=1 owners=[cm/a!, cm/a!, cm/a]
        cm/child @ns rv=2 owners=[cm/a, cm/a!]
        cm/child @ns rv=3 owners=[cm/a, cm/a]",
        expect![[r#"
            cm/a @ns
            cm/child @ns rv=1 owners=[cm/a!, cm/a!, cm/a]
            cm/child @ns rv=2 owners=[cm/a, cm/a!]
            cm/child @ns rv=3 owners=[cm/a, cm/a]
                attempt-to-delete a
            ---
            ConfigMap.v1 ns/a (a) rv=1
            ConfigMap.v1 ns/child (child) rv=3 owners=[a, a]
        "#]],
    );
}

#[test]
fn g6_kubernetes_38679_an_update_of_an_unknown_object_inserts_it() {
    check(
        "
        observe cm/a @ns rv=99 owners=[]",
        expect![[r#"
            observe cm/a @ns rv=99 owners=[]
            ---
            ConfigMap.v1 ns/a (a) rv=99
        "#]],
    );
}

/// A patch that removes one of two owners does not make the other one a question again. But the object is looked at:
/// the reference that kept it alive may be the one that went.
#[test]
fn g6_an_absent_owner_stays_absent_when_another_reference_changes() {
    check(
        "
        cm/a @ns
        cm/b @ns
        cm/child @ns owners=[cm/a, cm/b]
        delete cm/a @ns
        cm/child @ns rv=2 owners=[cm/a]
        cm/child @ns rv=3 owners=[secret/a]",
        expect![[r#"
            cm/a @ns
            cm/b @ns
            cm/child @ns owners=[cm/a, cm/b]
            delete cm/a @ns
                absent ConfigMap.v1 ns/a (a)
                attempt-to-delete child
            cm/child @ns rv=2 owners=[cm/a]
                attempt-to-delete child
            cm/child @ns rv=3 owners=[secret/a]
                attempt-to-delete child
            ---
            ConfigMap.v1 ns/b (b) rv=1
            ConfigMap.v1 ns/child (child) rv=3 owners=[a unknown]
        "#]],
    );
}

#[test]
fn g7_foreground_deletion_starts() {
    check(
        "
        cm/owner @ns
        cm/a @ns owners=[cm/owner!]
        cm/b @ns owners=[cm/owner]
        cm/owner @ns rv=2 finalizers=[foreground]
        cm/owner @ns rv=3 finalizers=[foreground] deleting",
        expect![[r#"
            cm/owner @ns
            cm/a @ns owners=[cm/owner!]
            cm/b @ns owners=[cm/owner]
            cm/owner @ns rv=2 finalizers=[foreground]
            cm/owner @ns rv=3 finalizers=[foreground] deleting
                attempt-to-delete a
                attempt-to-delete b
                attempt-to-delete owner
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[owner!]
            ConfigMap.v1 ns/b (b) rv=1 owners=[owner]
            ConfigMap.v1 ns/owner (owner) rv=3 being-deleted deleting-dependents
        "#]],
    );
}

#[test]
fn g7_an_owner_first_seen_in_deletion_starts_it() {
    check(
        "
        cm/a @ns owners=[cm/owner!]
        cm/owner @ns finalizers=[foreground, x] deleting",
        expect![[r#"
            cm/a @ns owners=[cm/owner!]
                attempt-to-delete owner
            cm/owner @ns finalizers=[foreground, x] deleting
                attempt-to-delete a
                attempt-to-delete owner
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[owner!]
            ConfigMap.v1 ns/owner (owner) rv=1 being-deleted deleting-dependents
        "#]],
    );
}

/// The flag is a level: gone with the finalizer, back with it, and then the dependents are looked at again. A later
/// observation that still carries it puts back the node alone.
#[test]
fn g7_kubernetes_77081_a_second_foreground_delete_is_work_again() {
    check(
        "
        cm/owner @ns finalizers=[x, foreground] deleting
        cm/child @ns owners=[cm/owner]
        cm/owner @ns rv=2 finalizers=[x] deleting
        cm/owner @ns rv=3 finalizers=[x, foreground] deleting
        cm/owner @ns rv=4 finalizers=[x, foreground] deleting",
        expect![[r#"
            cm/owner @ns finalizers=[x, foreground] deleting
                attempt-to-delete owner
            cm/child @ns owners=[cm/owner]
                attempt-to-delete child
            cm/owner @ns rv=2 finalizers=[x] deleting
            cm/owner @ns rv=3 finalizers=[x, foreground] deleting
                attempt-to-delete child
                attempt-to-delete owner
            cm/owner @ns rv=4 finalizers=[x, foreground] deleting
                attempt-to-delete owner
            ---
            ConfigMap.v1 ns/child (child) rv=1 owners=[owner]
            ConfigMap.v1 ns/owner (owner) rv=4 being-deleted deleting-dependents
        "#]],
    );
}

#[test]
fn g7_kubernetes_89503_a_second_orphan_delete_is_work_again() {
    check(
        "
        cm/owner @ns finalizers=[x, orphan] deleting
        cm/owner @ns rv=2 finalizers=[x] deleting
        cm/owner @ns rv=3 finalizers=[x, orphan] deleting
        cm/owner @ns rv=4 finalizers=[x, orphan] deleting",
        expect![[r#"
            cm/owner @ns finalizers=[x, orphan] deleting
                attempt-to-orphan owner
            cm/owner @ns rv=2 finalizers=[x] deleting
            cm/owner @ns rv=3 finalizers=[x, orphan] deleting
                attempt-to-orphan owner
            cm/owner @ns rv=4 finalizers=[x, orphan] deleting
                attempt-to-orphan owner
            ---
            ConfigMap.v1 ns/owner (owner) rv=4 being-deleted orphaning
        "#]],
    );
}

#[test]
fn g7_orphan_wins() {
    check(
        "
        cm/child @ns owners=[cm/owner!]
        cm/owner @ns finalizers=[foreground, orphan] deleting
        cm/owner @ns rv=2 finalizers=[foreground] deleting",
        expect![[r#"
            cm/child @ns owners=[cm/owner!]
                attempt-to-delete owner
            cm/owner @ns finalizers=[foreground, orphan] deleting
                attempt-to-orphan owner
            cm/owner @ns rv=2 finalizers=[foreground] deleting
                attempt-to-delete child
                attempt-to-delete owner
            ---
            ConfigMap.v1 ns/child (child) rv=1 owners=[owner!]
            ConfigMap.v1 ns/owner (owner) rv=2 being-deleted deleting-dependents
        "#]],
    );
}

#[test]
fn g7_finalizers_without_deletion_only_name_a_policy() {
    check(
        "
        cm/owner @ns finalizers=[foreground, orphan]",
        expect![[r#"
            cm/owner @ns finalizers=[foreground, orphan]
            ---
            ConfigMap.v1 ns/owner (owner) rv=1 names-policy
        "#]],
    );
}

/// b is doubted, deletes dependents and is a dependent of its own dependent.
#[test]
fn g7_each_is_put_on_a_queue_once_a_change() {
    check(
        "
        cm/a @ns uid=a owners=[secret/x#b]
        cm/b @ns uid=b owners=[secret/y#a, cm/zz!]
        cm/b @ns uid=b rv=2 owners=[secret/y#a] finalizers=[foreground] deleting",
        expect![[r#"
            cm/a @ns uid=a owners=[secret/x#b]
                attempt-to-delete b
            cm/b @ns uid=b owners=[secret/y#a, cm/zz!]
                attempt-to-delete a
                attempt-to-delete zz
                attempt-to-delete b
            cm/b @ns uid=b rv=2 owners=[secret/y#a] finalizers=[foreground] deleting
                attempt-to-delete a
                attempt-to-delete b
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[b as Secret.v1 x]
            ConfigMap.v1 ns/b (b) rv=2 being-deleted deleting-dependents owners=[a as Secret.v1 y]
        "#]],
    );
}

/// All of them, also those that named it otherwise.
#[test]
fn g8_a_deletion_puts_the_dependents_on_the_queue() {
    check(
        "
        cm/owner @ns
        cm/a @ns owners=[cm/owner]
        cm/b @ns owners=[secret/x#owner]
        delete cm/owner @ns
        delete cm/a @ns
        delete cm/b @ns",
        expect![[r#"
            cm/owner @ns
            cm/a @ns owners=[cm/owner]
            cm/b @ns owners=[secret/x#owner]
                attempt-to-delete b
            delete cm/owner @ns
                absent ConfigMap.v1 ns/owner (owner)
                attempt-to-delete a
                attempt-to-delete b
            delete cm/a @ns
            delete cm/b @ns
            ---
        "#]],
    );
}

#[test]
fn g8_a_deletion_without_dependents_is_not_remembered() {
    check(
        "
        cm/owner @ns
        delete cm/owner @ns",
        expect![[r#"
            cm/owner @ns
            delete cm/owner @ns
            ---
        "#]],
    );
}

#[test]
fn g8_an_owner_that_deletes_its_dependents_is_told() {
    check(
        "
        cm/owner @ns finalizers=[foreground] deleting
        cm/other @ns
        cm/child @ns owners=[cm/owner!, cm/owner, cm/other!]
        delete cm/child @ns",
        expect![[r#"
            cm/owner @ns finalizers=[foreground] deleting
                attempt-to-delete owner
            cm/other @ns
            cm/child @ns owners=[cm/owner!, cm/owner, cm/other!]
                attempt-to-delete child
            delete cm/child @ns
                attempt-to-delete owner
            ---
            ConfigMap.v1 ns/other (other) rv=1
            ConfigMap.v1 ns/owner (owner) rv=1 being-deleted deleting-dependents
        "#]],
    );
}

#[test]
fn g8_kubernetes_38679_a_deletion_of_an_unknown_object_is_nothing() {
    check(
        "
        delete cm/a @ns owners=[cm/b]",
        expect![[r#"
            delete cm/a @ns owners=[cm/b]
            ---
        "#]],
    );
}

/// The coordinate that is remembered is the observed one (spec G5), and the wrong namespace is reported.
#[test]
fn g8_a_virtual_node_is_deleted_where_it_was_seen() {
    check(
        "
        cm/a @ns owners=[cm/owner]
        cm/b @other owners=[cm/owner]
        delete cm/owner @other",
        expect![[r#"
            cm/a @ns owners=[cm/owner]
                attempt-to-delete owner
            cm/b @other owners=[cm/owner]
                attempt-to-delete b
            delete cm/owner @other
                invalid-owner-reference ConfigMap.v1 ns/a (a) -> ConfigMap.v1 owner (owner), which is in "other"
                attempt-to-delete a
                absent ConfigMap.v1 other/owner (owner)
                attempt-to-delete b
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[owner unknown]
            ConfigMap.v1 other/b (b) rv=1 owners=[owner absent]
        "#]],
    );
}

#[test]
fn g8_a_dependent_that_comes_later_asks_again() {
    check(
        "
        cm/owner @ns
        cm/a @ns owners=[cm/owner]
        delete cm/owner @ns
        cm/b @ns owners=[cm/owner]
        vdelete cm/owner @ns
        delete cm/b @ns
        delete cm/a @ns",
        expect![[r#"
            cm/owner @ns
            cm/a @ns owners=[cm/owner]
            delete cm/owner @ns
                absent ConfigMap.v1 ns/owner (owner)
                attempt-to-delete a
            cm/b @ns owners=[cm/owner]
                attempt-to-delete owner
            vdelete cm/owner @ns
                absent ConfigMap.v1 ns/owner (owner)
                attempt-to-delete a
                attempt-to-delete b
            delete cm/b @ns
            delete cm/a @ns
            ---
        "#]],
    );
}

/// It cannot be, unless a server went back in time (spec S7). Then the dependents must not be lost on it.
#[test]
fn g8_an_owner_that_is_seen_again_has_its_dependents() {
    check(
        "
        cm/owner @ns
        cm/a @ns owners=[cm/owner!]
        delete cm/owner @ns
        cm/owner @ns rv=9
        cm/owner @ns rv=10 finalizers=[foreground] deleting",
        expect![[r#"
            cm/owner @ns
            cm/a @ns owners=[cm/owner!]
            delete cm/owner @ns
                absent ConfigMap.v1 ns/owner (owner)
                attempt-to-delete a
            cm/owner @ns rv=9
            cm/owner @ns rv=10 finalizers=[foreground] deleting
                attempt-to-delete a
                attempt-to-delete owner
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[owner!]
            ConfigMap.v1 ns/owner (owner) rv=10 being-deleted deleting-dependents
        "#]],
    );
}

#[test]
fn g9_an_unknown_uid_is_nothing() {
    check(
        "
        vdelete cm/owner @ns",
        expect![[r#"
            vdelete cm/owner @ns
            ---
        "#]],
    );
}

#[test]
fn g9_kubernetes_56121_a_virtual_node_on_which_all_agree_goes() {
    check(
        "
        cm/a @ns owners=[cm/owner]
        cm/b @ns owners=[cm/owner]
        vdelete cm/owner @ns
        delete cm/a @ns
        delete cm/b @ns",
        expect![[r#"
            cm/a @ns owners=[cm/owner]
                attempt-to-delete owner
            cm/b @ns owners=[cm/owner]
            vdelete cm/owner @ns
                absent ConfigMap.v1 ns/owner (owner)
                attempt-to-delete a
                attempt-to-delete b
            delete cm/a @ns
            delete cm/b @ns
            ---
        "#]],
    );
}

#[test]
fn g9_kubernetes_98040_an_impossible_coordinate_proves_nothing_and_gives_way_to_a_possible_one() {
    check(
        "
        node/n owners=[cm/owner]
        cm/good @a owners=[cm/owner]
        impossible cm/owner uid=owner
        impossible cm/owner uid=owner",
        expect![[r#"
            node/n owners=[cm/owner]
                attempt-to-delete owner
            cm/good @a owners=[cm/owner]
                attempt-to-delete good
            impossible cm/owner uid=owner
                attempt-to-delete-rate-limited owner
            impossible cm/owner uid=owner
            ---
            ConfigMap.v1 a/good (good) rv=1 owners=[owner]
            Node.v1 n (n) rv=1 owners=[owner]
            ConfigMap.v1 a/owner (owner) virtual
        "#]],
    );
    check(
        "
        node/n owners=[cm/owner]
        impossible cm/owner uid=owner
        delete node/n",
        expect![[r#"
            node/n owners=[cm/owner]
                attempt-to-delete owner
            impossible cm/owner uid=owner
            delete node/n
            ---
        "#]],
    );
}

/// The node is still called by a name that nobody uses any more; that is not what counts.
#[test]
fn g9_a_virtual_node_goes_under_the_coordinate_on_which_all_agree() {
    check(
        "
        cm/a @ns owners=[secret/x#owner]
        cm/b @ns owners=[cm/owner]
        cm/a @ns rv=2
        vdelete cm/owner @ns uid=owner",
        expect![[r#"
            cm/a @ns owners=[secret/x#owner]
                attempt-to-delete owner
            cm/b @ns owners=[cm/owner]
                attempt-to-delete b
            cm/a @ns rv=2
            vdelete cm/owner @ns uid=owner
                absent ConfigMap.v1 ns/owner (owner)
                attempt-to-delete b
            ---
            ConfigMap.v1 ns/a (a) rv=2
            ConfigMap.v1 ns/b (b) rv=1 owners=[owner absent]
        "#]],
    );
}

#[test]
fn g9_an_observed_node_with_that_coordinate_goes() {
    check(
        "
        cm/owner @ns
        cm/a @ns owners=[cm/owner]
        vdelete cm/owner @ns",
        expect![[r#"
            cm/owner @ns
            cm/a @ns owners=[cm/owner]
            vdelete cm/owner @ns
                absent ConfigMap.v1 ns/owner (owner)
                attempt-to-delete a
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[owner absent]
        "#]],
    );
}

/// Only those that named the absent coordinate are looked at; what nobody named is not remembered.
#[test]
fn g9_an_observed_node_with_another_coordinate_stays() {
    check(
        "
        cm/owner @ns
        cm/a @ns owners=[secret/x#owner]
        cm/b @ns owners=[cm/owner]
        cm/c @other owners=[secret/x#owner]
        cm/d @ns owners=[cm/owner, secret/x#owner]
        vdelete secret/x @ns uid=owner
        vdelete secret/unheard-of @ns uid=owner",
        expect![[r#"
            cm/owner @ns
            cm/a @ns owners=[secret/x#owner]
                attempt-to-delete a
            cm/b @ns owners=[cm/owner]
            cm/c @other owners=[secret/x#owner]
                invalid-owner-reference ConfigMap.v1 other/c (c) -> Secret.v1 x (owner), which is in "ns"
                attempt-to-delete c
            cm/d @ns owners=[cm/owner, secret/x#owner]
                attempt-to-delete d
            vdelete secret/x @ns uid=owner
                absent Secret.v1 ns/x (owner)
                attempt-to-delete a
                attempt-to-delete d
            vdelete secret/unheard-of @ns uid=owner
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[owner as Secret.v1 x]
            ConfigMap.v1 ns/b (b) rv=1 owners=[owner]
            ConfigMap.v1 other/c (c) rv=1 owners=[owner as Secret.v1 x]
            ConfigMap.v1 ns/d (d) rv=1 owners=[owner, owner as Secret.v1 x]
            ConfigMap.v1 ns/owner (owner) rv=1
        "#]],
    );
}

/// The first after the absent one, else the first of all.
#[test]
fn g9_a_virtual_node_takes_the_next_coordinate() {
    check(
        "
        cm/a @ns owners=[pod/x#owner]
        cm/b @ns owners=[cm/x#owner]
        cm/c @ns owners=[secret/x#owner]
        vdelete pod/x @ns uid=owner
        vdelete secret/x @ns uid=owner
        vdelete cm/x @ns uid=owner",
        expect![[r#"
            cm/a @ns owners=[pod/x#owner]
                attempt-to-delete owner
            cm/b @ns owners=[cm/x#owner]
                attempt-to-delete b
            cm/c @ns owners=[secret/x#owner]
                attempt-to-delete c
            vdelete pod/x @ns uid=owner
                absent Pod.v1 ns/x (owner)
                attempt-to-delete a
                attempt-to-delete-rate-limited owner
            vdelete secret/x @ns uid=owner
                absent Secret.v1 ns/x (owner)
                attempt-to-delete c
                attempt-to-delete-rate-limited owner
            vdelete cm/x @ns uid=owner
                absent ConfigMap.v1 ns/x (owner)
                attempt-to-delete b
                attempt-to-delete-rate-limited owner
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[owner]
            ConfigMap.v1 ns/b (b) rv=1 owners=[owner as ConfigMap.v1 x]
            ConfigMap.v1 ns/c (c) rv=1 owners=[owner as Secret.v1 x]
            Pod.v1 ns/x (owner) virtual
        "#]],
    );
}

#[test]
fn g9_absence_of_another_coordinate_leaves_the_virtual_node_its_own() {
    check(
        "
        cm/a @ns owners=[pod/x#owner]
        cm/b @ns owners=[cm/x#owner]
        vdelete cm/x @ns uid=owner
        vdelete svc/x @ns uid=owner",
        expect![[r#"
            cm/a @ns owners=[pod/x#owner]
                attempt-to-delete owner
            cm/b @ns owners=[cm/x#owner]
                attempt-to-delete b
            vdelete cm/x @ns uid=owner
                absent ConfigMap.v1 ns/x (owner)
                attempt-to-delete b
            vdelete svc/x @ns uid=owner
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[owner]
            ConfigMap.v1 ns/b (b) rv=1 owners=[owner as ConfigMap.v1 x]
            Pod.v1 ns/x (owner) virtual
        "#]],
    );
}

#[test]
fn g9_a_dependent_may_match_and_not_match() {
    check(
        "
        cm/a @ns owners=[pod/x#owner, cm/x#owner]
        vdelete pod/x @ns uid=owner",
        expect![[r#"
            cm/a @ns owners=[pod/x#owner, cm/x#owner]
                attempt-to-delete owner
                attempt-to-delete a
            vdelete pod/x @ns uid=owner
                absent Pod.v1 ns/x (owner)
                attempt-to-delete a
                attempt-to-delete-rate-limited owner
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[owner as Pod.v1 x, owner]
            ConfigMap.v1 ns/x (owner) virtual
        "#]],
    );
}

/// For those that named it by the coordinate under which it went.
#[test]
fn d15_the_edge_keeps_the_proof_that_its_owner_is_absent() {
    check(
        "
        cm/owner @ns
        cm/a @ns owners=[cm/owner]
        cm/b @ns owners=[secret/x#owner]
        cm/c @other owners=[cm/owner]
        delete cm/owner @ns",
        expect![[r#"
            cm/owner @ns
            cm/a @ns owners=[cm/owner]
            cm/b @ns owners=[secret/x#owner]
                attempt-to-delete b
            cm/c @other owners=[cm/owner]
                invalid-owner-reference ConfigMap.v1 other/c (c) -> ConfigMap.v1 owner (owner), which is in "ns"
                attempt-to-delete c
            delete cm/owner @ns
                absent ConfigMap.v1 ns/owner (owner)
                attempt-to-delete a
                attempt-to-delete b
                attempt-to-delete c
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[owner absent]
            ConfigMap.v1 ns/b (b) rv=1 owners=[owner unknown]
            ConfigMap.v1 other/c (c) rv=1 owners=[owner unknown]
        "#]],
    );
}

#[test]
fn s7_absence_can_be_forgotten() {
    check(
        "
        cm/owner @ns
        cm/a @ns owners=[cm/owner]
        delete cm/owner @ns
        forget",
        expect![[r#"
            cm/owner @ns
            cm/a @ns owners=[cm/owner]
            delete cm/owner @ns
                absent ConfigMap.v1 ns/owner (owner)
                attempt-to-delete a
            forget
                attempt-to-delete owner
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[owner]
            ConfigMap.v1 ns/owner (owner) virtual
        "#]],
    );
}

/// Found by simulation: a dependent of a waiting owner was deleted, the server was restored before its watch had shown
/// that, and then it was listed as it had been before. That is no change.
#[test]
fn s7_a_dependent_of_a_waiting_owner_is_looked_at_again_after_a_restore() {
    check(
        "
        cm/owner @ns uid=o finalizers=[foreground] deleting
        rs/child @ns uid=c owners=[cm/owner#o]
        rs/apart @ns uid=d
        forget",
        expect![[r#"
            cm/owner @ns uid=o finalizers=[foreground] deleting
                attempt-to-delete o
            rs/child @ns uid=c owners=[cm/owner#o]
                attempt-to-delete c
            rs/apart @ns uid=d
            forget
                attempt-to-delete c
            ---
            ReplicaSet.apps/v1 ns/child (c) rv=1 owners=[o]
            ReplicaSet.apps/v1 ns/apart (d) rv=1
            ConfigMap.v1 ns/owner (o) rv=1 being-deleted deleting-dependents
        "#]],
    );
}

/// Found by simulation: a reference of the kind that a read alone decides was removed, the server was restored before
/// its watch had shown that, and then the object was listed as it had been before. That is no change.
#[test]
fn s7_what_was_decided_by_a_read_is_looked_at_again_after_a_restore() {
    check(
        "
        secret/n1 @ns uid=s
        cm/n0 @ns uid=o
        rs/misnames @ns uid=a owners=[cm/n0#o secret/n4#s]
        rs/fine @ns uid=b owners=[cm/n0#o secret/n1#s]
        rs/elsewhere @other uid=c owners=[secret/n1#s]
        rs/waits @ns uid=d owners=[cm/unseen#u]
        forget",
        expect![[r#"
            secret/n1 @ns uid=s
            cm/n0 @ns uid=o
            rs/misnames @ns uid=a owners=[cm/n0#o secret/n4#s]
                attempt-to-delete a
            rs/fine @ns uid=b owners=[cm/n0#o secret/n1#s]
            rs/elsewhere @other uid=c owners=[secret/n1#s]
                invalid-owner-reference ReplicaSet.apps/v1 other/elsewhere (c) -> Secret.v1 n1 (s), which is in "ns"
                attempt-to-delete c
            rs/waits @ns uid=d owners=[cm/unseen#u]
                attempt-to-delete u
            forget
                attempt-to-delete a
                attempt-to-delete c
                attempt-to-delete u
            ---
            ReplicaSet.apps/v1 ns/misnames (a) rv=1 owners=[o, s as Secret.v1 n4]
            ReplicaSet.apps/v1 ns/fine (b) rv=1 owners=[o, s]
            ReplicaSet.apps/v1 other/elsewhere (c) rv=1 owners=[s]
            ReplicaSet.apps/v1 ns/waits (d) rv=1 owners=[u]
            ConfigMap.v1 ns/n0 (o) rv=1
            Secret.v1 ns/n1 (s) rv=1
            ConfigMap.v1 ns/unseen (u) virtual
        "#]],
    );
}

/// Found by simulation: after a restart an owner in foreground deletion may be listed before its dependents. They are
/// work all the same, also those that do not block it.
#[test]
fn g7_a_dependent_that_is_shown_after_its_owner_began_to_delete_them_is_queued() {
    check(
        "
        cm/owner @ns deleting finalizers=[foreground]
        cm/child @ns owners=[cm/owner]",
        expect![[r#"
            cm/owner @ns deleting finalizers=[foreground]
                attempt-to-delete owner
            cm/child @ns owners=[cm/owner]
                attempt-to-delete child
            ---
            ConfigMap.v1 ns/child (child) rv=1 owners=[owner]
            ConfigMap.v1 ns/owner (owner) rv=1 being-deleted deleting-dependents
        "#]],
    );
}

/// Found by simulation: the look that the child had ended at its first reference, which nobody can resolve. When that
/// one goes, the other one, which names its owner wrongly, is still to be looked at.
#[test]
fn g6_when_a_reference_goes_what_was_questionable_is_looked_at_again() {
    check(
        "
        cm/owner @ns
        cm/child @ns owners=[widget/x#x, cm/misspelt#owner]
        cm/child @ns rv=2 owners=[cm/misspelt#owner]",
        expect![[r#"
            cm/owner @ns
            cm/child @ns owners=[widget/x#x, cm/misspelt#owner]
                attempt-to-delete x
                attempt-to-delete child
            cm/child @ns rv=2 owners=[cm/misspelt#owner]
                attempt-to-delete child
            ---
            ConfigMap.v1 ns/child (child) rv=2 owners=[owner as ConfigMap.v1 misspelt]
            ConfigMap.v1 ns/owner (owner) rv=1
        "#]],
    );
}
