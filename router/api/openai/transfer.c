/* kv_transfer_params: disaggregated prefill and decode (docs/decisions/kv-transfer.md). */
#include "common/json/json.h"
#include "router/api/openai/openai.h"
#include <string.h>

/* Adapter numbers are local to a process, so their blocks have no key. */
static bool has_blocks(const struct generation *g)
{
    return !g->r.params.adapter_id || !*g->r.params.adapter_id;
}

static bool answers(const struct openai *o) { return strncmp(o->id, "resp_", 5) != 0; }

void openai_transfer_read(struct call *c, struct body *b, struct openai *o)
{
    const struct object root = body_root(b);
    const char *address = c->edge->config->kv_transfer_address;
    o->transfer = body_transfer(b, root);
    if (!o->transfer)
        return;
    if (!address || !*address || c->edge->home)
        body_fail(b, root, "kv_transfer_params",
                  "`kv_transfer_params` needs a server with --kv-transfer-address");
    else if (o->transfer->exports && !answers(o))
        body_fail(
            b, root, "kv_transfer_params",
            "`do_remote_decode` is answered on /v1/chat/completions and /v1/completions only");
}

static void numbers(struct buf *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        buf_fmt(out, i ? ",%u" : "%u", i);
}

void openai_transfer(struct buf *out, const struct call *c)
{
    const struct openai *o = c->state;
    const struct infer_limits *l = edge_limits(c->edge);
    const struct peer_hosts *at = &l->transfer_hosts;
    uint32_t n = 0;
    if (!o->transfer || !o->transfer->exports || !l->transfers || l->block_size == 0)
        return;
    for (uint32_t i = 0; i < c->n_gen; i++) {
        const uint32_t blocks = has_blocks(&c->gen[i]) ? c->gen[i].r.n_ids / l->block_size : 0;
        n = blocks > n ? blocks : n;
    }
    if (n == 0)
        return;
    n = n < TRANSFER_BLOCKS_MOST ? n : TRANSFER_BLOCKS_MOST;
    buf_str(out, ",\"kv_transfer_params\":{\"do_remote_prefill\":true,\"do_remote_decode\":false,"
                 "\"remote_engine_id\":");
    buf_json_str(out, c->edge->engine_id, strlen(c->edge->engine_id));
    buf_str(out, ",\"remote_block_ids\":[");
    numbers(out, n);
    buf_str(out, "],\"remote_host\":");
    buf_json_str(out, at->hosts, strlen(at->hosts));
    buf_fmt(out, ",\"remote_port\":%u,\"tp_size\":%u}", at->port, l->n_shards);
}
