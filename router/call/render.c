#include "router/call/render.h"

int render_ask(struct call *c, const struct ask *q, struct err *e)
{
    const struct validator v = edge_validator(c->edge);
    struct gen_request r = {0};
    if (validate(&v, q, c->scratch, &c->arena, &r, e) != 0)
        return -1;
    const uint32_t *ids = v.has_encoder ? r.media->ids : r.ids;
    buf_str(&c->out, "{\"token_ids\":[");
    for (uint32_t i = 0; i < r.n_input; i++)
        buf_fmt(&c->out, "%s%u", i ? "," : "", ids[i]);
    buf_str(&c->out, "],\"prompt\":");
    buf_json_str(&c->out, q->inputs ? q->inputs : "", q->n_inputs);
    buf_ch(&c->out, '}');
    return c->out.oom ? err_nomem(e) : 0;
}
