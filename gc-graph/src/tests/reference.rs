//! The reference's own tests, as far as they are about the graph, in the fixture language: garbagecollector_test.go
//! and graph_builder_test.go of kube-controller-manager v1.36.

use expect_test::expect;

use super::check;

#[test]
fn reference_process_event_1() {
    check(
        "
        pod/1 @ns
        pod/2 @ns owners=[pod/1]
        pod/3 @ns owners=[pod/1, pod/2]",
        expect![[r#"
            pod/1 @ns
            pod/2 @ns owners=[pod/1]
            pod/3 @ns owners=[pod/1, pod/2]
            ---
            Pod.v1 ns/1 (1) rv=1
            Pod.v1 ns/2 (2) rv=1 owners=[1]
            Pod.v1 ns/3 (3) rv=1 owners=[1, 2]
        "#]],
    );
}

#[test]
fn reference_process_event_2() {
    check(
        "
        pod/1 @ns
        pod/2 @ns owners=[pod/1]
        pod/3 @ns owners=[pod/1, pod/2]
        pod/4 @ns owners=[pod/2]
        delete pod/2 @ns owners=[pod/any]",
        expect![[r#"
            pod/1 @ns
            pod/2 @ns owners=[pod/1]
            pod/3 @ns owners=[pod/1, pod/2]
            pod/4 @ns owners=[pod/2]
            delete pod/2 @ns owners=[pod/any]
                absent Pod.v1 ns/2 (2)
                attempt-to-delete 3
                attempt-to-delete 4
            ---
            Pod.v1 ns/1 (1) rv=1
            Pod.v1 ns/3 (3) rv=1 owners=[1, 2 absent]
            Pod.v1 ns/4 (4) rv=1 owners=[2 absent]
        "#]],
    );
}

#[test]
fn reference_process_event_3() {
    check(
        "
        pod/1 @ns
        pod/2 @ns owners=[pod/1]
        pod/3 @ns owners=[pod/1, pod/2]
        pod/4 @ns owners=[pod/3]
        pod/2 @ns owners=[pod/4]",
        expect![[r#"
            pod/1 @ns
            pod/2 @ns owners=[pod/1]
            pod/3 @ns owners=[pod/1, pod/2]
            pod/4 @ns owners=[pod/3]
            pod/2 @ns owners=[pod/4]
            ---
            Pod.v1 ns/1 (1) rv=1
            Pod.v1 ns/2 (2) rv=1 owners=[4]
            Pod.v1 ns/3 (3) rv=1 owners=[1, 2]
            Pod.v1 ns/4 (4) rv=1 owners=[3]
        "#]],
    );
}

#[test]
fn reference_process_event_2_in_reverse() {
    check(
        "
        pod/4 @ns owners=[pod/2]
        pod/3 @ns owners=[pod/1, pod/2]
        pod/2 @ns owners=[pod/1]
        pod/1 @ns
        delete pod/2 @ns owners=[pod/any]",
        expect![[r#"
            pod/4 @ns owners=[pod/2]
                attempt-to-delete 2
            pod/3 @ns owners=[pod/1, pod/2]
                attempt-to-delete 1
            pod/2 @ns owners=[pod/1]
            pod/1 @ns
            delete pod/2 @ns owners=[pod/any]
                absent Pod.v1 ns/2 (2)
                attempt-to-delete 4
                attempt-to-delete 3
            ---
            Pod.v1 ns/1 (1) rv=1
            Pod.v1 ns/3 (3) rv=1 owners=[1, 2 absent]
            Pod.v1 ns/4 (4) rv=1 owners=[2 absent]
        "#]],
    );
}

#[test]
fn reference_good_child_of_a_cluster_scoped_owner() {
    check(
        "
        pod/p1 @ns1 owners=[node/n1]
        node/n1",
        expect![[r#"
            pod/p1 @ns1 owners=[node/n1]
                attempt-to-delete n1
            node/n1
            ---
            Node.v1 n1 (n1) rv=1
            Pod.v1 ns1/p1 (p1) rv=1 owners=[n1]
        "#]],
    );
}

#[test]
fn reference_bad_child_of_an_owner_in_another_namespace_child_first() {
    check(
        "
        pod/p1 @ns1 owners=[pod/p2]
        pod/p2 @ns2
        delete pod/p1 @ns1",
        expect![[r#"
            pod/p1 @ns1 owners=[pod/p2]
                attempt-to-delete p2
            pod/p2 @ns2
                invalid-owner-reference Pod.v1 ns1/p1 (p1) -> Pod.v1 p2 (p2), which is in "ns2"
                attempt-to-delete p1
            delete pod/p1 @ns1
            ---
            Pod.v1 ns2/p2 (p2) rv=1
        "#]],
    );
}

#[test]
fn reference_bad_child_of_an_owner_in_another_namespace_owner_first() {
    check(
        "
        pod/p2 @ns2
        pod/p1 @ns1 owners=[pod/p2]
        delete pod/p1 @ns1",
        expect![[r#"
            pod/p2 @ns2
            pod/p1 @ns1 owners=[pod/p2]
                invalid-owner-reference Pod.v1 ns1/p1 (p1) -> Pod.v1 p2 (p2), which is in "ns2"
                attempt-to-delete p1
            delete pod/p1 @ns1
            ---
            Pod.v1 ns2/p2 (p2) rv=1
        "#]],
    );
}

#[test]
fn reference_bad_cluster_scoped_child_child_first() {
    check(
        "
        node/n1 owners=[pod/p1]
        pod/p1 @ns1",
        expect![[r#"
            node/n1 owners=[pod/p1]
                attempt-to-delete p1
            pod/p1 @ns1
                invalid-owner-reference Node.v1 n1 (n1) -> Pod.v1 p1 (p1), which is in "ns1"
                attempt-to-delete n1
            ---
            Node.v1 n1 (n1) rv=1 owners=[p1]
            Pod.v1 ns1/p1 (p1) rv=1
        "#]],
    );
}

#[test]
fn reference_bad_cluster_scoped_child_owner_first() {
    check(
        "
        pod/p1 @ns1
        node/n1 owners=[pod/p1]",
        expect![[r#"
            pod/p1 @ns1
            node/n1 owners=[pod/p1]
                invalid-owner-reference Node.v1 n1 (n1) -> Pod.v1 p1 (p1), which is in "ns1"
                attempt-to-delete n1
            ---
            Node.v1 n1 (n1) rv=1 owners=[p1]
            Pod.v1 ns1/p1 (p1) rv=1
        "#]],
    );
}

#[test]
fn reference_child_of_an_owner_of_another_served_version() {
    check(
        "
        pod/p1 @ns1 owners=[role.rbac.authorization.k8s.io/v1beta1/r]
        role/r @ns1
        delete role/r @ns1
        delete pod/p1 @ns1",
        expect![[r#"
            pod/p1 @ns1 owners=[role.rbac.authorization.k8s.io/v1beta1/r]
                attempt-to-delete r
            role/r @ns1
                attempt-to-delete p1
            delete role/r @ns1
                absent Role.rbac.authorization.k8s.io/v1 ns1/r (r)
                attempt-to-delete p1
            delete pod/p1 @ns1
            ---
        "#]],
    );
}

#[test]
fn reference_child_of_an_owner_of_a_version_that_is_not_served_child_first() {
    check(
        "
        pod/p1 @ns1 owners=[deployment.extensions/v1beta1/d]
        deploy/d @ns1
        delete deploy/d @ns1",
        expect![[r#"
            pod/p1 @ns1 owners=[deployment.extensions/v1beta1/d]
                attempt-to-delete d
            deploy/d @ns1
                attempt-to-delete p1
            delete deploy/d @ns1
                absent Deployment.apps/v1 ns1/d (d)
                attempt-to-delete p1
            ---
            Pod.v1 ns1/p1 (p1) rv=1 owners=[d unknown]
        "#]],
    );
}

#[test]
fn reference_child_of_an_owner_of_a_version_that_is_not_served_owner_first() {
    check(
        "
        deploy/d @ns1
        pod/p1 @ns1 owners=[deployment.extensions/v1beta1/d]
        delete deploy/d @ns1",
        expect![[r#"
            deploy/d @ns1
            pod/p1 @ns1 owners=[deployment.extensions/v1beta1/d]
                attempt-to-delete p1
            delete deploy/d @ns1
                absent Deployment.apps/v1 ns1/d (d)
                attempt-to-delete p1
            ---
            Pod.v1 ns1/p1 (p1) rv=1 owners=[d unknown]
        "#]],
    );
}

#[test]
fn reference_absent_owner_of_a_version_that_is_not_served_first() {
    check(
        "
        pod/p1 @ns1 owners=[deployment.extensions/v1beta1/d]
        pod/p2 @ns1 owners=[deploy/d]
        delete pod/p2 @ns1",
        expect![[r#"
            pod/p1 @ns1 owners=[deployment.extensions/v1beta1/d]
                attempt-to-delete d
            pod/p2 @ns1 owners=[deploy/d]
                attempt-to-delete p2
            delete pod/p2 @ns1
            ---
            Deployment.extensions/v1beta1 ns1/d (d) virtual
            Pod.v1 ns1/p1 (p1) rv=1 owners=[d]
        "#]],
    );
}

#[test]
fn reference_absent_owner_of_a_version_that_is_served_first() {
    check(
        "
        pod/p2 @ns1 owners=[deploy/d]
        pod/p1 @ns1 owners=[deployment.extensions/v1beta1/d]
        vdelete deploy/d @ns1
        delete pod/p2 @ns1",
        expect![[r#"
            pod/p2 @ns1 owners=[deploy/d]
                attempt-to-delete d
            pod/p1 @ns1 owners=[deployment.extensions/v1beta1/d]
                attempt-to-delete p1
            vdelete deploy/d @ns1
                absent Deployment.apps/v1 ns1/d (d)
                attempt-to-delete p2
                attempt-to-delete-rate-limited d
            delete pod/p2 @ns1
            ---
            Deployment.extensions/v1beta1 ns1/d (d) virtual
            Pod.v1 ns1/p1 (p1) rv=1 owners=[d]
        "#]],
    );
}

#[test]
fn reference_bad_child_good_child_bad_parent_deleted_good_parent() {
    check(
        "
        pod/bad @ns1 owners=[secret/s#d]
        pod/good @ns1 owners=[deploy/d]
        vdelete secret/s @ns1 uid=d
        deploy/d @ns1
        delete pod/bad @ns1",
        expect![[r#"
            pod/bad @ns1 owners=[secret/s#d]
                attempt-to-delete d
            pod/good @ns1 owners=[deploy/d]
                attempt-to-delete good
            vdelete secret/s @ns1 uid=d
                absent Secret.v1 ns1/s (d)
                attempt-to-delete bad
                attempt-to-delete-rate-limited d
            deploy/d @ns1
                attempt-to-delete bad
            delete pod/bad @ns1
            ---
            Deployment.apps/v1 ns1/d (d) rv=1
            Pod.v1 ns1/good (good) rv=1 owners=[d]
        "#]],
    );
}

#[test]
fn reference_bad_child_good_child_good_parent_late() {
    check(
        "
        pod/bad @ns1 owners=[secret/s#d]
        pod/good @ns1 owners=[deploy/d]
        vdelete secret/s @ns1 uid=d
        vdelete deploy/d @ns1
        delete pod/bad @ns1 owners=[secret/s#d]",
        expect![[r#"
            pod/bad @ns1 owners=[secret/s#d]
                attempt-to-delete d
            pod/good @ns1 owners=[deploy/d]
                attempt-to-delete good
            vdelete secret/s @ns1 uid=d
                absent Secret.v1 ns1/s (d)
                attempt-to-delete bad
                attempt-to-delete-rate-limited d
            vdelete deploy/d @ns1
                absent Deployment.apps/v1 ns1/d (d)
                attempt-to-delete good
                attempt-to-delete-rate-limited d
            delete pod/bad @ns1 owners=[secret/s#d]
            ---
            Secret.v1 ns1/s (d) virtual
            Pod.v1 ns1/good (good) rv=1 owners=[d as Deployment.apps/v1 d]
        "#]],
    );
}

#[test]
fn reference_good_child_bad_child_good_parent() {
    check(
        "
        pod/good @ns1 owners=[deploy/d]
        pod/bad @ns1 owners=[secret/s#d]
        deploy/d @ns1
        delete pod/bad @ns1",
        expect![[r#"
            pod/good @ns1 owners=[deploy/d]
                attempt-to-delete d
            pod/bad @ns1 owners=[secret/s#d]
                attempt-to-delete bad
            deploy/d @ns1
                attempt-to-delete bad
            delete pod/bad @ns1
            ---
            Deployment.apps/v1 ns1/d (d) rv=1
            Pod.v1 ns1/good (good) rv=1 owners=[d]
        "#]],
    );
}

#[test]
fn reference_cluster_scoped_bad_child_namespaced_good_child_owner_absent() {
    check(
        "
        node/n1 owners=[pod/p1]
        pod/p2 @ns1 owners=[pod/p1]
        delete pod/p2 @ns1",
        expect![[r#"
            node/n1 owners=[pod/p1]
                attempt-to-delete p1
            pod/p2 @ns1 owners=[pod/p1]
                attempt-to-delete p2
            delete pod/p2 @ns1
            ---
            Node.v1 n1 (n1) rv=1 owners=[p1]
            Pod.v1 p1 (p1) virtual
        "#]],
    );
}

#[test]
fn reference_cluster_scoped_bad_child_namespaced_good_child_owner_there() {
    check(
        "
        node/n1 owners=[pod/p1]
        pod/p2 @ns1 owners=[pod/p1]
        pod/p1 @ns1",
        expect![[r#"
            node/n1 owners=[pod/p1]
                attempt-to-delete p1
            pod/p2 @ns1 owners=[pod/p1]
                attempt-to-delete p2
            pod/p1 @ns1
                invalid-owner-reference Node.v1 n1 (n1) -> Pod.v1 p1 (p1), which is in "ns1"
                attempt-to-delete n1
            ---
            Node.v1 n1 (n1) rv=1 owners=[p1]
            Pod.v1 ns1/p1 (p1) rv=1
            Pod.v1 ns1/p2 (p2) rv=1 owners=[p1]
        "#]],
    );
}

#[test]
fn reference_namespaced_good_child_cluster_scoped_bad_child_owner_absent() {
    check(
        "
        pod/p2 @ns1 owners=[pod/p1]
        node/n1 owners=[pod/p1]
        vdelete pod/p1 @ns1
        delete pod/p2 @ns1",
        expect![[r#"
            pod/p2 @ns1 owners=[pod/p1]
                attempt-to-delete p1
            node/n1 owners=[pod/p1]
                attempt-to-delete n1
            vdelete pod/p1 @ns1
                absent Pod.v1 ns1/p1 (p1)
                attempt-to-delete p2
                attempt-to-delete-rate-limited p1
            delete pod/p2 @ns1
            ---
            Node.v1 n1 (n1) rv=1 owners=[p1]
            Pod.v1 p1 (p1) virtual
        "#]],
    );
}

#[test]
fn reference_alternate_owner_namespaced_version() {
    check(
        "
        pod/c1 @ns1 owners=[cm/p#u]
        pod/c2 @ns1 owners=[configmap/xx/p#u]
        vdelete cm/p @ns1 uid=u",
        expect![[r#"
            pod/c1 @ns1 owners=[cm/p#u]
                attempt-to-delete u
            pod/c2 @ns1 owners=[configmap/xx/p#u]
                attempt-to-delete c2
            vdelete cm/p @ns1 uid=u
                absent ConfigMap.v1 ns1/p (u)
                attempt-to-delete c1
                attempt-to-delete-rate-limited u
            ---
            Pod.v1 ns1/c1 (c1) rv=1 owners=[u as ConfigMap.v1 p]
            Pod.v1 ns1/c2 (c2) rv=1 owners=[u]
            ConfigMap.xx ns1/p (u) virtual
        "#]],
    );
}

#[test]
fn reference_alternate_owner_namespaced_kind() {
    check(
        "
        pod/c1 @ns1 owners=[cm/p#u]
        pod/c2 @ns1 owners=[xxx/v1/p#u]
        vdelete cm/p @ns1 uid=u",
        expect![[r#"
            pod/c1 @ns1 owners=[cm/p#u]
                attempt-to-delete u
            pod/c2 @ns1 owners=[xxx/v1/p#u]
                attempt-to-delete c2
            vdelete cm/p @ns1 uid=u
                absent ConfigMap.v1 ns1/p (u)
                attempt-to-delete c1
                attempt-to-delete-rate-limited u
            ---
            Pod.v1 ns1/c1 (c1) rv=1 owners=[u as ConfigMap.v1 p]
            Pod.v1 ns1/c2 (c2) rv=1 owners=[u]
            xxx.v1 ns1/p (u) virtual
        "#]],
    );
}

#[test]
fn reference_alternate_owner_namespaced_namespace() {
    check(
        "
        pod/c1 @ns1 owners=[cm/p#u]
        pod/c2 @ns2 owners=[cm/p#u]
        vdelete cm/p @ns1 uid=u",
        expect![[r#"
            pod/c1 @ns1 owners=[cm/p#u]
                attempt-to-delete u
            pod/c2 @ns2 owners=[cm/p#u]
                attempt-to-delete c2
            vdelete cm/p @ns1 uid=u
                absent ConfigMap.v1 ns1/p (u)
                attempt-to-delete c1
                attempt-to-delete-rate-limited u
            ---
            Pod.v1 ns1/c1 (c1) rv=1 owners=[u]
            Pod.v1 ns2/c2 (c2) rv=1 owners=[u]
            ConfigMap.v1 ns2/p (u) virtual
        "#]],
    );
}

#[test]
fn reference_alternate_owner_namespaced_name() {
    check(
        "
        pod/c1 @ns1 owners=[cm/p#u]
        pod/c2 @ns1 owners=[cm/xxx#u]
        vdelete cm/p @ns1 uid=u",
        expect![[r#"
            pod/c1 @ns1 owners=[cm/p#u]
                attempt-to-delete u
            pod/c2 @ns1 owners=[cm/xxx#u]
                attempt-to-delete c2
            vdelete cm/p @ns1 uid=u
                absent ConfigMap.v1 ns1/p (u)
                attempt-to-delete c1
                attempt-to-delete-rate-limited u
            ---
            Pod.v1 ns1/c1 (c1) rv=1 owners=[u as ConfigMap.v1 p]
            Pod.v1 ns1/c2 (c2) rv=1 owners=[u]
            ConfigMap.v1 ns1/xxx (u) virtual
        "#]],
    );
}

#[test]
fn reference_alternate_owner_cluster_version() {
    check(
        "
        node/c1 owners=[node/p#u]
        pod/c2 @ns1 owners=[node/xx/p#u]
        vdelete node/p uid=u",
        expect![[r#"
            node/c1 owners=[node/p#u]
                attempt-to-delete u
            pod/c2 @ns1 owners=[node/xx/p#u]
                attempt-to-delete c2
            vdelete node/p uid=u
                absent Node.v1 p (u)
                attempt-to-delete c1
                attempt-to-delete-rate-limited u
            ---
            Node.v1 c1 (c1) rv=1 owners=[u as Node.v1 p]
            Pod.v1 ns1/c2 (c2) rv=1 owners=[u]
            Node.xx ns1/p (u) virtual
        "#]],
    );
}

#[test]
fn reference_alternate_owner_cluster_kind() {
    check(
        "
        node/c1 owners=[node/p#u]
        pod/c2 @ns1 owners=[xxx/v1/p#u]
        vdelete node/p uid=u",
        expect![[r#"
            node/c1 owners=[node/p#u]
                attempt-to-delete u
            pod/c2 @ns1 owners=[xxx/v1/p#u]
                attempt-to-delete c2
            vdelete node/p uid=u
                absent Node.v1 p (u)
                attempt-to-delete c1
                attempt-to-delete-rate-limited u
            ---
            Node.v1 c1 (c1) rv=1 owners=[u as Node.v1 p]
            Pod.v1 ns1/c2 (c2) rv=1 owners=[u]
            xxx.v1 ns1/p (u) virtual
        "#]],
    );
}

#[test]
fn reference_alternate_owner_cluster_namespace() {
    check(
        "
        node/c1 owners=[node/p#u]
        pod/c2 @ns1 owners=[node/p#u]
        pod/c3 @ns2 owners=[node/p#u]
        vdelete node/p uid=u",
        expect![[r#"
            node/c1 owners=[node/p#u]
                attempt-to-delete u
            pod/c2 @ns1 owners=[node/p#u]
                attempt-to-delete c2
            pod/c3 @ns2 owners=[node/p#u]
                attempt-to-delete c3
            vdelete node/p uid=u
                absent Node.v1 p (u)
                attempt-to-delete c1
                attempt-to-delete c2
                attempt-to-delete c3
            ---
            Node.v1 c1 (c1) rv=1 owners=[u absent]
            Pod.v1 ns1/c2 (c2) rv=1 owners=[u absent]
            Pod.v1 ns2/c3 (c3) rv=1 owners=[u absent]
        "#]],
    );
}

#[test]
fn reference_alternate_owner_cluster_name() {
    check(
        "
        node/c1 owners=[node/p#u]
        pod/c2 @ns1 owners=[node/xxx#u]
        vdelete node/p uid=u",
        expect![[r#"
            node/c1 owners=[node/p#u]
                attempt-to-delete u
            pod/c2 @ns1 owners=[node/xxx#u]
                attempt-to-delete c2
            vdelete node/p uid=u
                absent Node.v1 p (u)
                attempt-to-delete c1
                attempt-to-delete-rate-limited u
            ---
            Node.v1 c1 (c1) rv=1 owners=[u as Node.v1 p]
            Pod.v1 ns1/c2 (c2) rv=1 owners=[u]
            Node.v1 xxx (u) virtual
        "#]],
    );
}

#[test]
fn reference_alternate_owner_first_when_the_absent_one_is_last() {
    check(
        "
        pod/c1 @ns1 owners=[k/v5/p#u, k/v1/p#u, k/v2/p#u, k/v3/p#u, k/v4/p#u]
        vdelete k/v5/p @ns1 uid=u",
        expect![[r#"
            pod/c1 @ns1 owners=[k/v5/p#u, k/v1/p#u, k/v2/p#u, k/v3/p#u, k/v4/p#u]
                attempt-to-delete u
                attempt-to-delete c1
            vdelete k/v5/p @ns1 uid=u
                absent k.v5 ns1/p (u)
                attempt-to-delete c1
                attempt-to-delete-rate-limited u
            ---
            Pod.v1 ns1/c1 (c1) rv=1 owners=[u as k.v5 p, u, u as k.v2 p, u as k.v3 p, u as k.v4 p]
            k.v1 ns1/p (u) virtual
        "#]],
    );
}

#[test]
fn reference_alternate_owner_next_after_the_absent_one() {
    check(
        "
        pod/c1 @ns1 owners=[k/v4/p#u, k/v1/p#u, k/v2/p#u, k/v3/p#u, k/v5/p#u]
        vdelete k/v4/p @ns1 uid=u",
        expect![[r#"
            pod/c1 @ns1 owners=[k/v4/p#u, k/v1/p#u, k/v2/p#u, k/v3/p#u, k/v5/p#u]
                attempt-to-delete u
                attempt-to-delete c1
            vdelete k/v4/p @ns1 uid=u
                absent k.v4 ns1/p (u)
                attempt-to-delete c1
                attempt-to-delete-rate-limited u
            ---
            Pod.v1 ns1/c1 (c1) rv=1 owners=[u as k.v4 p, u as k.v1 p, u as k.v2 p, u as k.v3 p, u]
            k.v5 ns1/p (u) virtual
        "#]],
    );
}

#[test]
fn reference_alternate_owner_cluster_first_when_the_absent_one_is_last() {
    check(
        "
        node/c1 owners=[k/v5/p#u, k/v1/p#u, k/v2/p#u, k/v3/p#u, k/v4/p#u]
        vdelete k/v5/p uid=u",
        expect![[r#"
            node/c1 owners=[k/v5/p#u, k/v1/p#u, k/v2/p#u, k/v3/p#u, k/v4/p#u]
                attempt-to-delete u
                attempt-to-delete c1
            vdelete k/v5/p uid=u
                absent k.v5 p (u)
                attempt-to-delete c1
                attempt-to-delete-rate-limited u
            ---
            Node.v1 c1 (c1) rv=1 owners=[u as k.v5 p, u, u as k.v2 p, u as k.v3 p, u as k.v4 p]
            k.v1 p (u) virtual
        "#]],
    );
}

#[test]
fn reference_alternate_owner_cluster_next_after_the_absent_one() {
    check(
        "
        node/c1 owners=[k/v4/p#u, k/v1/p#u, k/v2/p#u, k/v3/p#u, k/v5/p#u]
        vdelete k/v4/p uid=u",
        expect![[r#"
            node/c1 owners=[k/v4/p#u, k/v1/p#u, k/v2/p#u, k/v3/p#u, k/v5/p#u]
                attempt-to-delete u
                attempt-to-delete c1
            vdelete k/v4/p uid=u
                absent k.v4 p (u)
                attempt-to-delete c1
                attempt-to-delete-rate-limited u
            ---
            Node.v1 c1 (c1) rv=1 owners=[u as k.v4 p, u as k.v1 p, u as k.v2 p, u as k.v3 p, u]
            k.v5 p (u) virtual
        "#]],
    );
}

#[test]
fn reference_alternate_owner_unrelated_references_do_not_count() {
    check(
        "
        node/c1 owners=[node/p#u, parent/v1/name#another]
        vdelete node/p uid=u",
        expect![[r#"
            node/c1 owners=[node/p#u, parent/v1/name#another]
                attempt-to-delete u
                attempt-to-delete another
            vdelete node/p uid=u
                absent Node.v1 p (u)
                attempt-to-delete c1
            ---
            parent.v1 name (another) virtual
            Node.v1 c1 (c1) rv=1 owners=[u absent, another]
        "#]],
    );
}

#[test]
fn reference_alternate_owner_matching_references_do_not_count() {
    check(
        "
        node/c1 owners=[node/p#u, node/p#u]
        vdelete node/p uid=u",
        expect![[r#"
            node/c1 owners=[node/p#u, node/p#u]
                attempt-to-delete u
            vdelete node/p uid=u
                absent Node.v1 p (u)
                attempt-to-delete c1
            ---
            Node.v1 c1 (c1) rv=1 owners=[u absent, u absent]
        "#]],
    );
}

#[test]
fn reference_alternate_owner_the_same_twice_is_one() {
    check(
        "
        node/c1 owners=[node/p#u, xxx/v1/p#u, xxx/v1/p#u]
        vdelete node/p uid=u",
        expect![[r#"
            node/c1 owners=[node/p#u, xxx/v1/p#u, xxx/v1/p#u]
                attempt-to-delete u
                attempt-to-delete c1
            vdelete node/p uid=u
                absent Node.v1 p (u)
                attempt-to-delete c1
                attempt-to-delete-rate-limited u
            ---
            Node.v1 c1 (c1) rv=1 owners=[u as Node.v1 p, u, u]
            xxx.v1 p (u) virtual
        "#]],
    );
}
