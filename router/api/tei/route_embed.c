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

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    struct embedding *q = state;
    const uint32_t most = tei_read(c, b, ask, NULL);
    q->normalize = body_opt_bool(b, body_root(b), "normalize", true);
    q->dimensions = texts_dimensions(c, b, body_root(b), "dimensions", 1);
    return most;
}

const struct texts_row row_tei_embed = {.tasks = 1u << TASK_EMBED,
                                        .key = "inputs",
                                        .state = sizeof(struct embedding),
                                        .read = read_options,
                                        .render = render};

static int work(struct call *c, struct err *e) { return texts_work(c, &row_tei_embed, e); }

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
    .work = work,
};
