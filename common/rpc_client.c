#include "common/rpc_client.h"
#include <grpc/byte_buffer.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct rpc_client {
    struct rpc_loop *loop;
    grpc_channel *channel;
    grpc_completion_queue *cq;
};

static const char *grpc_target(const char *target, char *buf, size_t cap)
{
    if (strncmp(target, "tcp://", 6) == 0)
        return target + 6;
    if (strncmp(target, "unix://", 7) == 0)
        target += 7;
    if (target[0] != '/' && target[0] != '.')
        return target;
    snprintf(buf, cap, "unix:%s", target);
    return buf;
}

/* Requests go to nobody but a process of our own user or of root. gRPC shows no descriptor to ask
 * for the peer's uid; the owner of the socket's file is who has bound it, and in a sticky folder
 * such as /tmp nobody else can put another one in its place. */
static int check_owner(const char *target, struct err *e)
{
    const char *path = strncmp(target, "unix:", 5) == 0 ? target + 5 : NULL;
    struct stat st;
    if (!path || stat(path, &st) != 0 || !S_ISSOCK(st.st_mode) || st.st_uid == geteuid() ||
        st.st_uid == 0)
        return 0;
    return err_set(e, ERR_SYSTEM, "%s: the socket belongs to another user (uid %u)", path,
                   (unsigned)st.st_uid);
}

struct rpc_client *rpc_client_new(struct rpc_loop *l, const struct rpc_client_options *o,
                                  struct err *e)
{
    char buf[256];
    const char *target = grpc_target(o->target, buf, sizeof(buf));
    if (check_owner(target, e) != 0)
        return NULL;
    struct rpc_client *c = calloc(1, sizeof(*c));
    if (!c)
        return err_nomem(e), NULL;
    struct setting {
        const char *key;
        int value;
    } settings[] = {
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, -1},
        {GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1},
        {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100},
        {GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100},
        {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000},
        {GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, INT_MAX}, /* going idle would look like a lost peer */
        {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},    /* two clients never share a connection */
        {GRPC_ARG_ENABLE_RETRIES, 0},               /* a step is not idempotent */
        {GRPC_ARG_KEEPALIVE_TIME_MS, o->keepalive_ms},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, o->keepalive_timeout_ms},
        {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
        {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
    };
    grpc_arg args[sizeof(settings) / sizeof(settings[0])];
    size_t n = o->keepalive_ms > 0 ? sizeof(args) / sizeof(args[0]) : 8;
    for (size_t i = 0; i < n; i++) {
        args[i].type = GRPC_ARG_INTEGER;
        args[i].key = (char *)(uintptr_t)settings[i].key;
        args[i].value.integer = settings[i].value;
    }
    grpc_init();
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    c->channel = grpc_channel_create(target, plain, &(grpc_channel_args){n, args});
    grpc_channel_credentials_release(plain);
    c->loop = l;
    c->cq = rpc_loop_queue(l);
    if (!c->channel) {
        err_set(e, ERR_SYSTEM, "no channel to %s", o->target);
        rpc_client_free(c);
        return NULL;
    }
    return c;
}

void rpc_client_free(struct rpc_client *c)
{
    if (!c)
        return;
    if (c->channel)
        grpc_channel_destroy(c->channel);
    free(c);
    grpc_shutdown();
}

void *rpc_client_method(struct rpc_client *c, const char *path)
{
    return grpc_channel_register_call(c->channel, path, NULL, NULL);
}

grpc_connectivity_state rpc_client_state(struct rpc_client *c)
{
    return grpc_channel_check_connectivity_state(c->channel, 0);
}

void rpc_client_watch(struct rpc_client *c, grpc_connectivity_state last, struct rpc_op *op)
{
    rpc_expect(c->loop, op);
    grpc_channel_watch_connectivity_state(c->channel, last, gpr_inf_future(GPR_CLOCK_MONOTONIC),
                                          c->cq, op);
}

static void copy_message(struct rpc_unary *u)
{
    size_t n = GRPC_SLICE_LENGTH(u->details);
    if (n > sizeof(u->message) - 1)
        n = sizeof(u->message) - 1;
    memcpy(u->message, GRPC_SLICE_START_PTR(u->details), n);
    u->message[n] = '\0';
}

static void on_done(struct rpc_op *op, bool ok)
{
    struct rpc_unary *u = CONTAINER_OF(op, struct rpc_unary, op);
    (void)ok; /* a batch that receives the status always succeeds: the status tells */
    if (u->call) {
        if (u->status == GRPC_STATUS_OK)
            u->message[0] = '\0';
        else
            copy_message(u);
        grpc_slice_unref(u->details);
        grpc_metadata_array_destroy(&u->head);
        grpc_metadata_array_destroy(&u->tail);
        grpc_call_unref(u->call);
        u->call = NULL;
    }
    grpc_byte_buffer_destroy(u->request);
    u->request = NULL;
    if (u->status != GRPC_STATUS_OK)
        rpc_unary_clear(u);
    u->done(u);
}

static void fail_later(struct rpc_client *c, struct rpc_unary *u)
{
    if (u->call) {
        grpc_slice_unref(u->details);
        grpc_metadata_array_destroy(&u->head);
        grpc_metadata_array_destroy(&u->tail);
        grpc_call_unref(u->call);
        u->call = NULL;
    }
    u->status = GRPC_STATUS_INTERNAL;
    snprintf(u->message, sizeof(u->message), "the call could not be started");
    rpc_post(c->loop, &u->op);
}

void rpc_unary_start(struct rpc_client *c, void *method, struct rpc_unary *u,
                     grpc_byte_buffer *request, int64_t timeout_ms, bool wait)
{
    gpr_timespec end = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    if (timeout_ms > 0)
        end = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                           gpr_time_from_millis(timeout_ms, GPR_TIMESPAN));
    rpc_unary_clear(u);
    u->op = (struct rpc_op){on_done, u->name};
    u->request = request;
    u->details = grpc_empty_slice();
    grpc_metadata_array_init(&u->head);
    grpc_metadata_array_init(&u->tail);
    u->call = grpc_channel_create_registered_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->cq,
                                                  method, end, NULL);
    grpc_metadata trace = {.key = grpc_slice_from_static_string("traceparent"),
                           .value =
                               grpc_slice_from_copied_string(u->traceparent ? u->traceparent : "")};
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA,
         .flags = wait ? GRPC_INITIAL_METADATA_WAIT_FOR_READY |
                             GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET
                       : 0,
         .data.send_initial_metadata = {.count = u->traceparent && *u->traceparent,
                                        .metadata = &trace}},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = request},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &u->head},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &u->reply},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &u->tail,
                                        .status = &u->status,
                                        .status_details = &u->details}},
    };
    bool started = u->call && rpc_start(c->loop, u->call, ops, 6, &u->op) == 0;
    grpc_slice_unref(trace.value);
    if (!started)
        fail_later(c, u);
}

void rpc_unary_cancel(struct rpc_unary *u)
{
    if (u->call)
        grpc_call_cancel(u->call, NULL);
}

void rpc_unary_clear(struct rpc_unary *u)
{
    if (u->reply)
        grpc_byte_buffer_destroy(u->reply);
    u->reply = NULL;
}
