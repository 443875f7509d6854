/* A deep health check: generates one token. */
#include "router/call/call.h"

static const struct format as_nothing = {0}; /* the existence of a token is the result */

/* A model that does not generate: checks the health of its shards. */
static int healthy(struct call *c, struct err *e)
{
    struct fleet *f = atomic_load(&c->edge->fleet);
    return f && fleet_healthy(f) ? 0 : err_set(e, ERR_UNHEALTHY, "unhealthy");
}

static int work(struct call *c, struct err *e)
{
    if (edge_limits(c->edge)->task > TASK_GENERATE)
        return healthy(c, e);
    static const uint32_t one_token[1] = {0};
    struct ask q = {.style = ASK_OPENAI,
                    .ids = one_token,
                    .n_ids = 1,
                    .greedy = true,
                    .ignore_eos = true,
                    .max_new_tokens = {true, 1}};
    c->format = &as_nothing;
    if (call_generate(c, &q, 1, 1, e) == 0)
        return 0;
    /* A busy server counts as healthy: a probe must not end it for its load. */
    struct fleet *f = atomic_load(&c->edge->fleet);
    const bool busy = e->kind == ERR_OVERLOADED || e->kind == ERR_KEY_LIMIT;
    if (!busy || !f || !fleet_healthy(f))
        return -1;
    *e = (struct err)ERR_INIT;
    return 0;
}

const struct route route_health_generate = {
    .method = "GET",
    .paths = {"/health_generate"},
    .summary = "200 after one token was generated, or when all permits are held and the shards "
               "answer; 503 as `/health`.",
    .probe = true,
    .work = work,
};
