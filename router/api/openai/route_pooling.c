/* vLLM's /pooling: vectors of texts, as they come from the model's pooling. */
#include "router/call/embed_body.h"
#include <string.h>

enum { MOST_INPUTS = 2048 };
struct pooled {
    bool normalize;
};

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const struct pooled *q = t->state;
    struct buf *out = &c->out;
    const uint32_t n = t->job.width;
    texts_list_begin(c, "pool");
    for (uint32_t i = 0; i < t->job.n; i++) {
        float *x = t->job.values + (size_t)i * n;
        if (q->normalize)
            texts_normalize(x, n);
        buf_fmt(out, "%s{\"index\":%u,\"object\":\"pooling\",\"data\":", i ? "," : "", i);
        texts_json(out, x, n);
        buf_ch(out, '}');
    }
    buf_ch(out, ']');
    texts_usage(c, true);
    return out->oom ? err_nomem(e) : 0;
}

static void read_options(struct body *b, struct object root, struct pooled *q,
                         struct texts_ask *ask)
{
    const char *task = body_str(b, root, "task", false);
    const char *format = body_str(b, root, "encoding_format", false);
    if (task && strcmp(task, "embed") != 0)
        body_fail(b, root, "task",
                  "`task`: only `embed` is served; `/classify` and `/embed_all` are the others");
    if (format && strcmp(format, "float") != 0)
        body_fail(b, root, "encoding_format", "`encoding_format` must be float");
    q->normalize =
        body_opt_bool(b, root, "use_activation", body_opt_bool(b, root, "normalize", true));
    body_truncate(b, root, ask);
}

static int work(struct call *c, struct err *e)
{
    struct body b;
    struct texts_ask ask = {.plain = true};
    struct pooled *q = ARENA_NEW(&c->arena, struct pooled, 1);
    bool batch;
    if (!q)
        return err_nomem(e);
    if (texts_open(c, &b, 1u << TASK_EMBED, e))
        return -1;
    ask.in = body_texts(&b, body_root(&b), "input", &ask.n, &batch);
    read_options(&b, body_root(&b), q, &ask);
    if (b.failed || texts_count(c, ask.n, MOST_INPUTS, e))
        return -1;
    return call_texts(c, &ask, 1u << TASK_EMBED, render, q, e);
}

const struct route route_pooling = {
    .method = "POST",
    .paths = {"/pooling"},
    .errors = ERRORS_OPENAI,
    .summary = "vLLM's vectors of texts: of a model that embeds; others answer 400.",
    .body = "`input` (as `/v1/embeddings`), `task` (`embed`), `use_activation` (true: length 1), "
            "`truncate_prompt_tokens`",
    .takes = "Pooling",
    .gives = "PoolingAnswer",
    .task = TASK_EMBED,
    .example = "{\"input\": [\"Once upon a time\", \"there was a ball\"]}",
    .work = work,
};
