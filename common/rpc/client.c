#include "common/rpc/client.h"
#include "common/rpc/creds.h"
#include "common/rpc/session.h"
#include "common/rpc/target.h"
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { METHODS = 32 };

struct client_method {
    void *handle;
    const char *path;
};

struct rpc_client {
    struct rpc_loop *loop;
    grpc_channel *channel;
    grpc_completion_queue *cq;
    struct client_method methods[METHODS];
    size_t n_methods;
    const struct cluster *secret; /* for proofs; NULL: no proofs */
    pthread_mutex_t lock;         /* guards the following */
    struct rpc_ticket last;       /* the server's nonce, our id, the last call number */
    bool challenged;              /* the nonce is known */
};

/* Connects only to a process of our own user or of root. gRPC exposes no descriptor to query the
 * peer's uid. The owner of the socket file is the user that bound it, and in a sticky folder such
 * as /tmp only that user can replace it. */
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

/* Applies the loop's cluster settings to this target. */
static int prepare_proofs(struct rpc_client *c, const struct cluster *cluster, const char *target,
                          struct err *e)
{
    if (!cluster)
        return 0;
    if (cluster_allows(cluster->kind, target, e))
        return -1;
    if (cluster->kind == CLUSTER_SECRET && !rpc_is_unix(target))
        c->secret = cluster;
    return getrandom(c->last.id, sizeof(c->last.id), 0) == (ssize_t)sizeof(c->last.id)
               ? 0
               : err_sys(e, "getrandom");
}

struct rpc_client *rpc_client_new(struct rpc_loop *l, const struct rpc_client_options *o,
                                  struct err *e)
{
    char buf[256];
    const char *target = rpc_target(o->target, buf, sizeof(buf));
    const struct cluster *cluster = rpc_loop_cluster(l);
    if (check_owner(target, e) != 0)
        return NULL;
    struct rpc_client *c = calloc(1, sizeof(*c));
    if (!c)
        return err_nomem(e), NULL;
    if (prepare_proofs(c, cluster, o->target, e)) {
        free(c);
        return NULL;
    }
    struct setting {
        const char *key;
        int value;
    } settings[] = {
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, -1},
        {GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1},
        {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100},
        {GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100},
        {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000},
        {GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, INT_MAX}, /* idle mode would look like a lost peer */
        {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},    /* clients never share a connection */
        {GRPC_ARG_ENABLE_RETRIES, 0},               /* steps are not idempotent */
        {GRPC_ARG_KEEPALIVE_TIME_MS, o->keepalive_ms},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, o->keepalive_timeout_ms},
        {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
        {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
    };
    enum { SETTINGS = sizeof(settings) / sizeof(settings[0]) };
    grpc_arg args[SETTINGS + 1];
    size_t n = o->keepalive_ms > 0 ? SETTINGS : 8;
    for (size_t i = 0; i < n; i++) {
        args[i].type = GRPC_ARG_INTEGER;
        args[i].key = (char *)(uintptr_t)settings[i].key;
        args[i].value.integer = settings[i].value;
    }
    if (cluster && cluster->kind == CLUSTER_TLS) { /* all members share a DNS name */
        args[n].type = GRPC_ARG_STRING;
        args[n].key = (char *)(uintptr_t)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG;
        args[n++].value.string = (char *)(uintptr_t)cluster->name;
    }
    grpc_init();
    grpc_channel_credentials *creds = rpc_channel_creds(cluster, o->target);
    if (creds)
        c->channel = grpc_channel_create(target, creds, &(grpc_channel_args){n, args});
    grpc_channel_credentials_release(creds);
    pthread_mutex_init(&c->lock, NULL);
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
    pthread_mutex_destroy(&c->lock);
    free(c);
    grpc_shutdown();
}

void *rpc_client_method(struct rpc_client *c, const char *path)
{
    if (c->n_methods == METHODS)
        return NULL;
    struct client_method *m = &c->methods[c->n_methods++];
    *m = (struct client_method){grpc_channel_register_call(c->channel, path, NULL, NULL), path};
    return m;
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

/* ---------------------------------------------------------------- authentication */

/* Finds 32 bytes in hex in the trailing metadata. */
static bool find_hex32(const grpc_metadata_array *tail, const char *key, uint8_t out[32])
{
    for (size_t i = 0; i < tail->count; i++)
        if (grpc_slice_str_cmp(tail->metadata[i].key, key) == 0)
            return rpc_unhex((const char *)GRPC_SLICE_START_PTR(tail->metadata[i].value),
                             GRPC_SLICE_LENGTH(tail->metadata[i].value), out, 32);
    return false;
}

/* The proof for this call; false: no nonce yet, or out of memory. */
static bool prove(struct rpc_client *c, struct rpc_unary *u, char out[RPC_PROOF_TEXT])
{
    const struct client_method *m = u->method;
    pthread_mutex_lock(&c->lock);
    for (size_t i = sizeof(c->last.number); i-- > 0 && ++c->last.number[i] == 0;) {
    }
    u->ticket = c->last;
    bool can = c->challenged;
    pthread_mutex_unlock(&c->lock);
    return can && !rpc_digest(u->request, u->ticket.digest) &&
           !rpc_proof_make(c->secret, &u->ticket, m->path, out);
}

/* Did the server send a challenge with another nonce than the one used? */
static bool challenged_anew(struct rpc_client *c, const struct rpc_unary *u)
{
    uint8_t nonce[CLUSTER_NONCE];
    if (!u->again || u->status != GRPC_STATUS_UNAUTHENTICATED ||
        !find_hex32(&u->tail, RPC_CHALLENGE_KEY, nonce))
        return false;
    pthread_mutex_lock(&c->lock);
    memcpy(c->last.nonce, nonce, sizeof(nonce));
    c->challenged = true;
    pthread_mutex_unlock(&c->lock);
    return cluster_same(nonce, u->ticket.nonce, sizeof(nonce)) == false;
}

/* A reply without a valid proof is rejected. */
static void check_proof(struct rpc_unary *u)
{
    uint8_t digest[RPC_DIGEST], want[CLUSTER_MAC], got[CLUSTER_MAC];
    if (!u->client || u->status != GRPC_STATUS_OK ||
        (find_hex32(&u->tail, RPC_PROOF_KEY, got) && !rpc_digest(u->reply, digest) &&
         !rpc_proof_answer(u->client->secret, &u->ticket, digest, want) &&
         cluster_same(got, want, sizeof(want))))
        return;
    u->status = GRPC_STATUS_UNAUTHENTICATED;
    grpc_slice_unref(u->details);
    u->details = grpc_slice_from_static_string("the server did not prove that it knows the secret");
}

/* ---------------------------------------------------------------- calls */

static void drop_call(struct rpc_unary *u)
{
    grpc_slice_unref(u->details);
    grpc_metadata_array_destroy(&u->head);
    grpc_metadata_array_destroy(&u->tail);
    grpc_call_unref(u->call);
    u->call = NULL;
}

static int begin(struct rpc_client *c, struct rpc_unary *u, const char *traceparent);

static bool sent_again(struct rpc_unary *u)
{
    struct rpc_client *c = u->client;
    if (!c || !challenged_anew(c, u))
        return false;
    drop_call(u);
    rpc_unary_clear(u);
    grpc_byte_buffer_destroy(u->request);
    u->request = u->again;
    u->again = NULL; /* at most once */
    if (begin(c, u, NULL) == 0)
        return true;
    if (u->call)
        drop_call(u);
    u->status = GRPC_STATUS_INTERNAL;
    snprintf(u->message, sizeof(u->message), "the call could not be started");
    return false;
}

static void on_done(struct rpc_op *op, bool ok)
{
    struct rpc_unary *u = CONTAINER_OF(op, struct rpc_unary, op);
    (void)ok; /* a batch that receives the status always succeeds: the status has the result */
    if (u->call && sent_again(u))
        return;
    if (u->call) {
        check_proof(u);
        if (u->status == GRPC_STATUS_OK)
            u->message[0] = '\0';
        else
            copy_message(u);
        drop_call(u);
    }
    grpc_byte_buffer_destroy(u->request);
    grpc_byte_buffer_destroy(u->again);
    u->request = u->again = NULL;
    if (u->status != GRPC_STATUS_OK)
        rpc_unary_clear(u);
    u->done(u);
}

static void fail_later(struct rpc_client *c, struct rpc_unary *u)
{
    if (u->call)
        drop_call(u);
    u->status = GRPC_STATUS_INTERNAL;
    snprintf(u->message, sizeof(u->message), "the call could not be started");
    rpc_post(c->loop, &u->op);
}

static int begin(struct rpc_client *c, struct rpc_unary *u, const char *traceparent)
{
    const struct client_method *m = u->method;
    char proof[RPC_PROOF_TEXT];
    const char *session = rpc_loop_session(c->loop);
    grpc_metadata md[3];
    size_t n = 0;
    u->details = grpc_empty_slice();
    grpc_metadata_array_init(&u->head);
    grpc_metadata_array_init(&u->tail);
    if (traceparent && *traceparent)
        md[n++] = (grpc_metadata){.key = grpc_slice_from_static_string("traceparent"),
                                  .value = grpc_slice_from_copied_string(traceparent)};
    if (session && *session)
        md[n++] = (grpc_metadata){.key = grpc_slice_from_static_string(RPC_SESSION_KEY),
                                  .value = grpc_slice_from_copied_string(session)};
    if (u->client && prove(c, u, proof))
        md[n++] = (grpc_metadata){.key = grpc_slice_from_static_string(RPC_PROOF_KEY),
                                  .value = grpc_slice_from_copied_string(proof)};
    u->call = m ? grpc_channel_create_registered_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                                      c->cq, m->handle, u->end, NULL)
                : NULL;
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA,
         .flags = u->waits ? GRPC_INITIAL_METADATA_WAIT_FOR_READY |
                                 GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET
                           : 0,
         .data.send_initial_metadata = {.count = n, .metadata = md}},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = u->request},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &u->head},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &u->reply},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &u->tail,
                                        .status = &u->status,
                                        .status_details = &u->details}},
    };
    int rc = u->call ? rpc_start(c->loop, u->call, ops, 6, &u->op) : -1;
    while (n)
        grpc_slice_unref(md[--n].value);
    return rc;
}

void rpc_unary_start(struct rpc_client *c, void *method, struct rpc_unary *u,
                     grpc_byte_buffer *request, int64_t timeout_ms, bool wait)
{
    u->end = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    if (timeout_ms > 0)
        u->end = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                              gpr_time_from_millis(timeout_ms, GPR_TIMESPAN));
    rpc_unary_clear(u);
    u->op = (struct rpc_op){on_done, u->name};
    u->request = request;
    u->method = method;
    u->waits = wait;
    u->client = c->secret ? c : NULL;
    u->again = c->secret ? grpc_byte_buffer_copy(request) : NULL;
    if (begin(c, u, u->traceparent))
        fail_later(c, u);
}

void rpc_unary_cancel(struct rpc_unary *u)
{
    if (u->again) /* it is not repeated either */
        grpc_byte_buffer_destroy(u->again);
    u->again = NULL;
    if (u->call)
        grpc_call_cancel(u->call, NULL);
}

void rpc_unary_clear(struct rpc_unary *u)
{
    if (u->reply)
        grpc_byte_buffer_destroy(u->reply);
    u->reply = NULL;
}
