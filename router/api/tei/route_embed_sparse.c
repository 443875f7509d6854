#include "router/api/tei/tei.h"

/* The weights that are not 0. */
static void sparse_json(struct buf *out, const float *x, uint32_t n)
{
    bool first = true;
    buf_ch(out, '[');
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] == 0)
            continue;
        buf_fmt(out, "%s{\"index\":%u,\"value\":", first ? "" : ",", i);
        buf_json_f32(out, x[i]);
        buf_ch(out, '}');
        first = false;
    }
    buf_ch(out, ']');
}

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    buf_ch(&c->out, '[');
    for (uint32_t i = 0; i < t->job.n; i++) {
        if (i)
            buf_ch(&c->out, ',');
        sparse_json(&c->out, call_text_row(t, i), t->job.width);
    }
    buf_ch(&c->out, ']');
    return c->out.oom ? err_nomem(e) : 0;
}

static int work(struct call *c, struct err *e)
{
    static const struct texts_row row = {
        .tasks = 1u << TASK_EMBED, .key = "inputs", .read = tei_read, .render = render};
    if (call_texts_task(c, row.tasks, e))
        return -1;
    if (!edge_limits(c->edge)->sparse)
        return err_set(e, ERR_TASK, "Model is not an embedding model with SPLADE pooling");
    return texts_work(c, &row, e);
}

const struct route route_embed_sparse = {
    .method = "POST",
    .paths = {"/embed_sparse"},
    .errors = ERRORS_TEI,
    .summary = "TEI's sparse vectors of texts: the tokens of the vocabulary with a weight; of a "
               "model with SPLADE pooling, others answer 400.",
    .body = "`inputs`, `truncate`, `truncation_direction`, `prompt_name`",
    .takes = "EmbedAll",
    .gives = "EmbedSparseAnswer",
    .task = TASK_EMBED,
    .refuses = true, /* unless the model is of this kind */
    .example = "{\"inputs\": \"Once upon a time\"}",
    .work = work,
};
