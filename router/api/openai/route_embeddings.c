#include "router/call/embed_body.h"
#include <string.h>

enum { MOST_INPUTS = 2048 };

struct embeddings {
    bool base64;
    uint32_t dimensions; /* 0: all */
};

static void vector(struct buf *out, const float *x, uint32_t n, bool base64)
{
    if (!base64) {
        texts_json(out, x, n);
        return;
    }
    buf_ch(out, '"'); /* little-endian, as all supported machines */
    buf_base64(out, x, n * sizeof(*x));
    buf_ch(out, '"');
}

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const struct embeddings *q = t->state;
    const uint32_t width = t->job.width, n = q->dimensions ? q->dimensions : width;
    struct buf *out = &c->out;
    buf_str(out, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < t->job.n; i++) {
        float *x = t->job.values + (size_t)i * width;
        texts_normalize(x, n);
        buf_fmt(out, "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", i ? "," : "", i);
        vector(out, x, n, q->base64);
        buf_ch(out, '}');
    }
    buf_str(out, "],\"model\":");
    buf_json_str(out, c->edge->model_id, strlen(c->edge->model_id));
    texts_usage(c, false);
    return out->oom ? err_nomem(e) : 0;
}

/* The type of numbers: OpenAI's key, or Jina's. Voyage and Mistral have another key for it. */
static void read_format(struct body *b, struct object root, struct embeddings *q)
{
    const char *own = body_str(b, root, "embedding_type", false);
    const char *usual = body_str(b, root, "encoding_format", false), *format = usual ? usual : own;
    const char *type = body_str(b, root, "output_dtype", false);
    const char *key = usual ? "encoding_format" : "embedding_type";
    q->base64 = format && strcmp(format, "base64") == 0;
    if (format && !q->base64 && strcmp(format, "float") != 0)
        body_fail(b, root, key, "`%s` must be float or base64", key);
    if (type && strcmp(type, "float") != 0)
        body_fail(b, root, "output_dtype", "`output_dtype` must be float");
}

/* `truncate`: Jina's and Voyage's true, or a word of NVIDIA's, which names the end that is cut. */
static void read_truncate(struct body *b, struct object root, struct texts_ask *ask)
{
    const cJSON *v = body_get(b, root, "truncate", false);
    const char *word = cJSON_IsString(v) ? v->valuestring : NULL;
    if (!v || cJSON_IsNull(v) || cJSON_IsBool(v)) {
        ask->truncate |= cJSON_IsTrue(v) != 0;
        return;
    }
    ask->left = word && strcmp(word, "START") == 0;
    ask->truncate |= ask->left || (word && strcmp(word, "END") == 0);
    if (!ask->truncate && (!word || strcmp(word, "NONE") != 0))
        body_fail(b, root, "truncate", "`truncate` must be true, false, NONE, START or END");
}

static void read_options(struct call *c, struct body *b, struct object root, struct embeddings *q,
                         struct texts_ask *ask)
{
    read_format(b, root, q);
    if (body_opt_bool(b, root, "late_chunking", false))
        body_fail(b, root, "late_chunking", "`late_chunking`: true is not supported");
    q->dimensions = texts_dimensions(c, b, root, "dimensions", 1);
    if (!q->dimensions) /* Voyage, Mistral */
        q->dimensions = texts_dimensions(c, b, root, "output_dimension", 1);
    ask->user = body_str(b, root, "user", false);
    const struct opt_i64 priority = body_i32(b, root, "priority");
    ask->priority = priority.set ? (int32_t)priority.v : 0;
    body_prompt(c, b, root, ask);
    body_truncate(b, root, ask);
    read_truncate(b, root, ask);
}

static int work(struct call *c, struct err *e)
{
    struct body b;
    struct texts_ask ask = {0};
    struct embeddings *q = ARENA_NEW(&c->arena, struct embeddings, 1);
    bool batch;
    if (!q)
        return err_nomem(e);
    if (texts_open(c, &b, 1u << TASK_EMBED, e))
        return -1;
    const struct object root = body_root(&b);
    ask.in = body_texts(&b, root, "input", &ask.n, &batch);
    read_options(c, &b, root, q, &ask);
    if (b.failed || texts_count(c, ask.n, MOST_INPUTS, e))
        return -1;
    return call_texts(c, &ask, 1u << TASK_EMBED, render, q, e);
}

const struct route route_embeddings = {
    .method = "POST",
    .paths = {"/v1/embeddings", "/embeddings"},
    .errors = ERRORS_OPENAI,
    .summary = "A vector of length 1 for each text, of a model that embeds; others answer 400.",
    .body = "`input` (a text, a list of texts, the ids of a text, a list of such lists), "
            "`encoding_format` (`float`, `base64`), `dimensions`, `user`, `priority`, "
            "`truncate_prompt_tokens`, `truncate` (true, `START`, `END`), `prompt_name`, "
            "`input_type`, `task`, `output_dimension`, `embedding_type`",
    .takes = "Embeddings",
    .gives = "EmbeddingsAnswer",
    .task = TASK_EMBED,
    .example = "{\"input\": [\"Once upon a time\", \"there was a ball\"]}",
    .work = work,
};
