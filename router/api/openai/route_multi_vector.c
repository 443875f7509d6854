/* Jina's vectors of tokens, of queries and documents of late interaction. */
#include "common/json/json.h"
#include "router/call/embed_images.h"
#include "router/call/embed_vector.h"
#include <string.h>

struct vectors {
    enum vector_type type;
    bool base64;
    enum text_late late;
    uint32_t dimensions; /* 0: all */
};

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const struct vectors *q = t->state;
    const uint32_t width = t->job.width, n = q->dimensions ? q->dimensions : width;
    struct buf *out = &c->out;
    struct late_skip skip;
    float *x = t->job.values;
    late_skip_of(c, q->late, &skip);
    buf_str(out, "{\"model\":");
    buf_json_str(out, c->edge->model_id, strlen(c->edge->model_id));
    buf_str(out, ",\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < t->job.n; i++) {
        const uint32_t rows = late_rows(c, &skip, i, x);
        buf_fmt(out, "%s{\"object\":\"embeddings\",\"index\":%u,\"embeddings\":[", i ? "," : "", i);
        for (uint32_t k = 0; k < rows; k++) {
            float *row = x + (size_t)k * width;
            texts_normalize(row, n);
            buf_str(out, k ? "," : "");
            vector_write(out, row, n, q->type, q->base64);
        }
        buf_str(out, "]}");
        x += (size_t)width * t->job.texts[i].n;
    }
    buf_ch(out, ']');
    texts_usage(c, false);
    return out->oom ? err_nomem(e) : 0;
}

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    const struct object root = body_root(b);
    struct vectors *q = state;
    const char *type = body_str(b, root, "embedding_type", false);
    q->base64 = type && strcmp(type, "base64") == 0;
    q->type = type && !q->base64 ? vector_type_of(type) : VECTOR_FLOAT;
    if (q->type == VECTOR_TYPES)
        body_fail(b, root, "embedding_type",
                  "`embedding_type` must be float, base64, binary or ubinary");
    q->dimensions = texts_dimensions(c, b, root, "dimensions", 1);
    ask->in = body_texts_or_images(c, b, root, "input", &ask->n);
    q->late = body_late(c, b, root, ask, LATE_DOCUMENT);
    for (uint32_t i = 0; !b->failed && i < ask->n; i++)
        if (!ask->in[i].text && !ask->in[i].shown)
            body_fail(b, root, "input", "texts are expected, not ids");
    return TEXTS_MOST_LATE;
}

static int work(struct call *c, struct err *e)
{
    static const struct texts_row row = {.tasks = 1u << TASK_TOKEN_EMBED,
                                         .state = sizeof(struct vectors),
                                         .ask = {.plain = true, .all = true},
                                         .read = read_options,
                                         .render = render};
    return texts_work(c, &row, e);
}

const struct route route_multi_vector = {
    .method = "POST",
    .paths = {"/v1/multi-vector"},
    .errors = ERRORS_OPENAI,
    .summary = "Jina's vectors of the tokens of queries or documents, for late interaction; of a "
               "model that embeds tokens, others answer 400.",
    .body = "`input` (a text or a list; objects with `text`, `image` or `content`), `input_type` "
            "(`query`, `document`: the default), "
            "`embedding_type` (`float`, `base64`, `binary`, `ubinary`), `dimensions`",
    .takes = "MultiVector",
    .gives = "MultiVectorAnswer",
    .task = TASK_EMBED,
    .refuses = true, /* unless the model is of this kind */
    .example = "{\"input\": [\"Once upon a time\"], \"input_type\": \"query\"}",
    .work = work,
};
