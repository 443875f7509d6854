#include "model-server/offload/peer_server.h"
#include "common/clock.h"
#include "common/rpc/server.h"
#include "proto/kv_transfer.pb-c.h"
#include <stdlib.h>
#include <string.h>

enum {
    ANSWER_MOST = 16 << 20, /* bytes; one record may be larger */
    WAIT_MOST_MS = 1000,
    KEYS_MOST = 1 << 16
};

struct kv_peer_server {
    struct kv_tier *tier;
    struct rpc_server *server;
};

static int check(const Kvtransfer__V1__ReadRequest *q, struct err *e)
{
    if (q->identity.len != KV_IDENTITY)
        return err_set(e, ERR_VALIDATION, "an identity of %zu bytes: it has %d", q->identity.len,
                       KV_IDENTITY);
    if (q->n_keys > KEYS_MOST)
        return err_set(e, ERR_VALIDATION, "%zu keys: at most %d", q->n_keys, KEYS_MOST);
    for (size_t i = 0; i < q->n_keys; i++)
        if (q->keys[i].len != KV_KEY)
            return err_set(e, ERR_VALIDATION, "a key of %zu bytes: it has %d", q->keys[i].len,
                           KV_KEY);
    return 0;
}

static int add(Kvtransfer__V1__ReadResponse *r, struct rpc_mem *m, void *record, size_t n)
{
    void *p = rpc_mem_alloc(m, n);
    if (p)
        memcpy(p, record, n);
    free(record);
    if (!p)
        return -1;
    r->records[r->n_records++] = (ProtobufCBinaryData){n, p};
    return 0;
}

static const ProtobufCMessage *handle_read(void *ctx, const ProtobufCMessage *in,
                                           struct rpc_call *call, struct err *e)
{
    const Kvtransfer__V1__ReadRequest *q = (const void *)in;
    const struct kv_peer_server *s = ctx;
    Kvtransfer__V1__ReadResponse *r = RPC_NEW(call->mem, Kvtransfer__V1__ReadResponse, 1);
    call->code = GRPC_STATUS_INVALID_ARGUMENT;
    if (check(q, e))
        return NULL;
    call->code = GRPC_STATUS_RESOURCE_EXHAUSTED;
    if (!r)
        return err_nomem(e), NULL;
    kvtransfer__v1__read_response__init(r);
    r->records = RPC_NEW(call->mem, ProtobufCBinaryData, q->n_keys + 1);
    if (!r->records)
        return err_nomem(e), NULL;
    const int64_t wait_ms = q->wait_ms < WAIT_MOST_MS ? q->wait_ms : WAIT_MOST_MS;
    const int64_t until = wait_ms ? clock_ns() + wait_ms * 1000000 : 0;
    bool foreign = false;
    size_t sum = 0, n = 0;
    for (size_t i = 0; i < q->n_keys && sum < ANSWER_MOST; i++, sum += n) {
        void *record =
            kv_tier_read(s->tier, q->identity.data, q->keys[i].data, until, &n, &foreign);
        if (!record || add(r, call->mem, record, n))
            break;
    }
    call->code = GRPC_STATUS_FAILED_PRECONDITION;
    if (foreign)
        return err_set(e, ERR_VALIDATION, "another model, format or rank is served here"), NULL;
    return &r->base;
}

static const struct rpc_method methods[] = {
    {"/kvtransfer.v1.KvTransfer/Read", &kvtransfer__v1__read_request__descriptor, RPC_APART,
     handle_read},
};

struct kv_peer_server *kv_peer_server_open(const char *address, const struct cluster *c,
                                           struct kv_tier *t, struct err *e)
{
    struct kv_peer_server *s = calloc(1, sizeof(*s));
    if (!s)
        return err_nomem(e), NULL;
    s->tier = t;
    const struct rpc_server_options o = {
        .address = address, .methods = methods, .n_methods = 1, .ctx = s, .cluster = c};
    if (!(s->server = rpc_server_open(&o, e))) {
        free(s);
        return NULL;
    }
    return s;
}

void kv_peer_server_close(struct kv_peer_server *s)
{
    if (!s)
        return;
    rpc_server_close(s->server);
    free(s);
}
