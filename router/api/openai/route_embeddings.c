#include "common/json/json.h"
#include "router/api/openai/messages_input.h"
#include "router/call/embed_images.h"
#include "router/call/embed_vector.h"
#include <string.h>

enum { MOST_INPUTS = 2048 };

struct embeddings {
    enum vector_type type;
    bool base64, raw;    /* raw: of any length */
    uint32_t dimensions; /* 0: all */
};

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const struct embeddings *q = t->state;
    const uint32_t width = t->job.width, n = q->dimensions ? q->dimensions : width;
    struct buf *out = &c->out;
    buf_str(out, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < t->job.n; i++) {
        float *x = t->job.values + (size_t)i * width;
        if (!q->raw)
            texts_normalize(x, n);
        buf_fmt(out, "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", i ? "," : "", i);
        vector_write(out, x, n, q->type, q->base64);
        buf_ch(out, '}');
    }
    buf_str(out, "],\"model\":");
    buf_json_str(out, c->edge->model_id, strlen(c->edge->model_id));
    texts_usage(c, false);
    return out->oom ? err_nomem(e) : 0;
}

/* A type under Jina's, Voyage's or Mistral's `key`. Ranges of 8-bit integers are in no checkpoint.
 */
static void read_type(struct body *b, struct object root, const char *key, const char *word,
                      struct embeddings *q)
{
    q->type = vector_type_of(word);
    if (q->type == VECTOR_TYPES)
        body_fail(b, root, key, "`%s` must be float, binary or ubinary", key);
}

/* `encoding_format`: OpenAI's. Jina's `embedding_type` has its words, too. */
static void read_format(struct body *b, struct object root, struct embeddings *q)
{
    const char *jina = body_str(b, root, "embedding_type", false);
    const char *format = body_str(b, root, "encoding_format", false);
    const char *voyage = body_str(b, root, "output_dtype", false);
    q->base64 = format && strcmp(format, "base64") == 0;
    if (format && !q->base64 && strcmp(format, "float") != 0)
        body_fail(b, root, "encoding_format", "`encoding_format` must be float or base64");
    if (jina && strcmp(jina, "base64") == 0)
        q->base64 = true;
    else if (jina)
        read_type(b, root, "embedding_type", jina, q);
    if (voyage)
        read_type(b, root, "output_dtype", voyage, q);
}

/* `truncate`: Jina's true, or a word of NVIDIA's, which names the end that is cut; `truncation`:
 * Voyage's true. */
static void read_truncate(struct body *b, struct object root, struct texts_ask *ask)
{
    const cJSON *v = body_get(b, root, "truncate", false);
    const char *word = cJSON_IsString(v) ? v->valuestring : NULL;
    ask->truncate |= body_opt_bool(b, root, "truncation", false);
    if (!v || cJSON_IsNull(v) || cJSON_IsBool(v)) {
        ask->truncate |= cJSON_IsTrue(v) != 0;
        return;
    }
    ask->left = word && strcmp(word, "START") == 0;
    ask->truncate |= ask->left || (word && strcmp(word, "END") == 0);
    if (!ask->truncate && (!word || strcmp(word, "NONE") != 0))
        body_fail(b, root, "truncate", "`truncate` must be true, false, NONE, START or END");
}

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    const struct object root = body_root(b);
    struct embeddings *q = state;
    if (!messages_input(c, b, ask))
        ask->in = body_texts_or_images(c, b, root, "input", &ask->n);
    read_format(b, root, q);
    if (body_opt_bool(b, root, "late_chunking", false))
        body_fail(b, root, "late_chunking", "`late_chunking`: true is not supported");
    const cJSON *voyage = json_get(b->root, "output_dimension"); /* and Mistral */
    const char *width = voyage && !cJSON_IsNull(voyage) ? "output_dimension" : "dimensions";
    q->dimensions = texts_dimensions(c, b, root, width, 1);
    q->raw = !body_opt_bool(
        b, root, "use_activation", /* vLLM's names, and Jina's */
        body_opt_bool(b, root, "normalize", body_opt_bool(b, root, "normalized", true)));
    ask->user = body_str(b, root, "user", false);
    const struct opt_i64 priority = body_i32(b, root, "priority");
    ask->priority = priority.set ? (int32_t)priority.v : 0;
    body_prompt(c, b, root, ask);
    body_truncate(b, root, ask);
    read_truncate(b, root, ask);
    return MOST_INPUTS;
}

static int work(struct call *c, struct err *e)
{
    static const struct texts_row row = {.tasks = 1u << TASK_EMBED,
                                         .state = sizeof(struct embeddings),
                                         .read = read_options,
                                         .render = render};
    return texts_work(c, &row, e);
}

const struct route route_embeddings = {
    .method = "POST",
    .paths = {"/v1/embeddings", "/embeddings"},
    .errors = ERRORS_OPENAI,
    .summary = "A vector of length 1 for each text or image, of a model that embeds; others answer "
               "400.",
    .body = "`input` (a text, a list of texts, the ids of a text, a list of such lists; objects "
            "with `text`, `image` or `content`), `messages` (as in chats, in place of `input`), "
            "`encoding_format` (`float`, `base64`), `dimensions`, `user`, `priority`, "
            "`truncate_prompt_tokens`, `truncation_side`, `truncate` (true, `START`, `END`), "
            "`truncation`, `prompt_name`, `input_type`, `task`, `output_dimension`, "
            "`embedding_type` or `output_dtype` (`float`, `binary`, `ubinary`), `normalize` (true)",
    .takes = "Embeddings",
    .gives = "EmbeddingsAnswer",
    .task = TASK_EMBED,
    .example = "{\"input\": [\"Once upon a time\", \"there was a ball\"]}",
    .work = work,
};
