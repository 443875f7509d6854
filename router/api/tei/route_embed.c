#include "router/api/tei/tei.h"

struct embedding {
    bool normalize;
    uint32_t dimensions;
};

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const struct embedding *q = t->state;
    const uint32_t n = q->dimensions ? q->dimensions : t->job.width;
    buf_ch(&c->out, '[');
    for (uint32_t i = 0; i < t->job.n; i++) {
        float *x = t->job.values + (size_t)i * t->job.width;
        if (q->normalize)
            texts_normalize(x, n);
        if (i)
            buf_ch(&c->out, ',');
        texts_json(&c->out, x, n);
    }
    buf_ch(&c->out, ']');
    return c->out.oom ? err_nomem(e) : 0;
}

int tei_embed(struct call *c, struct err *e)
{
    struct body b;
    struct texts_ask ask = {0};
    struct embedding *q = ARENA_NEW(&c->arena, struct embedding, 1);
    bool batch;
    if (!q)
        return err_nomem(e);
    if (texts_open(c, &b, 1u << TASK_EMBED, e))
        return -1;
    const struct object root = body_root(&b);
    ask.in = body_texts(&b, root, "inputs", &ask.n, &batch);
    tei_options(&b, root, &ask);
    q->normalize = body_opt_bool(&b, root, "normalize", true);
    q->dimensions = texts_dimensions(c, &b, root, "dimensions", 1);
    if (b.failed || texts_count(c, ask.n, texts_most(c), e))
        return -1;
    return call_texts(c, &ask, 1u << TASK_EMBED, render, q, e);
}

const struct route route_embed = {
    .method = "POST",
    .paths = {"/embed"},
    .errors = ERRORS_TEI,
    .summary = "TEI's vectors of texts, of a model that embeds; others answer 400.",
    .body = "`inputs` (as `input` of `/v1/embeddings`), `normalize` (true), `truncate`, "
            "`truncation_direction`, `prompt_name`, `dimensions`",
    .takes = "Embed",
    .gives = "EmbedAnswer",
    .task = TASK_EMBED,
    .example = "{\"inputs\": [\"Once upon a time\", \"there was a ball\"]}",
    .work = tei_embed,
};
