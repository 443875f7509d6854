#include "model-server/offload/peer.h"
#include "common/clock.h"
#include "common/rpc/client.h"
#include "common/rpc/pack.h"
#include "common/thread/cond.h"
#include "proto/kv_transfer.pb-c.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    PEERS = 16,
    AHEAD = 2,              /* calls that are out */
    ANSWER_BYTES = 4 << 20, /* asked for at once */
    ANSWER_LIMIT = 64 << 20,
    WAIT_MS = 500, /* for blocks that are still being sent to the peer's memory */
    LEAST_MS = 5
};
#define PAUSE_NS INT64_C(2000000000)

struct peer {
    char *address; /* NULL: the place is free */
    struct rpc_client *client;
    void *read;
    int64_t used_ns, paused_until_ns;
};

struct peer_call {
    struct rpc_unary u;
    struct kv_peers *of;
    uint32_t first, n; /* keys that it asks for */
    bool out, back;
};

struct kv_peers {
    struct rpc_loop *loop;
    pthread_t thread;
    struct rpc_op stop, cancel;
    struct peer peers[PEERS];
    struct peer_call calls[AHEAD];
    struct rpc_mem mem; /* of one answer */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* a call has returned, or all are cancelled */
    bool cancelled;
};

/* ------------------------------------------------------------------ life */

static void *run_loop(void *arg)
{
    rpc_loop_run(((struct kv_peers *)arg)->loop);
    return NULL;
}

static void on_stop(struct rpc_op *op, bool ok)
{
    (void)ok;
    rpc_loop_stop(CONTAINER_OF(op, struct kv_peers, stop)->loop);
}

static void on_back(struct rpc_unary *u)
{
    struct peer_call *c = CONTAINER_OF(u, struct peer_call, u);
    pthread_mutex_lock(&c->of->lock);
    c->back = true;
    pthread_cond_signal(&c->of->wake);
    pthread_mutex_unlock(&c->of->lock);
}

struct kv_peers *kv_peers_new(const struct cluster *c, struct err *e)
{
    struct kv_peers *p = calloc(1, sizeof(*p));
    if (!p)
        return err_nomem(e), NULL;
    grpc_init();
    pthread_mutex_init(&p->lock, NULL);
    cond_init(&p->wake);
    rpc_mem_init(&p->mem, ANSWER_LIMIT);
    for (int i = 0; i < AHEAD; i++)
        p->calls[i] =
            (struct peer_call){.of = p, .u = {.done = on_back, .name = "KvTransfer.Read"}};
    if ((p->loop = rpc_loop_new())) {
        rpc_loop_set_cluster(p->loop, c);
        if (pthread_create(&p->thread, NULL, run_loop, p) == 0)
            return p;
        rpc_loop_stop(p->loop);
        rpc_loop_run(p->loop);
        rpc_loop_free(p->loop);
    }
    free(p);
    grpc_shutdown();
    return err_set(e, ERR_SYSTEM, "cannot start a thread"), NULL;
}

static void drop_peer(struct peer *p)
{
    rpc_client_free(p->client);
    free(p->address);
    *p = (struct peer){0};
}

void kv_peers_free(struct kv_peers *p)
{
    if (!p)
        return;
    for (int i = 0; i < PEERS; i++)
        drop_peer(&p->peers[i]);
    p->stop = (struct rpc_op){on_stop, "stop"};
    rpc_post(p->loop, &p->stop);
    pthread_join(p->thread, NULL);
    rpc_loop_free(p->loop);
    rpc_mem_free(&p->mem);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
    grpc_shutdown();
}

/* ------------------------------------------------------------------ connections */

/* No call is pending: any entry may be replaced. */
static struct peer *find_peer(struct kv_peers *p, const char *address, struct err *e)
{
    struct peer *oldest = &p->peers[0];
    for (int i = 0; i < PEERS; i++) {
        struct peer *x = &p->peers[i];
        if (x->address && strcmp(x->address, address) == 0) {
            if (!x->paused_until_ns || x->paused_until_ns > clock_ns())
                return x;
            oldest = x; /* connects anew, with certificates that may have been renewed */
            break;
        }
        if (x->used_ns < oldest->used_ns)
            oldest = x;
    }
    drop_peer(oldest);
    const struct rpc_client_options o = {.target = address};
    if (!(oldest->address = strdup(address)))
        return err_nomem(e), NULL;
    if (!(oldest->client = rpc_client_new(p->loop, &o, e))) {
        drop_peer(oldest);
        return NULL;
    }
    oldest->read = rpc_client_method(oldest->client, "/kvtransfer.v1.KvTransfer/Read");
    return oldest;
}

/* ------------------------------------------------------------------ reading */

static int64_t left_ms(const struct kv_peer_read *r)
{
    return (r->until_ns - clock_ns()) / 1000000;
}

/* Number of blocks per answer, if they have all parts. */
static uint32_t at_once(const struct kv_layout *l)
{
    const size_t n = ANSWER_BYTES / kv_record_bytes(l, (1U << KV_N_PARTS) - 1);
    return n ? (uint32_t)n : 1;
}

static bool send_call(struct peer *to, struct peer_call *c, const struct kv_peer_read *r,
                      uint32_t first)
{
    const uint32_t most = at_once(r->layout), left = r->n - first;
    Kvtransfer__V1__ReadRequest q = KVTRANSFER__V1__READ_REQUEST__INIT;
    const int64_t ms = left_ms(r);
    c->first = first;
    c->n = left < most ? left : most;
    ProtobufCBinaryData *keys = malloc((c->n + (size_t)1) * sizeof(*keys));
    if (!keys || ms < LEAST_MS) {
        free(keys);
        return false;
    }
    for (uint32_t i = 0; i < c->n; i++)
        keys[i] = (ProtobufCBinaryData){KV_KEY, (uint8_t *)(uintptr_t)r->keys[first + i]};
    q.identity = (ProtobufCBinaryData){KV_IDENTITY, (uint8_t *)(uintptr_t)r->layout->identity};
    q.keys = keys;
    q.n_keys = c->n;
    q.wait_ms = (uint32_t)(ms / 2 < WAIT_MS ? ms / 2 : WAIT_MS); /* and answer in time */
    c->out = true;
    c->back = false;
    rpc_unary_start(to->client, to->read, &c->u, rpc_pack(&q.base), ms, false);
    free(keys);
    return true;
}

static void wait_for(struct kv_peers *p, struct peer_call *c)
{
    pthread_mutex_lock(&p->lock);
    while (!c->back)
        pthread_cond_wait(&p->wake, &p->lock);
    pthread_mutex_unlock(&p->lock);
    c->out = false;
}

static enum kv_peer_outcome failed(const struct peer_call *c, struct err *why)
{
    err_set(why, ERR_SYSTEM, "%s", c->u.message);
    switch (c->u.status) {
    case GRPC_STATUS_DEADLINE_EXCEEDED:
        return KV_PEER_LATE;
    case GRPC_STATUS_UNAUTHENTICATED:
    case GRPC_STATUS_FAILED_PRECONDITION:
    case GRPC_STATUS_UNIMPLEMENTED:
    case GRPC_STATUS_INVALID_ARGUMENT:
        return KV_PEER_REFUSED;
    default:
        return KV_PEER_UNREACHABLE;
    }
}

/* Passes on the records of a call. */
static enum kv_peer_outcome take_answer(struct kv_peers *p, struct peer_call *c,
                                        const struct kv_peer_read *r, struct err *why)
{
    enum kv_peer_outcome out = KV_PEER_FOUND;
    if (c->u.status != GRPC_STATUS_OK)
        return failed(c, why);
    rpc_mem_reset(&p->mem);
    const Kvtransfer__V1__ReadResponse *a = (const void *)rpc_unpack(
        &kvtransfer__v1__read_response__descriptor, c->u.reply, &p->mem, why);
    rpc_unary_clear(&c->u);
    if (!a)
        return KV_PEER_DAMAGED;
    const uint32_t n = a->n_records < c->n ? (uint32_t)a->n_records : c->n;
    for (uint32_t i = 0; i < n && out == KV_PEER_FOUND; i++)
        out = r->take(r->arg, c->first + i, a->records[i].data, a->records[i].len);
    if (out == KV_PEER_DAMAGED)
        err_set(why, ERR_SYSTEM, "what came is not the block that was asked for");
    if (out == KV_PEER_FOUND && n < c->n) {
        err_set(why, ERR_SYSTEM, "a block is not kept there");
        out = KV_PEER_MISSING;
    }
    return out;
}

/* On the loop's thread, which alone may cancel. */
static void on_cancel(struct rpc_op *op, bool ok)
{
    struct kv_peers *p = CONTAINER_OF(op, struct kv_peers, cancel);
    (void)ok;
    for (uint32_t k = 0; k < AHEAD; k++)
        if (p->calls[k].out)
            rpc_unary_cancel(&p->calls[k].u);
    pthread_mutex_lock(&p->lock);
    p->cancelled = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void end_calls(struct kv_peers *p)
{
    bool any = false;
    for (uint32_t k = 0; k < AHEAD; k++)
        any |= p->calls[k].out;
    if (!any)
        return;
    p->cancelled = false;
    p->cancel = (struct rpc_op){on_cancel, "cancel"};
    rpc_post(p->loop, &p->cancel);
    pthread_mutex_lock(&p->lock);
    while (!p->cancelled)
        pthread_cond_wait(&p->wake, &p->lock);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t k = 0; k < AHEAD; k++) {
        if (p->calls[k].out)
            wait_for(p, &p->calls[k]);
        rpc_unary_clear(&p->calls[k].u);
    }
}

static enum kv_peer_outcome read_all(struct kv_peers *p, struct peer *from,
                                     const struct kv_peer_read *r, uint32_t *taken, struct err *why)
{
    enum kv_peer_outcome out = KV_PEER_FOUND;
    uint32_t asked = 0, turn = 0;
    for (; *taken < r->n && out == KV_PEER_FOUND; turn++) {
        for (uint32_t k = 0; k < AHEAD && asked < r->n; k++) {
            struct peer_call *next = &p->calls[(turn + k) % AHEAD];
            if (next->out)
                continue;
            if (!send_call(from, next, r, asked))
                break;
            asked += next->n;
        }
        struct peer_call *c = &p->calls[turn % AHEAD];
        if (!c->out) {
            err_set(why, ERR_SYSTEM, "the time is over");
            out = KV_PEER_LATE;
            break;
        }
        wait_for(p, c);
        out = take_answer(p, c, r, why);
        *taken += out == KV_PEER_FOUND ? c->n : 0;
    }
    end_calls(p);
    return out;
}

enum kv_peer_outcome kv_peers_read(struct kv_peers *p, const struct kv_peer_read *r,
                                   struct err *why)
{
    struct peer *from = find_peer(p, r->address, why);
    if (!from) /* the cluster's flags do not allow this address */
        return KV_PEER_REFUSED;
    from->used_ns = clock_ns();
    if (from->paused_until_ns > from->used_ns) {
        err_set(why, ERR_SYSTEM, "it could not be reached a moment ago");
        return KV_PEER_UNREACHABLE;
    }
    uint32_t taken = 0;
    const enum kv_peer_outcome out = read_all(p, from, r, &taken, why);
    if (out == KV_PEER_UNREACHABLE || (out == KV_PEER_LATE && taken == 0))
        from->paused_until_ns = clock_ns() + PAUSE_NS;
    return out;
}
