/* A call object passes through the core as a chain of rpc_ops:
 *
 *   armed -> server_call_arrived -> on_message -> [serial lane] -> answer -> on_sent -> freed
 *
 * The next call object is armed when a call arrives, so that the core always holds some. Without
 * memory for it, one that ends is armed again. */
#include "common/clock.h"
#include "common/rpc/accept.h"
#include "common/rpc/creds.h"
#include "common/rpc/server_impl.h"
#include "common/rpc/span.h"
#include "common/thread/cond.h"
#include "common/thread/watchdog.h"
#include <grpc/grpc_security.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CLOSE_GRACE_MS = 2000, HANDSHAKE_MS = 5000 };
static const size_t mem_limit = (size_t)4 << 30; /* for one unpacked message and its answer */

static void on_message(struct rpc_op *op, bool ok);

static void on_sent(struct rpc_op *op, bool ok)
{
    (void)ok; /* a disconnected client needs no answer */
    server_call_free(CONTAINER_OF(op, struct server_call, op));
}

/* Builds the trailing metadata: the proof of a reply, or the nonce for an unauthenticated caller.
 * False: none. */
static bool send_metadata(struct server_call *k, grpc_metadata *md)
{
    uint8_t raw[CLUSTER_MAC], digest[RPC_DIGEST];
    char text[RPC_HEX32];
    if (k->challenged)
        memcpy(raw, k->ticket.nonce, sizeof(raw));
    else if (!k->proved || !k->out || rpc_digest(k->out, digest) ||
             rpc_proof_answer(k->s->o.cluster, &k->ticket, digest, raw))
        return false;
    rpc_hex(raw, sizeof(raw), text);
    k->trailer = grpc_slice_from_copied_string(text);
    *md = (grpc_metadata){
        .key = grpc_slice_from_static_string(k->challenged ? RPC_CHALLENGE_KEY : RPC_PROOF_KEY),
        .value = k->trailer};
    return true;
}

/* Ends the call with k->out, or with a status. Any thread. */
static void finish(struct server_call *k, grpc_status_code code, const char *why)
{
    grpc_metadata md;
    grpc_op ops[4] = {{.op = GRPC_OP_RECV_CLOSE_ON_SERVER},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER}};
    size_t n = 2;
    ops[0].data.recv_close_on_server.cancelled = &k->cancelled;
    ops[1].data.send_status_from_server.status = code;
    if (send_metadata(k, &md)) {
        ops[1].data.send_status_from_server.trailing_metadata_count = 1;
        ops[1].data.send_status_from_server.trailing_metadata = &md;
    }
    if (why) {
        k->why = grpc_slice_from_copied_string(why);
        ops[1].data.send_status_from_server.status_details = &k->why;
    }
    if (!k->greeted)
        ops[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
    if (k->out && code == GRPC_STATUS_OK && k->method->lane != RPC_STREAM) {
        ops[n].op = GRPC_OP_SEND_MESSAGE;
        ops[n++].data.send_message.send_message = k->out;
    }
    k->op = (struct rpc_op){on_sent, "sent"};
    if (rpc_start(k->s->loop, k->c, ops, n, &k->op))
        server_call_free(k);
}

static void receive(struct server_call *k)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &k->in;
    k->op = (struct rpc_op){on_message, "message"};
    if (rpc_start(k->s->loop, k->c, &op, 1, &k->op))
        server_call_free(k);
}

/* Unpacks, handles, packs: sets k->out, or a status in *code and `e`. */
static int handle(struct server_call *k, struct rpc_mem *mem, grpc_status_code *code, struct err *e)
{
    struct rpc_call call = {mem, GRPC_STATUS_INTERNAL};
    const ProtobufCMessage *out = NULL;
    ProtobufCMessage *in = rpc_unpack(k->method->request, k->in, mem, e);
    if (in)
        out = k->method->handle(k->s->o.ctx, in, &call, e);
    else
        call.code =
            e->kind == ERR_SYSTEM ? GRPC_STATUS_RESOURCE_EXHAUSTED : GRPC_STATUS_INVALID_ARGUMENT;
    if (out)
        k->out = rpc_pack(out);
    rpc_mem_reset(mem);
    *code = out ? GRPC_STATUS_OK : call.code;
    return out ? 0 : -1;
}

static void add_span(const struct server_call *k, grpc_status_code code, const char *why)
{
    rpc_span_add(k->s->o.tracer, &(struct rpc_span){.method = k->method->name,
                                                    .parent = &k->parent,
                                                    .arrived_ns = k->arrived_ns,
                                                    .begun_ns = k->begun_ns,
                                                    .status = code,
                                                    .error = why});
}

static void answer(struct server_call *k, struct rpc_mem *mem)
{
    struct err e = ERR_INIT;
    grpc_status_code code;
    if (k->parent.sampled)
        k->begun_ns = clock_ns();
    bool failed = handle(k, mem, &code, &e) != 0;
    if (failed && k->method->lane == RPC_SERIAL && k->s->o.failed)
        code = k->s->o.failed(k->s->o.ctx, k->method, code, &e);
    if (k->parent.sampled)
        add_span(k, code, failed ? e.msg : NULL);
    finish(k, code, failed ? e.msg : NULL);
}

static void on_replied(struct rpc_op *op, bool ok)
{
    struct server_call *k = CONTAINER_OF(op, struct server_call, op);
    grpc_byte_buffer_destroy(k->out);
    k->out = NULL;
    if (ok)
        receive(k);
    else
        finish(k, GRPC_STATUS_CANCELLED, NULL);
}

static void stream_step(struct server_call *k)
{
    struct err e = ERR_INIT;
    grpc_status_code code;
    if (!k->in) {
        finish(k, GRPC_STATUS_OK, NULL);
        return;
    }
    if (handle(k, &k->s->at_once, &code, &e)) {
        finish(k, code, e.msg);
        return;
    }
    grpc_byte_buffer_destroy(k->in);
    k->in = NULL;
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_MESSAGE}, {.op = GRPC_OP_SEND_INITIAL_METADATA}};
    ops[0].data.send_message.send_message = k->out;
    size_t n = k->greeted ? 1 : 2;
    k->greeted = true;
    k->op = (struct rpc_op){on_replied, "replied"};
    if (rpc_start(k->s->loop, k->c, ops, n, &k->op))
        server_call_free(k);
}

static struct call_lane *lane_of(struct rpc_server *s, enum rpc_lane lane)
{
    return &s->lanes[lane == RPC_APART];
}

static void enqueue(struct server_call *k)
{
    struct rpc_server *s = k->s;
    struct call_lane *lane = lane_of(s, k->method->lane);
    k->next = NULL;
    pthread_mutex_lock(&s->lock);
    bool late = s->stopping;
    if (!late) {
        *lane->tail = k;
        lane->tail = &k->next;
        pthread_cond_broadcast(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    if (late)
        finish(k, GRPC_STATUS_UNAVAILABLE, "the shard is shutting down");
}

/* Does the proof belong to other bytes? */
static bool altered(const struct server_call *k)
{
    uint8_t digest[RPC_DIGEST];
    return k->proved &&
           (rpc_digest(k->in, digest) || !cluster_same(digest, k->ticket.digest, sizeof(digest)));
}

static void on_message(struct rpc_op *op, bool ok)
{
    struct server_call *k = CONTAINER_OF(op, struct server_call, op);
    if (!ok)
        finish(k, GRPC_STATUS_CANCELLED, NULL);
    else if (altered(k))
        finish(k, GRPC_STATUS_UNAUTHENTICATED, "the message is not the one that was proved");
    else if (k->method->lane == RPC_STREAM)
        stream_step(k);
    else if (!k->in)
        finish(k, GRPC_STATUS_INVALID_ARGUMENT, "a call without a message");
    else if (k->method->lane == RPC_SERIAL || k->method->lane == RPC_APART)
        enqueue(k);
    else
        answer(k, &k->s->at_once);
}

static bool proves_itself(struct server_call *k)
{
    struct rpc_guard *g = &k->s->guard;
    for (size_t i = 0; i < k->md.count; i++) {
        grpc_slice v = k->md.metadata[i].value;
        if (grpc_slice_str_cmp(k->md.metadata[i].key, RPC_PROOF_KEY) == 0)
            return rpc_guard_admits(g, k->details.method, (const char *)GRPC_SLICE_START_PTR(v),
                                    GRPC_SLICE_LENGTH(v), &k->ticket);
    }
    return false;
}

/* NULL, or why the caller is refused. */
static const char *refusal(struct server_call *k)
{
    const struct cluster *c = k->s->o.cluster;
    if (!c || c->kind == CLUSTER_OPEN || rpc_from_unix(k->c))
        return NULL;
    if (c->kind == CLUSTER_TLS)
        return rpc_from_member(k->c, c) ? NULL : "the certificate is not for this cluster";
    k->proved = proves_itself(k);
    if (k->proved)
        return k->method && k->method->lane == RPC_STREAM ? "not over TCP" : NULL;
    k->challenged = true;
    memcpy(k->ticket.nonce, k->s->guard.nonce, sizeof(k->ticket.nonce));
    return "the caller did not prove that it knows the secret";
}

/* False: another caller owns the state that this call would change. */
static bool claim(struct server_call *k)
{
    struct rpc_server *s = k->s;
    const bool changes =
        k->method && k->method->lane != RPC_AT_ONCE && k->method->lane != RPC_STREAM;
    for (size_t i = 0; i < k->md.count; i++) {
        grpc_slice v = k->md.metadata[i].value;
        const size_t n = GRPC_SLICE_LENGTH(v);
        if (grpc_slice_str_cmp(k->md.metadata[i].key, RPC_SESSION_KEY) == 0 &&
            n < sizeof(k->session)) {
            memcpy(k->session, GRPC_SLICE_START_PTR(v), n);
            k->session[n] = 0;
        }
    }
    pthread_mutex_lock(&s->lock);
    if (changes)
        k->holds = rpc_session_begin(&s->session, k->session, clock_ms());
    else
        rpc_session_seen(&s->session, k->session, clock_ms());
    pthread_mutex_unlock(&s->lock);
    return !changes || k->holds;
}

static void read_parent(struct server_call *k)
{
    char text[2 * TRACE_PARENT_LEN];
    for (size_t i = 0; i < k->md.count; i++) {
        grpc_slice v = k->md.metadata[i].value;
        size_t n = GRPC_SLICE_LENGTH(v);
        if (grpc_slice_str_cmp(k->md.metadata[i].key, "traceparent") != 0 || n >= sizeof(text))
            continue;
        memcpy(text, GRPC_SLICE_START_PTR(v), n);
        text[n] = 0;
        trace_parse(text, &k->parent);
    }
    k->arrived_ns = clock_ns();
}

void server_call_arrived(struct rpc_op *op, bool ok)
{
    struct server_call *k = CONTAINER_OF(op, struct server_call, op);
    struct rpc_server *s = k->s;
    if (!ok) { /* the server is shutting down: no further calls arrive */
        server_call_free(k);
        return;
    }
    server_call_arm(s);
    for (size_t i = 0; i < s->o.n_methods && !k->method; i++)
        if (grpc_slice_str_cmp(k->details.method, s->o.methods[i].name) == 0)
            k->method = &s->o.methods[i];
    if (s->o.tracer)
        read_parent(k);
    const char *no = refusal(k);
    if (no)
        finish(k, GRPC_STATUS_UNAUTHENTICATED, no);
    else if (!claim(k))
        finish(k, GRPC_STATUS_ABORTED, "another router uses this shard");
    else if (k->method)
        receive(k);
    else
        finish(k, GRPC_STATUS_UNIMPLEMENTED, "unknown method");
}

static void on_down(struct rpc_op *op, bool ok)
{
    (void)ok;
    struct rpc_server *s = CONTAINER_OF(op, struct rpc_server, down);
    s->is_down = true;
    server_stop_when_empty(s);
}

static void *loop_thread(void *arg)
{
    struct rpc_server *s = arg;
    rpc_loop_run(s->loop);
    pthread_mutex_lock(&s->lock);
    s->drained = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* The next call of a lane. NULL: stopping. */
static struct server_call *next_call(struct rpc_server *s, enum rpc_lane of)
{
    struct call_lane *lane = lane_of(s, of);
    pthread_mutex_lock(&s->lock);
    while (!lane->head && !s->stopping)
        pthread_cond_wait(&s->wake, &s->lock);
    struct server_call *k = s->stopping ? NULL : lane->head;
    if (k && !(lane->head = k->next))
        lane->tail = &lane->head;
    pthread_mutex_unlock(&s->lock);
    return k;
}

static void refuse_waiting(struct rpc_server *s, enum rpc_lane of)
{
    struct call_lane *lane = lane_of(s, of);
    pthread_mutex_lock(&s->lock);
    struct server_call *k = lane->head;
    lane->head = NULL;
    lane->tail = &lane->head;
    pthread_mutex_unlock(&s->lock);
    while (k) {
        struct server_call *next = k->next;
        finish(k, GRPC_STATUS_UNAVAILABLE, "the shard is shutting down");
        k = next;
    }
}

static void *apart_thread(void *arg)
{
    struct rpc_server *s = arg;
    struct server_call *k;
    while ((k = next_call(s, RPC_APART)))
        answer(k, &s->apart);
    refuse_waiting(s, RPC_APART);
    return NULL;
}

void rpc_server_run(struct rpc_server *s)
{
    struct server_call *k;
    while ((k = next_call(s, RPC_SERIAL))) {
        if (s->o.busy_ns)
            watch_busy(s->o.busy_ns);
        answer(k, &s->serial);
        if (s->o.after)
            s->o.after(s->o.ctx);
        if (s->o.busy_ns)
            watch_idle(s->o.busy_ns);
    }
    refuse_waiting(s, RPC_SERIAL);
}

const _Atomic int64_t *rpc_server_busy(const struct rpc_server *s)
{
    return rpc_loop_busy(s->loop);
}

void rpc_server_stop(struct rpc_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

static grpc_server *make_server(struct rpc_loop *loop)
{
    /* Allows clients' keepalive pings; forbids two servers on one port. */
    static const struct {
        const char *key;
        int value;
    } want[] = {
        {"grpc.max_receive_message_length", -1},
        {"grpc.max_send_message_length", -1},
        {"grpc.http2.min_ping_interval_without_data_ms", 1000},
        {"grpc.http2.max_ping_strikes", 0},
        {"grpc.keepalive_permit_without_calls", 1},
        {"grpc.so_reuseport", 0},
        {"grpc.server_handshake_timeout_ms", HANDSHAKE_MS}, /* TLS handshake, or HTTP/2 settings */
    };
    enum { N = sizeof(want) / sizeof(want[0]) };
    grpc_arg a[N];
    for (int i = 0; i < N; i++) {
        a[i] = (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)want[i].key};
        a[i].value.integer = want[i].value;
    }
    grpc_channel_args args = {N, a};
    grpc_server *g = grpc_server_create(&args, NULL);
    grpc_server_register_completion_queue(g, rpc_loop_queue(loop), NULL);
    return g;
}

static int no_thread(struct rpc_server *s, struct err *e)
{
    rpc_bind_close(&s->also);
    rpc_bind_close(&s->bind);
    s->no_thread = true;
    return err_set(e, ERR_SYSTEM, "cannot start the server's thread");
}

static void end_apart(struct rpc_server *s)
{
    rpc_server_stop(s);
    if (s->has_apart)
        pthread_join(s->apart_thread, NULL);
}

static int start(struct rpc_server *s, struct err *e)
{
    s->bind.lock_fd = s->also.lock_fd = -1;
    if (s->o.cluster && s->o.cluster->kind == CLUSTER_SECRET &&
        rpc_guard_init(&s->guard, s->o.cluster, e))
        return -1;
    if (rpc_bind_open(&s->bind, s->o.address, s->o.cluster, s->grpc, e))
        return -1;
    if (s->o.also && rpc_bind_open(&s->also, s->o.also, s->o.cluster, s->grpc, e)) {
        rpc_bind_close(&s->bind);
        return -1;
    }
    grpc_server_start(s->grpc);
    if (s->has_apart && pthread_create(&s->apart_thread, NULL, apart_thread, s))
        return no_thread(s, e);
    if (pthread_create(&s->thread, NULL, loop_thread, s)) {
        end_apart(s);
        return no_thread(s, e);
    }
    for (int i = 0; i < 8; i++)
        server_call_arm(s);
    return 0;
}

/* Nothing was started, but the core requires a shutdown before destruction. */
static void abandon(struct rpc_server *s)
{
    s->down = (struct rpc_op){on_down, "down"};
    rpc_expect(s->loop, &s->down);
    grpc_server_shutdown_and_notify(s->grpc, rpc_loop_queue(s->loop), &s->down);
    rpc_loop_run(s->loop);
}

static void destroy(struct rpc_server *s)
{
    grpc_server_destroy(s->grpc);
    rpc_loop_free(s->loop);
    rpc_mem_free(&s->at_once);
    rpc_mem_free(&s->serial);
    rpc_mem_free(&s->apart);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
    rpc_release();
}

struct rpc_server *rpc_server_open(const struct rpc_server_options *o, struct err *e)
{
    struct rpc_server *s = calloc(1, sizeof(*s));
    if (!s)
        return err_nomem(e), NULL;
    grpc_init();
    rpc_accept_reserve();
    s->o = *o;
    s->loop = rpc_loop_new();
    if (!s->loop) {
        free(s);
        rpc_release();
        return err_nomem(e), NULL;
    }
    s->grpc = make_server(s->loop);
    rpc_mem_init(&s->at_once, mem_limit);
    rpc_mem_init(&s->serial, mem_limit);
    rpc_mem_init(&s->apart, mem_limit);
    for (size_t i = 0; i < o->n_methods; i++)
        s->has_apart |= o->methods[i].lane == RPC_APART;
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->wake);
    for (size_t i = 0; i < sizeof(s->lanes) / sizeof(s->lanes[0]); i++)
        s->lanes[i].tail = &s->lanes[i].head;
    if (start(s, e)) {
        if (s->no_thread) /* gRPC may lack threads, too, and would wait for them: see process.h */
            return NULL;
        abandon(s);
        destroy(s);
        return NULL;
    }
    return s;
}

int rpc_server_port(const struct rpc_server *s)
{
    return s->bind.port ? s->bind.port : s->also.port;
}

void rpc_server_close(struct rpc_server *s)
{
    if (!s)
        return;
    end_apart(s);
    refuse_waiting(s, RPC_SERIAL);
    s->down = (struct rpc_op){on_down, "down"};
    rpc_expect(s->loop, &s->down);
    grpc_server_shutdown_and_notify(s->grpc, rpc_loop_queue(s->loop), &s->down);

    const struct timespec until = clock_deadline(CLOSE_GRACE_MS);
    pthread_mutex_lock(&s->lock);
    while (!s->drained && pthread_cond_timedwait(&s->wake, &s->lock, &until) == 0)
        ;
    bool drained = s->drained;
    pthread_mutex_unlock(&s->lock);
    if (!drained) /* a client neither reads nor disconnects */
        grpc_server_cancel_all_calls(s->grpc);
    pthread_join(s->thread, NULL);
    rpc_bind_close(&s->also);
    rpc_bind_close(&s->bind);
    destroy(s);
}
