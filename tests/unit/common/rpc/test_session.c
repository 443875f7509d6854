/* One router at a time uses a shard's state. */
#include "common/rpc/session.h"
#include "tests/unit/test.h"
#include <string.h>

enum { T = 1000000, LEASE = RPC_SESSION_LEASE_MS };

TEST(the_first_one_owns_it)
{
    struct rpc_session s = {0};
    assert_true(rpc_session_begin(&s, "a", T));
    rpc_session_end(&s, "a", T);
    assert_true(rpc_session_begin(&s, "a", T + 1)); /* several at once */
    assert_true(rpc_session_begin(&s, "a", T + 1));
    assert_false(rpc_session_begin(&s, "b", T + 2));
    rpc_session_end(&s, "a", T + 3);
    rpc_session_end(&s, "a", T + 3);
    assert_false(rpc_session_begin(&s, "b", T + 3 + LEASE));
    assert_true(rpc_session_begin(&s, "b", T + 4 + LEASE));
    assert_false(rpc_session_begin(&s, "a", T + 5 + LEASE)); /* it was away for too long */
}

TEST(a_long_call_and_health_keep_it)
{
    struct rpc_session s = {0};
    assert_true(rpc_session_begin(&s, "a", T));
    assert_false(rpc_session_begin(&s, "b", T + 10 * LEASE)); /* the call still runs */
    rpc_session_end(&s, "a", T + 10 * LEASE);
    rpc_session_seen(&s, "a", T + 11 * LEASE);
    rpc_session_seen(&s, "b", T + 12 * LEASE);
    assert_false(rpc_session_begin(&s, "b", T + 12 * LEASE));
    assert_true(rpc_session_begin(&s, "b", T + 12 * LEASE + 1));
}

TEST(callers_without_an_id_are_served)
{
    struct rpc_session s = {0};
    assert_true(rpc_session_begin(&s, "a", T));
    assert_true(rpc_session_begin(&s, "", T));
    rpc_session_end(&s, "", T);
    assert_int_equal(s.in_flight, 1);
    assert_string_equal(s.owner, "a");
}

TEST(ids_differ)
{
    char a[RPC_SESSION_TEXT], b[RPC_SESSION_TEXT];
    struct err e = ERR_INIT;
    assert_int_equal(rpc_session_draw(a, &e) | rpc_session_draw(b, &e), 0);
    assert_int_equal(strlen(a), RPC_SESSION_TEXT - 1);
    assert_string_not_equal(a, b);
}

int main(void) { return tests_run(NULL, NULL); }
