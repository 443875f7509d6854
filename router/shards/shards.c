#include "router/shards/shards.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/rpc/target.h"
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Keepalive pings detect a frozen peer within 15 s. Only our shards tolerate them (TGI's server
 * closes the connection), and only ours report a vocabulary hash in Info. */
enum { KEEPALIVE_MS = 10000, KEEPALIVE_TIMEOUT_MS = 5000, AGAIN_MS = 200 };

/* generate.v2's messages are subsets of v3's (proto/generate_v2.proto) and are read as v3. */
static const struct {
    const char *path[2]; /* v2, v3 */
    const ProtobufCMessageDescriptor *reply;
} rpcs[N_SHARD_RPCS] = {
#define RPC(name, msg)                                                                             \
    {                                                                                              \
        {"/generate.v2.TextGenerationService/" name, "/generate.v3.TextGenerationService/" name},  \
            &generate__v3__##msg##__descriptor                                                     \
    }
    [SHARD_DISCOVERY] = RPC("ServiceDiscovery", service_discovery_response),
    [SHARD_CLEAR_CACHE] = RPC("ClearCache", clear_cache_response),
    [SHARD_INFO] = RPC("Info", info_response),
    [SHARD_WARMUP] = RPC("Warmup", warmup_response),
    [SHARD_HEALTH] = RPC("Health", health_response),
    [SHARD_FILTER_BATCH] = RPC("FilterBatch", filter_batch_response),
    [SHARD_PREFILL] = RPC("Prefill", prefill_response),
    /* equal layouts, so that one function reads both */
    [SHARD_DECODE] = RPC("Decode", prefill_response),
    [SHARD_LOAD_ADAPTER] = RPC("LoadAdapter", load_adapter_response),
    [SHARD_UNLOAD_ADAPTER] = RPC("UnloadAdapter", unload_adapter_response),
    [SHARD_EMBED] = RPC("Embed", embed_response),
    [SHARD_KV_STORE] = RPC("KvStore", kv_store_response),
    [SHARD_KV_FETCH] = RPC("KvFetch", kv_fetch_response),
    [SHARD_KV_LOAD] = RPC("KvLoad", kv_load_response),
#undef RPC
};

struct rank {
    struct shards *s;
    struct rpc_client *client;
    char *address;
    void *methods[N_SHARD_RPCS];
    struct rpc_op watch;
    grpc_connectivity_state seen;
    bool watched;
};

struct shards {
    struct rpc_loop *loop;
    int version; /* of generate.vN */
    uint32_t n;
    struct rank *ranks;
    void (*on_break)(void *arg, const char *why);
    void *on_break_arg;
    void (*on_unwatched)(void *arg);
    void *on_unwatched_arg;
    uint32_t n_watches;
    bool closing;
};

struct fan_rank {
    struct fan *f;
    struct rpc_unary call;
};

uint32_t shards_count(const struct shards *s) { return s->n; }
int shards_version(const struct shards *s) { return s->version; }

/* ------------------------------------------------------------------ one call to all */
static void on_rank(struct rpc_unary *u)
{
    struct fan *f = CONTAINER_OF(u, struct fan_rank, call)->f;
    if (--f->left > 0)
        return;
    f->busy = false;
    f->done(f);
}

int fan_init(struct fan *f, struct shards *s, void (*done)(struct fan *f), void *arg, struct err *e)
{
    *f = (struct fan){.done = done, .arg = arg, .s = s, .n = s->n};
    f->ranks = calloc(s->n, sizeof(*f->ranks));
    if (!f->ranks)
        return err_nomem(e);
    for (uint32_t i = 0; i < s->n; i++) {
        f->ranks[i].f = f;
        f->ranks[i].call.done = on_rank;
    }
    return 0;
}

void fan_free(struct fan *f)
{
    assert(!f->busy);
    for (uint32_t i = 0; f->ranks && i < f->n; i++)
        rpc_unary_clear(&f->ranks[i].call);
    free(f->ranks);
    f->ranks = NULL;
}

void fan_call(struct fan *f, enum shard_rpc rpc, const ProtobufCMessage *request,
              int64_t timeout_ms, bool wait)
{
    assert(!f->busy);
    f->busy = true;
    f->rpc = rpc;
    f->left = f->n;
    /* gRPC moves the bytes out of the buffer it sends, so every rank gets its own buffer over
     * shared slices. On a foreign thread the fan may complete during the loop below, so only `n` is
     * used. */
    uint32_t n = f->n;
    char traceparent[sizeof(f->traceparent)];
    memcpy(traceparent, f->traceparent, sizeof(traceparent));
    f->traceparent[0] = 0;
    grpc_byte_buffer *bytes[SHARDS_MAX];
    bytes[0] = rpc_pack(request);
    for (uint32_t i = 1; i < n; i++)
        bytes[i] = grpc_byte_buffer_copy(bytes[0]);
    for (uint32_t i = 0; i < n; i++) {
        f->ranks[i].call.name = rpcs[rpc].path[f->s->version - 2];
        f->ranks[i].call.traceparent = traceparent;
        rpc_unary_start(f->s->ranks[i].client, f->s->ranks[i].methods[rpc], &f->ranks[i].call,
                        bytes[i], timeout_ms, wait);
    }
}

void fan_cancel(struct fan *f)
{
    for (uint32_t i = 0; f->busy && i < f->n; i++)
        rpc_unary_cancel(&f->ranks[i].call);
}

struct sync {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool over;
};

static void on_sync(struct fan *f)
{
    struct sync *y = f->arg;
    pthread_mutex_lock(&y->lock);
    y->over = true;
    pthread_cond_signal(&y->cond);
    pthread_mutex_unlock(&y->lock);
}

int fan_call_sync(struct fan *f, enum shard_rpc rpc, const ProtobufCMessage *request,
                  int64_t timeout_ms, bool wait, struct err *e)
{
    struct sync y = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    f->done = on_sync;
    f->arg = &y;
    fan_call(f, rpc, request, timeout_ms, wait);
    pthread_mutex_lock(&y.lock);
    while (!y.over)
        pthread_cond_wait(&y.cond, &y.lock);
    pthread_mutex_unlock(&y.lock);
    f->arg = NULL;
    return fan_error(f, e);
}

/* ------------------------------------------------------------------ answers */
/* A shard that shuts down leaves CANCELLED behind; ABORTED: another router has it. */
static bool unreachable(const struct rpc_unary *u)
{
    return u->status == GRPC_STATUS_UNAVAILABLE || u->status == GRPC_STATUS_CANCELLED ||
           u->status == GRPC_STATUS_ABORTED;
}

static void unreachable_error(struct err *e, uint32_t rank, const char *why, int sys)
{
    err_set(e, ERR_GENERATION, "Could not connect to Text Generation server: shard %u: %s", rank,
            why);
    e->sys = sys;
}

bool shards_lost(const struct err *e) { return e->sys == ECONNRESET || e->sys == EBUSY; }

int fan_error(const struct fan *f, struct err *e)
{
    const struct rpc_unary *bad = NULL;
    uint32_t rank = 0;
    for (uint32_t i = 0; i < f->n; i++) { /* a lost rank is the cause of the errors of the others */
        const struct rpc_unary *u = &f->ranks[i].call;
        if (u->status != GRPC_STATUS_OK && (!bad || (unreachable(u) && !unreachable(bad)))) {
            bad = u;
            rank = i;
        }
    }
    if (!bad)
        return 0;
    if (!unreachable(bad)) {
        err_set(e, bad->status == GRPC_STATUS_RESOURCE_EXHAUSTED ? ERR_OVERLOADED : ERR_GENERATION,
                "Server error: %s", bad->message);
        e->sys = bad->status == GRPC_STATUS_DEADLINE_EXCEEDED ? ETIMEDOUT : 0;
        return -1;
    }
    unreachable_error(e, rank, bad->message,
                      bad->status == GRPC_STATUS_ABORTED ? EBUSY : ECONNRESET);
    return -1;
}

enum err_kind fan_request_error(enum err_kind k)
{
    return k == ERR_OVERLOADED ? ERR_OVERLOADED : ERR_GENERATION;
}

bool fan_refused(const struct fan *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        switch (f->ranks[i].call.status) {
        case GRPC_STATUS_OK:
        case GRPC_STATUS_UNAVAILABLE:
        case GRPC_STATUS_DEADLINE_EXCEEDED: /* the rank may still execute the call */
        case GRPC_STATUS_CANCELLED:
        case GRPC_STATUS_ABORTED:
        case GRPC_STATUS_DATA_LOSS: /* it has, and had no memory for the answer */
            return false;
        default:
            break;
        }
    return true;
}

grpc_status_code fan_status(const struct fan *f, uint32_t rank, const char **why)
{
    *why = f->ranks[rank].call.message;
    return f->ranks[rank].call.status;
}

int fan_lost_rank(const struct fan *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (unreachable(&f->ranks[i].call))
            return (int)i;
    return -1;
}

const ProtobufCMessage *fan_reply(const struct fan *f, uint32_t rank, struct rpc_mem *m,
                                  struct err *e)
{
    const ProtobufCMessage *msg = rpc_unpack(rpcs[f->rpc].reply, f->ranks[rank].call.reply, m, e);
    if (!msg && e->kind == ERR_VALIDATION)
        err_set(e, ERR_GENERATION, "Server error: shard %u sent an invalid %s", rank,
                rpcs[f->rpc].reply->name);
    return msg;
}

static void slower(struct step_reply *out, const Generate__V3__PrefillResponse *r)
{
    if (out->batch && r->total_ns < out->total_ns)
        return;
    out->forward_ns = r->forward_ns;
    out->decode_ns = r->decode_ns;
    out->total_ns = r->total_ns;
    out->concat_ns = r->_concat_ns_case ? r->concat_ns : 0;
    out->encode_ns = r->encode_ns;
    out->encode_done = r->encode_done;
}

int fan_step_reply(const struct fan *f, struct rpc_mem *m, struct step_reply *out, struct err *e)
{
    const Generate__V3__PrefillResponse *r[SHARDS_MAX];
    *out = (struct step_reply){0};
    for (uint32_t i = f->n; i-- > 0;) {
        if (!(r[i] = (const void *)fan_reply(f, i, m, e)))
            return -1;
        slower(out, r[i]);
        out->n_gens += r[i]->n_generations;
        if (i == 0)
            out->constraints = r[i]->constraints;
        if (i == f->n - 1)
            out->batch = r[i]->batch;
        if (i == f->n - 1 && r[i]->stalled &&
            r[i]->stalled->n_tokens == r[i]->stalled->n_request_ids)
            out->stalled = r[i]->stalled; /* equal on every rank */
    }
    if (f->n == 1) {
        out->gens = r[0]->generations;
        return 0;
    }
    out->gens = RPC_NEW(m, Generate__V3__Generation *, out->n_gens + 1);
    if (!out->gens)
        return err_nomem(e);
    size_t n = 0;
    for (uint32_t i = f->n; i-- > 0;)
        for (size_t k = 0; k < r[i]->n_generations; k++)
            out->gens[n++] = r[i]->generations[k];
    return 0;
}

/* ------------------------------------------------------------------ broken connections */
static void watch(struct rank *r, grpc_connectivity_state seen)
{
    r->seen = seen;
    rpc_client_watch(r->client, seen, &r->watch);
}

static void on_watch(struct rpc_op *op, bool ok)
{
    struct rank *r = CONTAINER_OF(op, struct rank, watch);
    struct shards *s = r->s;
    (void)ok;
    if (s->closing) {
        r->watched = false;
        if (--s->n_watches == 0 && s->on_unwatched)
            s->on_unwatched(s->on_unwatched_arg);
        return;
    }
    bool was_up = r->seen == GRPC_CHANNEL_READY;
    watch(r, rpc_client_state(r->client));
    if (was_up) { /* even if it is up again: it may be a different process */
        struct err e = ERR_INIT;
        unreachable_error(&e, (uint32_t)(r - s->ranks), "the connection broke", ECONNRESET);
        s->on_break(s->on_break_arg, e.msg);
    }
}

void shards_watch(struct shards *s, void (*fn)(void *arg, const char *why), void *arg)
{
    s->on_break = fn;
    s->on_break_arg = arg;
    for (uint32_t i = 0; i < s->n; i++) {
        s->ranks[i].watch = (struct rpc_op){on_watch, "connection"};
        s->ranks[i].watched = true;
        s->n_watches++;
        watch(&s->ranks[i], GRPC_CHANNEL_READY); /* they have answered just now */
    }
}

/* A watch cannot be cancelled; destroying the channel ends it. */
void shards_unwatch(struct shards *s, void (*gone)(void *arg), void *arg)
{
    s->closing = true;
    s->on_unwatched = gone;
    s->on_unwatched_arg = arg;
    uint32_t armed = s->n_watches;
    for (uint32_t i = 0; i < s->n; i++) {
        rpc_client_free(s->ranks[i].client);
        s->ranks[i].client = NULL;
    }
    if (armed == 0)
        gone(arg);
}

/* ------------------------------------------------------------------ connecting */
static struct shards *ranks_new(struct rpc_loop *l, char *const *urls, size_t n, int version,
                                bool keepalive, struct err *e)
{
    struct shards *s = calloc(1, sizeof(*s));
    if (!s || !(s->ranks = calloc(n, sizeof(*s->ranks)))) {
        free(s);
        return err_nomem(e), NULL;
    }
    s->loop = l;
    s->version = version;
    for (s->n = 0; s->n < n; s->n++) {
        struct rank *r = &s->ranks[s->n];
        struct rpc_client_options o = {.target = urls[s->n],
                                       .keepalive_ms = keepalive ? KEEPALIVE_MS : 0,
                                       .keepalive_timeout_ms = KEEPALIVE_TIMEOUT_MS};
        r->s = s;
        r->address = strdup(urls[s->n]);
        if (!(r->client = r->address ? rpc_client_new(l, &o, e) : (err_nomem(e), NULL))) {
            free(r->address);
            shards_free(s);
            return NULL;
        }
        for (int m = 0; m < N_SHARD_RPCS; m++)
            r->methods[m] = rpc_client_method(r->client, rpcs[m].path[version - 2]);
    }
    return s;
}

const char *shards_address(const struct shards *s, uint32_t rank) { return s->ranks[rank].address; }

void shards_free(struct shards *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->n; i++) {
        rpc_client_free(s->ranks[i].client);
        free(s->ranks[i].address);
    }
    free(s->ranks);
    free(s);
}

struct discovery { /* the group, as reported by rank 0 */
    char **urls;
    size_t n;
    bool keepalive;
    bool older; /* true: it does not know this version */
};

static int discover(struct shards *first, int64_t timeout_ms, bool wait, struct rpc_mem *m,
                    struct discovery *d, struct err *e)
{
    Generate__V3__ServiceDiscoveryRequest ask = GENERATE__V3__SERVICE_DISCOVERY_REQUEST__INIT;
    Generate__V3__InfoRequest ask_info = GENERATE__V3__INFO_REQUEST__INIT;
    const Generate__V3__ServiceDiscoveryResponse *found = NULL;
    const Generate__V3__InfoResponse *info = NULL;
    struct fan f;

    if (fan_init(&f, first, NULL, NULL, e) != 0)
        return -1;
    if (fan_call_sync(&f, SHARD_DISCOVERY, &ask.base, timeout_ms, wait, e) == 0)
        found = (const void *)fan_reply(&f, 0, m, e);
    else
        d->older = f.ranks[0].call.status == GRPC_STATUS_UNIMPLEMENTED;
    if (found && fan_call_sync(&f, SHARD_INFO, &ask_info.base, timeout_ms, wait, e) == 0)
        info = (const void *)fan_reply(&f, 0, m, e);
    fan_free(&f);
    if (!info)
        return -1;
    if (found->n_urls < 1 || found->n_urls > SHARDS_MAX)
        return err_set(e, ERR_SYSTEM, "ServiceDiscovery names %zu shards, 1 to %d are possible",
                       found->n_urls, SHARDS_MAX);
    *d = (struct discovery){found->urls, found->n_urls, info->vocab_size > 0, false};
    return 0;
}

/* Any call that changes the shards' state would do; ClearCache is needed first anyway. A router
 * that ended without a farewell owns them for some seconds more (common/rpc/session.h). */
static int claim(struct shards *s, int64_t end_ms, bool wait, struct err *e)
{
    Generate__V3__ClearCacheRequest clear = GENERATE__V3__CLEAR_CACHE_REQUEST__INIT;
    struct fan f;
    int rc;
    if (fan_init(&f, s, NULL, NULL, e) != 0)
        return -1;
    for (;;) {
        const int64_t left = end_ms - clock_ms();
        rc = fan_call_sync(&f, SHARD_CLEAR_CACHE, &clear.base, left > 1 ? left : 1, wait, e);
        if (rc == 0 || left < AGAIN_MS || e->sys != EBUSY)
            break;
        nanosleep(&(struct timespec){.tv_nsec = AGAIN_MS * 1000000L}, NULL);
    }
    fan_free(&f);
    return rc == 0 ? 0 : err_wrap(e, "Unable to clear the model shards cache");
}

struct shards *shards_connect(struct rpc_loop *l, const char *target, int64_t timeout_ms, bool wait,
                              struct err *e)
{
    char *only[1] = {(char *)(uintptr_t)target};
    const int64_t end_ms = clock_ms() + timeout_ms;
    struct shards *first = NULL, *s = NULL;
    struct discovery d = {0};
    struct rpc_mem m;
    int version = 3, rc;

    if (wait)
        rpc_target_await(target, timeout_ms);
    rpc_mem_init(&m, 1 << 20);
    do { /* v3, then v2 */
        shards_free(first);
        first = ranks_new(l, only, 1, version, false, e);
        rc = first ? discover(first, timeout_ms, wait, &m, &d, e) : -1;
    } while (rc != 0 && d.older && version-- > 2);
    if (rc != 0) {
        err_wrap(e, "Unable to connect to the model shards: %s", target);
        goto out;
    }
    if (!(s = ranks_new(l, d.urls, d.n, version, d.keepalive, e)))
        goto out;
    /* Rank 0 first: of two routers that connect at once, one gets all ranks. */
    if ((s->n > 1 && claim(first, end_ms, wait, e) != 0) || claim(s, end_ms, wait, e) != 0) {
        shards_free(s);
        s = NULL;
    }
out:
    rpc_mem_free(&m);
    shards_free(first);
    return s;
}
