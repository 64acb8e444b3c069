//! One test or more for each requirement.
use expect_test::expect;

use super::check;

#[test]
fn g3_an_unknown_owner_becomes_a_virtual_node() {
    check("cm/child @ns uid=c owners=[cm/owner!]", expect![[r#"
        cm/child @ns uid=c owners=[cm/owner!]
            attempt-to-delete owner
        ---
        ConfigMap.v1 ns/child (c) rv=1 owners=[owner!]
        ConfigMap.v1 ns/owner (owner) virtual
    "#]]);
}
