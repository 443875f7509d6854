/* Who belongs to a cluster: addresses, proofs of calls, and calls over TCP in each of the ways. */
#include "common/clock.h"
#include "common/net/cluster.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "proto/generate.pb-c.h"
#include "tests/certs.h"
#include "tests/unit/test.h"
#include <grpc/slice.h>
#include <pthread.h>

static struct certs files;

static int setup_files(void **state)
{
    (void)state;
    certs_make(&files, "members.test");
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    certs_remove(&files);
    return 0;
}

static void load(struct cluster *c, enum cluster_kind kind)
{
    struct err e = ERR_INIT;
    struct cluster_options o = certs_options(&files, kind);
    if (cluster_load(c, &o, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(c->kind, kind);
}

TEST(addresses_that_leave_the_machine)
{
    static const char *const local[] = {
        "unix:///a", "unix:a",         "/a",  "./a",       "tcp://127.0.0.1:80", "127.9.9.9",
        "[::1]:80",  "tcp://[::1]:80", "::1", "localhost", "tcp://localhost:1"};
    static const char *const others[] = {
        "tcp://10.0.0.1:80",  "0.0.0.0",   "tcp://[::]:80",  "::", "node0",        "node0:80",
        "localhost.evil:127", "128.0.0.1", "127.0.0.1.evil", "",   "[fe80::1]:127"};
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
        if (!cluster_is_local(local[i]) || cluster_allows(CLUSTER_OPEN, local[i], &e))
            fail_msg("%s", local[i]);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (cluster_is_local(others[i]) || !cluster_allows(CLUSTER_OPEN, others[i], &e) ||
            cluster_allows(CLUSTER_SECRET, others[i], &e))
            fail_msg("%s", others[i]);
}

TEST(macs_know_where_parts_end)
{
    uint8_t a[CLUSTER_MAC], b[CLUSTER_MAC];
    struct cluster c;
    load(&c, CLUSTER_SECRET);
    struct cluster_part one[] = {{"ab", 2}, {"c", 1}}, other[] = {{"a", 1}, {"bc", 2}};
    assert_int_equal(cluster_mac(&c, "x", one, 2, a) | cluster_mac(&c, "x", other, 2, b), 0);
    assert_false(cluster_same(a, b, sizeof(a)));
    assert_int_equal(cluster_mac(&c, "y", one, 2, b), 0);
    assert_false(cluster_same(a, b, sizeof(a)));
    assert_int_equal(cluster_mac(&c, "x", one, 2, b), 0);
    assert_true(cluster_same(a, b, sizeof(a)));
    cluster_free(&c);
}

/* ---------------------------------------------------------------- each call counts once */

static bool admits(struct rpc_guard *g, uint8_t id, uint64_t number)
{
    struct rpc_ticket t = {.id = {id}}, seen;
    char text[RPC_PROOF_TEXT];
    memcpy(t.nonce, g->nonce, sizeof(t.nonce));
    for (int i = 0; i < 8; i++)
        t.number[i] = (uint8_t)(number >> (56 - 8 * i));
    assert_int_equal(rpc_proof_make(g->cluster, &t, "/a.B/C", text), 0);
    grpc_slice method = grpc_slice_from_static_string("/a.B/C");
    return rpc_guard_admits(g, method, text, strlen(text), &seen);
}

TEST(a_number_is_accepted_once)
{
    struct rpc_guard *g = calloc(1, sizeof(*g));
    struct cluster c;
    struct err e = ERR_INIT;
    load(&c, CLUSTER_SECRET);
    assert_int_equal(rpc_guard_init(g, &c, &e), 0);
    assert_false(admits(g, 1, 0));
    static const uint64_t order[] = {1, 3, 2, 300, 299, 45, 1000000, 999999, 999745};
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        if (!admits(g, 1, order[i]))
            fail_msg("%llu", (unsigned long long)order[i]);
        for (size_t k = 0; k <= i; k++)
            assert_false(admits(g, 1, order[k]));
    }
    assert_false(admits(g, 1, 999744)); /* before the window */
    assert_true(admits(g, 2, 1));       /* another caller has its own numbers */
    assert_false(admits(g, 3, UINT64_MAX));
    for (int i = 0; i < 2 * RPC_WINDOW; i++) /* random order within the window, each once */
        assert_true(admits(g, 4, (uint64_t)(i ^ 77) + 1));
    for (int i = RPC_WINDOW; i < 2 * RPC_WINDOW; i++)
        assert_false(admits(g, 4, (uint64_t)i + 1));
    free(g);
    cluster_free(&c);
}

TEST(a_full_table_begins_again_under_a_fresh_nonce)
{
    struct rpc_guard *g = calloc(1, sizeof(*g));
    uint8_t nonce[CLUSTER_NONCE];
    struct cluster c;
    struct err e = ERR_INIT;
    load(&c, CLUSTER_SECRET);
    assert_int_equal(rpc_guard_init(g, &c, &e), 0);
    for (int i = 0; i < RPC_CALLERS; i++)
        assert_true(admits(g, (uint8_t)i, 1));
    memcpy(nonce, g->nonce, sizeof(nonce));
    struct rpc_ticket t = {.id = {1, 1}, .number = {0, 0, 0, 0, 0, 0, 0, 1}}, seen;
    char text[RPC_PROOF_TEXT];
    memcpy(t.nonce, nonce, sizeof(nonce));
    assert_int_equal(rpc_proof_make(&c, &t, "/a.B/C", text), 0);
    grpc_slice method = grpc_slice_from_static_string("/a.B/C");
    assert_false(rpc_guard_admits(g, method, text, strlen(text), &seen));
    assert_false(cluster_same(nonce, g->nonce, sizeof(nonce)));
    assert_false(rpc_guard_admits(g, method, text, strlen(text), &seen)); /* of the old nonce */
    assert_true(admits(g, 1, 1));
    free(g);
    cluster_free(&c);
}

/* ---------------------------------------------------------------- calls over TCP */

struct rig {
    struct rpc_server *server;
    pthread_t thread;
    struct rpc_loop *loop;
    struct rpc_client *client;
    struct rpc_unary u;
    void *method;
    uint64_t want, got;
    int todo;
};

static const ProtobufCMessage *on_filter(void *ctx, const ProtobufCMessage *in,
                                         struct rpc_call *call, struct err *e)
{
    const Generate__V3__FilterBatchRequest *q = (const void *)in;
    Generate__V3__FilterBatchResponse *r = RPC_NEW(call->mem, Generate__V3__FilterBatchResponse, 1);
    (void)ctx, (void)e;
    generate__v3__filter_batch_response__init(r);
    r->batch = RPC_NEW(call->mem, Generate__V3__CachedBatch, 1);
    generate__v3__cached_batch__init(r->batch);
    r->batch->id = q->batch_id + 1;
    return &r->base;
}

static const struct rpc_method methods[] = {
    {"/t.S/Filter", &generate__v3__filter_batch_request__descriptor, RPC_SERIAL, on_filter},
};

static void *serve(void *s)
{
    rpc_server_run(s);
    return NULL;
}

static void ask(struct rig *g)
{
    Generate__V3__FilterBatchRequest q = GENERATE__V3__FILTER_BATCH_REQUEST__INIT;
    q.batch_id = (uint64_t)g->todo;
    rpc_unary_start(g->client, g->method, &g->u, rpc_pack(&q.base), 20000, true);
}

static void on_done(struct rpc_unary *u)
{
    struct rig *g = CONTAINER_OF(u, struct rig, u);
    struct rpc_mem m;
    struct err e = ERR_INIT;
    rpc_mem_init(&m, 1 << 16);
    if (u->status == GRPC_STATUS_OK) {
        const Generate__V3__FilterBatchResponse *r = (const void *)rpc_unpack(
            &generate__v3__filter_batch_response__descriptor, u->reply, &m, &e);
        g->got += r->batch->id == (uint64_t)g->todo + 1;
    }
    rpc_mem_free(&m);
    rpc_unary_clear(u);
    if (u->status == GRPC_STATUS_OK && --g->todo > 0)
        ask(g);
    else
        rpc_loop_stop(g->loop);
}

/* n calls one after the other, or up to the first that fails. */
static struct rig calls(const struct cluster *server, const struct cluster *client, int n)
{
    char target[64];
    struct err e = ERR_INIT;
    struct rig g = {.todo = n, .u = {.done = on_done, .name = "test"}};
    struct rpc_server_options o = {
        .address = "tcp://127.0.0.1:0", .methods = methods, .n_methods = 1, .cluster = server};
    grpc_init();
    if (!(g.server = rpc_server_open(&o, &e)))
        fail_msg("%s", e.msg);
    pthread_create(&g.thread, NULL, serve, g.server);
    g.loop = rpc_loop_new();
    rpc_loop_set_cluster(g.loop, client);
    snprintf(target, sizeof(target), "tcp://127.0.0.1:%d", rpc_server_port(g.server));
    if (!(g.client = rpc_client_new(g.loop, &(struct rpc_client_options){.target = target}, &e)))
        fail_msg("%s", e.msg);
    g.method = rpc_client_method(g.client, "/t.S/Filter");
    ask(&g);
    rpc_loop_run(g.loop);
    rpc_client_free(g.client);
    rpc_server_stop(g.server);
    pthread_join(g.thread, NULL);
    rpc_server_close(g.server);
    rpc_loop_free(g.loop);
    grpc_shutdown();
    return g;
}

TEST(members_call_each_other)
{
    for (int kind = CLUSTER_OPEN; kind <= CLUSTER_TLS; kind++) {
        struct cluster c;
        load(&c, (enum cluster_kind)kind);
        struct rig g = calls(&c, &c, 600); /* more than a window */
        if (g.got != 600)
            fail_msg("kind %d: %d calls, then %s", kind, (int)g.got, g.u.message);
        cluster_free(&c);
    }
}

/* As cert-manager renews them: the paths stay, and a new authority replaces the old one. */
TEST(renewed_certificates_are_for_new_connections)
{
    struct certs at, next;
    struct cluster old, fresh;
    struct err e = ERR_INIT;
    certs_make(&at, "members.test");
    certs_make(&next, "members.test");
    const struct cluster_options o = certs_options(&at, CLUSTER_TLS);
    const struct cluster_options in_next = certs_options(&next, CLUSTER_TLS);
    if (cluster_load(&old, &o, &e) || cluster_load(&fresh, &in_next, &e))
        fail_msg("%s", e.msg);
    assert_string_not_equal(old.cert, fresh.cert);
    certs_copy(at.cert, next.cert);
    assert_int_equal(calls(&old, &old, 1).got, 1); /* half of a renewal: the previous ones stay */
    certs_copy(at.key, next.key);
    assert_int_equal(calls(&old, &fresh, 1).got, 1);
    assert_int_equal(calls(&fresh, &old, 1).got, 1);
    cluster_free(&old);
    cluster_free(&fresh);
    certs_remove(&at);
    certs_remove(&next);
}

TEST(a_certificate_for_another_name_renews_nothing)
{
    struct certs at, other;
    struct cluster c;
    struct cluster_certs now;
    struct err e = ERR_INIT;
    certs_make(&at, "members.test");
    certs_make(&other, "others.test");
    const struct cluster_options o = certs_options(&at, CLUSTER_TLS);
    if (cluster_load(&c, &o, &e))
        fail_msg("%s", e.msg);
    certs_copy(at.cert, other.cert);
    certs_copy(at.key, other.key);
    assert_int_equal(cluster_certs_now(&c, &now), 0);
    assert_int_equal(now.version, 1);
    assert_string_equal(now.cert, c.cert);
    cluster_certs_free(&now);
    cluster_free(&c);
    certs_remove(&at);
    certs_remove(&other);
}

TEST(an_answer_that_is_not_proved_is_none)
{
    struct cluster c;
    load(&c, CLUSTER_SECRET);
    struct rig g = calls(NULL, &c, 1); /* a server that answers everybody */
    assert_int_equal(g.u.status, GRPC_STATUS_UNAUTHENTICATED);
    assert_string_equal(g.u.message, "the server did not prove that it knows the secret");
    g = calls(&c, NULL, 1); /* a client that proves nothing */
    assert_int_equal(g.u.status, GRPC_STATUS_UNAUTHENTICATED);
    struct cluster other;
    load(&other, CLUSTER_SECRET);
    other.secret[0] ^= 1;
    g = calls(&c, &other, 1);
    assert_int_equal(g.u.status, GRPC_STATUS_UNAUTHENTICATED);
    assert_string_equal(g.u.message, "the caller did not prove that it knows the secret");
    cluster_free(&other);
    cluster_free(&c);
}

TEST(without_credentials_nobody_listens_outside)
{
    struct cluster c = {0};
    struct err e = ERR_INIT;
    struct rpc_server_options o = {
        .address = "tcp://0.0.0.0:0", .methods = methods, .n_methods = 1, .cluster = &c};
    assert_null(rpc_server_open(&o, &e));
    assert_non_null(strstr(e.msg, "--cluster-secret-file"));
    o.cluster = NULL;
    assert_null(rpc_server_open(&o, &e));
    grpc_init();
    struct rpc_loop *l = rpc_loop_new();
    rpc_loop_set_cluster(l, &c);
    assert_null(rpc_client_new(l, &(struct rpc_client_options){.target = "tcp://192.0.2.1:1"}, &e));
    assert_non_null(strstr(e.msg, "--cluster-cert"));
    rpc_loop_stop(l);
    rpc_loop_run(l);
    rpc_loop_free(l);
    grpc_shutdown();
}

int main(void) { return tests_run(setup_files, remove_files); }
