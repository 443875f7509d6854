#include "router/api/llama/llama.h"
#include "router/http/route.h"
#include <string.h>

uint32_t llama_slots(const struct edge *g)
{
    const struct router_config *f = g->config;
    const uint32_t permits = f->max_concurrent_requests;
    return f->max_batch_size && f->max_batch_size < permits ? f->max_batch_size : permits;
}

/* There are no slots here: a sequence has blocks of one cache. As many of them count as busy as
 * generations run. */
static void reply(struct call *c)
{
    struct fleet *f = atomic_load(&c->edge->fleet);
    const struct infer_stats s = f ? fleet_stats(f) : (struct infer_stats){0};
    const struct infer_limits *l = edge_limits(c->edge);
    const uint32_t n = llama_slots(c->edge);
    const char *fail = c->arguments[0];
    struct err e = ERR_INIT;
    if (fail && strcmp(fail, "0") && s.running >= n) {
        err_set(&e, ERR_UNHEALTHY, "no slot available");
        call_reply_error(c, &e);
        return;
    }
    buf_ch(&c->out, '[');
    for (uint32_t i = 0; i < n; i++)
        buf_fmt(&c->out, "%s{\"id\":%u,\"n_ctx\":%u,\"speculative\":false,\"is_processing\":%s}",
                i ? "," : "", i, l->max_total_tokens, i < s.running ? "true" : "false");
    buf_ch(&c->out, ']');
    call_reply(c);
}

const struct route route_slots = {
    .method = "GET",
    .paths = {"/slots"},
    .arguments = {"fail_on_no_slot"},
    .errors = ERRORS_OPENAI,
    .summary = "llama-server's slots: one entry for each generation that may run at the same time; "
               "`is_processing` is true in as many entries as generations run. With "
               "`fail_on_no_slot=1` the status is 503 if all are busy.",
    .reply = reply,
};
