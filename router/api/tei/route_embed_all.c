#include "router/api/tei/tei.h"

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const float *x = t->job.values;
    buf_ch(&c->out, '[');
    for (uint32_t i = 0; i < t->job.n; i++) {
        buf_str(&c->out, i ? ",[" : "[");
        for (uint32_t k = 0; k < t->job.texts[i].n; k++, x += t->job.width) {
            if (k)
                buf_ch(&c->out, ',');
            texts_json(&c->out, x, t->job.width);
        }
        buf_ch(&c->out, ']');
    }
    buf_ch(&c->out, ']');
    return c->out.oom ? err_nomem(e) : 0;
}

static int work(struct call *c, struct err *e)
{
    static const struct texts_row row = {.tasks = 1u << TASK_EMBED,
                                         .key = "inputs",
                                         .ask = {.all = true},
                                         .read = tei_read,
                                         .render = render};
    return texts_work(c, &row, e);
}

const struct route route_embed_all = {
    .method = "POST",
    .paths = {"/embed_all"},
    .errors = ERRORS_TEI,
    .summary =
        "TEI's vectors of all tokens, special ones included, before pooling; of a model that "
        "embeds.",
    .body = "`inputs`, `truncate`, `truncation_direction`, `prompt_name`",
    .takes = "EmbedAll",
    .gives = "EmbedAllAnswer",
    .task = TASK_EMBED,
    .example = "{\"inputs\": \"Once upon a time\"}",
    .work = work,
};
