/* A health probe and a server that ends, or is not the right one. */
#include "common/rpc/server.h"
#include "launcher/process/health.h"
#include "proto/generate.pb-c.h"
#include "tests/unit/test.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The first calls fail with `codes`, which end with OK. */
struct endings {
    grpc_status_code codes[8];
    atomic_uint asked;
};

static const ProtobufCMessage *health(void *ctx, const ProtobufCMessage *in, struct rpc_call *call,
                                      struct err *e)
{
    static const Generate__V3__HealthResponse fine = GENERATE__V3__HEALTH_RESPONSE__INIT;
    struct endings *x = ctx;
    (void)in;
    call->code = x->codes[atomic_fetch_add(&x->asked, 1)];
    return call->code == GRPC_STATUS_OK ? &fine.base
                                        : (err_set(e, ERR_SYSTEM, "the server ends"), NULL);
}

static int probe(struct endings *x, const struct rpc_method *method, struct err *e)
{
    char dir[] = "/tmp/health-test-XXXXXX", address[64];
    assert_non_null(mkdtemp(dir));
    snprintf(address, sizeof(address), "unix://%s/s", dir);
    const struct rpc_server_options o = {
        .address = address, .methods = method, .n_methods = 1, .ctx = x};
    struct rpc_server *s = rpc_server_open(&o, e);
    if (!s)
        fail_msg("%s", e->msg);
    const int rc = health_wait(address, 20000, e);
    rpc_server_stop(s);
    rpc_server_close(s);
    assert_int_equal(rmdir(dir), 0);
    return rc;
}

static const struct rpc_method ours = {"/generate.v3.TextGenerationService/Health",
                                       &generate__v3__health_request__descriptor, RPC_AT_ONCE,
                                       health};

TEST(a_server_that_ends_during_a_call_is_waited_for)
{
    struct endings x = {.codes = {GRPC_STATUS_UNAVAILABLE, GRPC_STATUS_CANCELLED,
                                  GRPC_STATUS_INTERNAL, GRPC_STATUS_UNKNOWN, GRPC_STATUS_OK}};
    struct err e = ERR_INIT;
    assert_int_equal(probe(&x, &ours, &e), 0);
    assert_int_equal(x.asked, 5);
}

TEST(another_program_is_not_waited_for)
{
    const struct rpc_method other = {
        "/other.Service/Health", &generate__v3__health_request__descriptor, RPC_AT_ONCE, health};
    struct endings x = {.codes = {GRPC_STATUS_OK}};
    struct err e = ERR_INIT;
    assert_int_equal(probe(&x, &other, &e), -1);
    assert_int_equal(x.asked, 0);
    assert_int_equal(e.kind, ERR_UNHEALTHY);
    assert_non_null(strstr(e.msg, "unknown method"));
}

int main(void) { return tests_run(NULL, NULL); }
