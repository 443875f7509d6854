#include "router/call/texts.h"
#include "router/call/accounting.h"

int texts_begin(struct call *c, struct body *b, const char *key, int n, struct texts *t)
{
    uint32_t max = c->edge->config->max_client_batch_size;
    if (n < 1 || (uint32_t)n > max)
        body_fail(b, body_root(b), key, "`%s` must have between 1 and %u items", key, max);
    else if (!(t->asks = ARENA_NEW(&c->arena, struct ask, (uint32_t)n)))
        body_nomem(b, body_root(b), key);
    t->n = (uint32_t)n;
    return b->failed ? -1 : 0;
}

static void finish(struct call *c)
{
    struct texts *t = c->state;
    t->write(c, t);
    account_headers(c, 0, c->n_gen, true);
}

static const struct format as_texts = {.finish = finish};

int texts_generate(struct call *c, struct texts *t, struct err *e)
{
    c->state = t;
    c->format = &as_texts;
    return call_generate(c, t->asks, t->n, 1, e);
}
