/* For load balancers: running and waiting requests. */
#include "router/call/call.h"
#include <string.h>

static void reply(struct call *c)
{
    struct fleet *f = atomic_load(&c->edge->fleet);
    const struct infer_stats s = f ? fleet_stats(f) : (struct infer_stats){0};
    if (!strcmp(c->path, "/get_load"))
        buf_fmt(&c->out,
                "[{\"dp_rank\":0,\"num_reqs\":%u,\"num_waiting_reqs\":%u,\"num_tokens\":%llu}]",
                s.running + s.queued, s.queued,
                (unsigned long long)s.blocks_used * edge_limits(c->edge)->block_size);
    else
        buf_fmt(&c->out, "{\"server_load\":%u,\"running\":%u,\"waiting\":%u}", s.running + s.queued,
                s.running, s.queued);
    call_reply(c);
}

const struct route route_load = {
    .method = "GET",
    .paths = {"/load", "/get_load"},
    .summary =
        "Generations of the first model that run and wait: `server_load` is their sum "
        "(vLLM's); `/get_load` reports them as SGLang does, with the tokens of the KV blocks "
        "in use.",
    .probe = true,
    .access = ACCESS_DESCRIBES,
    .reply = reply,
};
