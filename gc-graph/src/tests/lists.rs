//! Lists and watches as a whole: spec S2 and S5.

use expect_test::expect;

use super::check;

/// prometheus-operator#6298: under its last known coordinate. The dependent that goes in the same list does not
/// count.
#[test]
fn s5_what_a_new_list_does_not_show_is_gone() {
    check(
        "
        cm/owner @ns
        cm/a @ns owners=[cm/owner]
        secret/b @ns owners=[cm/owner]
        cm/kept @ns
        relist cm
        cm/kept @ns rv=2
        cm/new @ns
        listed cm",
        expect![[r#"
            cm/owner @ns
            cm/a @ns owners=[cm/owner]
            secret/b @ns owners=[cm/owner]
            cm/kept @ns
            relist cm
            cm/kept @ns rv=2
            cm/new @ns
            listed cm
                absent ConfigMap.v1 ns/owner (owner)
                attempt-to-delete b
            ---
            Secret.v1 ns/b (b) rv=1 owners=[owner absent]
            ConfigMap.v1 ns/kept (kept) rv=2
            ConfigMap.v1 ns/new (new) rv=1
        "#]],
    );
}

#[test]
fn s5_an_object_that_came_by_watch_during_the_list_stays() {
    check(
        "
        relist cm
        cm/a @ns
        listed cm
        relist cm
        cm/a @ns rv=2
        cm/b @ns
        listed cm",
        expect![[r#"
            relist cm
            cm/a @ns
            listed cm
            relist cm
            cm/a @ns rv=2
            cm/b @ns
            listed cm
            ---
            ConfigMap.v1 ns/a (a) rv=2
            ConfigMap.v1 ns/b (b) rv=1
        "#]],
    );
}

#[test]
fn s5_a_list_that_is_broken_off_counts_for_nothing() {
    check(
        "
        cm/a @ns
        cm/b @ns
        relist cm
        cm/a @ns
        relist cm
        cm/b @ns
        listed cm
        relist cm
        cm/b @ns
        relist cm
        relist cm
        listed cm",
        expect![[r#"
            cm/a @ns
            cm/b @ns
            relist cm
            cm/a @ns
            relist cm
            cm/b @ns
            listed cm
            relist cm
            cm/b @ns
            relist cm
            relist cm
            listed cm
            ---
        "#]],
    );
}

#[test]
fn s5_an_end_without_a_beginning_is_nothing() {
    check(
        "
        cm/a @ns
        listed cm
        relist cm
        cm/a @ns
        listed cm
        listed cm",
        expect![[r#"
            cm/a @ns
            listed cm
            relist cm
            cm/a @ns
            listed cm
            listed cm
            ---
            ConfigMap.v1 ns/a (a) rv=1
        "#]],
    );
}

#[test]
fn s5_virtual_nodes_are_not_in_any_list() {
    check(
        "
        cm/a @ns owners=[cm/owner]
        relist cm
        cm/a @ns owners=[cm/owner]
        listed cm",
        expect![[r#"
            cm/a @ns owners=[cm/owner]
                attempt-to-delete owner
            relist cm
            cm/a @ns owners=[cm/owner]
            listed cm
            ---
            ConfigMap.v1 ns/a (a) rv=1 owners=[owner]
            ConfigMap.v1 ns/owner (owner) virtual
        "#]],
    );
}

/// Nor does a second watch that shows the same object keep it alive for the first.
#[test]
fn s5_a_node_that_another_watch_took_over_is_not_swept() {
    check(
        "
        deployment.apps/v1beta1/d @ns
        deployment.apps/v1/d @ns
        ns/n uid=u
        project.example.com/v1/n uid=u
        relist deployment.apps/v1beta1
        listed deployment.apps/v1beta1
        relist project.example.com/v1
        listed project.example.com/v1
        unserve project.example.com/v1
        relist ns
        project.example.com/v1/n uid=u
        listed ns",
        expect![[r#"
            deployment.apps/v1beta1/d @ns
            deployment.apps/v1/d @ns
            ns/n uid=u
            project.example.com/v1/n uid=u
            relist deployment.apps/v1beta1
            listed deployment.apps/v1beta1
            relist project.example.com/v1
            listed project.example.com/v1
            unserve project.example.com/v1
            relist ns
            project.example.com/v1/n uid=u
            listed ns
            ---
            Deployment.apps/v1 ns/d (d) rv=1
        "#]],
    );
}

/// The owner of a dependent elsewhere turns virtual, as after a restart; what only its own kind depended on just goes,
/// and with it the virtual node that nobody else named.
#[test]
fn s2_a_resource_that_is_no_longer_served_proves_nothing() {
    check(
        "
        widget/top @ns
        widget/owner @ns owners=[cm/up!, widget/top!]
        widget/leaf @ns owners=[widget/owner, cm/up!, cm/never-seen]
        cm/up @ns finalizers=[foreground] deleting
        cm/child @ns owners=[widget/owner!]
        unserve widget",
        expect![[r#"
            widget/top @ns
            widget/owner @ns owners=[cm/up!, widget/top!]
                attempt-to-delete up
            widget/leaf @ns owners=[widget/owner, cm/up!, cm/never-seen]
                attempt-to-delete never-seen
            cm/up @ns finalizers=[foreground] deleting
                attempt-to-delete owner
                attempt-to-delete leaf
                attempt-to-delete up
            cm/child @ns owners=[widget/owner!]
            unserve widget
                attempt-to-delete owner
                attempt-to-delete up
            ---
            ConfigMap.v1 ns/child (child) rv=1 owners=[owner!]
            Widget.example.com/v1 ns/owner (owner) virtual
            ConfigMap.v1 ns/up (up) rv=1 being-deleted deleting-dependents
        "#]],
    );
}

#[test]
fn s2_a_resource_that_is_served_again_finds_its_dependents() {
    check(
        "
        widget/owner @ns finalizers=[foreground] deleting
        cm/child @ns owners=[widget/owner!]
        unserve widget
        widget/owner @ns rv=2 finalizers=[foreground] deleting
        relist widget
        listed widget",
        expect![[r#"
            widget/owner @ns finalizers=[foreground] deleting
                attempt-to-delete owner
            cm/child @ns owners=[widget/owner!]
                attempt-to-delete child
            unserve widget
                attempt-to-delete owner
            widget/owner @ns rv=2 finalizers=[foreground] deleting
                attempt-to-delete child
                attempt-to-delete owner
            relist widget
            listed widget
                absent Widget.example.com/v1 ns/owner (owner)
                attempt-to-delete child
            ---
            ConfigMap.v1 ns/child (child) rv=1 owners=[owner! absent]
        "#]],
    );
}
