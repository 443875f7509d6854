/* kv_transfer_params as written by vLLM's connectors and llm-d's sidecar. */
#include "common/json/json.h"
#include "common/net/peer_address.h"
#include "router/body/body.h"
#include "router/request/transfer.h"

static uint32_t number(struct body *b, struct object o, const char *key, uint32_t least,
                       uint32_t most, bool required)
{
    const cJSON *v = body_get(b, o, key, required);
    if (!v || b->failed)
        return 0;
    const double d = cJSON_IsNumber(v) ? v->valuedouble : -1;
    if (d < least || d > most || d != (double)(uint32_t)d) {
        body_fail(b, o, key, "`kv_transfer_params.%s` must be a whole number from %u to %u", key,
                  least, most);
        return 0;
    }
    return (uint32_t)d;
}

/* The remote block ids. Blocks are found by key, so only their number is used. */
static uint32_t blocks(struct body *b, struct object o)
{
    const cJSON *list = body_get(b, o, "remote_block_ids", true), *kid;
    uint32_t n = 0;
    if (!list || b->failed)
        return 0;
    if (!cJSON_IsArray(list)) {
        body_mistyped(b, o, "remote_block_ids", list, "a sequence");
        return 0;
    }
    cJSON_ArrayForEach(kid, list)
    {
        if (!cJSON_IsNumber(kid) || kid->valuedouble < 0 || n == TRANSFER_BLOCKS_MOST) {
            body_fail(b, o, "remote_block_ids",
                      "`kv_transfer_params.remote_block_ids` must be numbers, at most %d",
                      TRANSFER_BLOCKS_MOST);
            return 0;
        }
        n++;
    }
    return n;
}

static void read_remote(struct body *b, struct object o, struct kv_transfer *t)
{
    t->host = body_str(b, o, "remote_host", true);
    if (!b->failed && t->host && !peer_host_of(t->host, 0, 0, NULL))
        body_fail(b, o, "remote_host", "`kv_transfer_params.remote_host` is no host");
    t->port = number(b, o, "remote_port", 1, UINT16_MAX, true);
    t->n_blocks = blocks(b, o);
    (void)body_str(b, o, "remote_engine_id", false);
    /* checked, not used: another degree has another peer identity */
    (void)number(b, o, "tp_size", 1, 1024, false);
}

const struct kv_transfer *body_transfer(struct body *b, struct object root)
{
    bool given = false;
    const struct object o = body_object(b, root, "kv_transfer_params", &given);
    if (!given || b->failed)
        return NULL;
    struct kv_transfer *t = ARENA_NEW(b->arena, struct kv_transfer, 1);
    if (!t) {
        body_nomem(b, root, "kv_transfer_params");
        return NULL;
    }
    t->exports = body_opt_bool(b, o, "do_remote_decode", false);
    const bool imports = body_opt_bool(b, o, "do_remote_prefill", false);
    if (t->exports && imports)
        body_fail(b, o, "do_remote_prefill",
                  "`do_remote_decode` and `do_remote_prefill` exclude each other");
    if (imports)
        read_remote(b, o, t);
    return t->exports || t->host ? t : NULL;
}
