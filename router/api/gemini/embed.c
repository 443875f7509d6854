/* Vectors: embedContent of one content, batchEmbedContents of several, and predict, as Vertex AI's
 * models of texts have it. */
#include "common/json/json.h"
#include "router/api/gemini/gemini.h"
#include "router/call/embed_body.h"
#include <string.h>

enum { MOST_INPUTS = 2048 };

enum shape { ONE, BATCH, PREDICT };
struct vectors {
    enum shape shape;
    struct text_input *in;
    uint32_t *dimensions; /* of each text; 0: all */
    uint32_t n;
};

/* ---------------------------------------------------------------- reading */

/* The texts of its parts, one after the other; or a text. In the arena. */
static const char *text_of(struct body *b, struct object o)
{
    const cJSON *content = body_get(b, o, "content", true);
    struct buf all = BUF_INIT;
    if (cJSON_IsString(content))
        buf_str(&all, content->valuestring);
    else if (content && !cJSON_IsArray(json_get(content, "parts")))
        body_fail(b, o, "content", "`content` has a list of `parts`");
    for (const cJSON *p = json_first(json_get(content, "parts")); p; p = p->next)
        if (json_str(p, "text", NULL))
            buf_str(&all, json_str(p, "text", ""));
        else
            body_fail(b, o, "content", "`content`: only parts with `text` are supported");
    const char *text = arena_strdup(b->arena, all.p ? all.p : "", all.len);
    if (!b->failed && !all.len)
        body_fail(b, o, "content", "`content` has no text");
    if (!b->failed && (all.oom || !text)) {
        b->failed = true;
        err_nomem(b->e);
    }
    buf_free(&all);
    return text;
}

/* The prompt of the model that stands for this kind of text; NULL: its default. */
static const char *prompt_for(const struct call *c, const char *task)
{
    static const struct {
        const char *task, *prompt;
    } rows[] = {{"RETRIEVAL_QUERY", "query"},
                {"QUESTION_ANSWERING", "query"},
                {"FACT_VERIFICATION", "query"},
                {"CODE_RETRIEVAL_QUERY", "query"},
                {"RETRIEVAL_DOCUMENT", "document"}};
    for (size_t i = 0; task && i < sizeof(rows) / sizeof(rows[0]); i++)
        if (!strcmp(rows[i].task, task))
            return sentence_prompt_for(&c->edge->sentence, rows[i].prompt);
    return NULL;
}

/* Options are beside the content, or in an object of their own. */
static struct object options_of(struct body *b, struct object o, struct object root,
                                enum shape shape)
{
    bool given;
    const struct object own =
        body_object(b, shape == PREDICT ? root : o,
                    shape == PREDICT ? "parameters" : "embedContentConfig", &given);
    return given ? own : o;
}

static void read_one(struct call *c, struct body *b, struct object root, const cJSON *item,
                     struct vectors *q, struct texts_ask *ask)
{
    const struct object o = {item, q->shape == ONE     ? ""
                                   : q->shape == BATCH ? "requests"
                                                       : "instances"};
    if (!cJSON_IsObject(item)) {
        body_mistyped(b, root, o.path, item, "an object");
        return;
    }
    const struct object options = options_of(b, o, root, q->shape);
    const char *task = body_str(b, q->shape == PREDICT ? o : options, "taskType", false);
    const char *prompt = prompt_for(c, task), *text = text_of(b, o);
    if (q->n && prompt != ask->prompt_name)
        body_fail(b, o, "taskType", "all texts of a request must have the same `taskType`");
    if (b->failed)
        return;
    ask->prompt_name = prompt;
    q->in[q->n] = (struct text_input){.text = text, .n = strlen(text)};
    q->dimensions[q->n++] = texts_dimensions(c, b, options, "outputDimensionality", 1);
    ask->truncate &= body_opt_bool(b, options, "autoTruncate", true);
}

static uint32_t read_all(struct call *c, struct body *b, struct vectors *q, struct texts_ask *ask)
{
    const struct object root = body_root(b);
    gemini_rename_all(b->root);
    const char *key = q->shape == BATCH ? "requests" : "instances";
    const cJSON *list = q->shape == ONE ? NULL : body_get(b, root, key, true);
    if (list && (!cJSON_IsArray(list) || !list->child))
        body_fail(b, root, key, "`%s` is a list of at least one", key);
    const uint32_t n = list ? (uint32_t)cJSON_GetArraySize(list) : 1;
    if (b->failed || texts_count(c, n, MOST_INPUTS, b->e))
        return texts_failed(b);
    q->in = ARENA_NEW(&c->arena, struct text_input, n);
    q->dimensions = ARENA_NEW(&c->arena, uint32_t, n);
    if (!q->in || !q->dimensions) {
        body_nomem(b, root, key);
        return 0;
    }
    for (const cJSON *k = list ? list->child : b->root; k && !b->failed; k = list ? k->next : NULL)
        read_one(c, b, root, k, q, ask);
    ask->in = q->in;
    ask->n = q->n;
    return MOST_INPUTS;
}

static uint32_t read_one_content(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    struct vectors *q = state;
    q->shape = ONE;
    return read_all(c, b, q, ask);
}

static uint32_t read_batch(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    struct vectors *q = state;
    q->shape = BATCH;
    return read_all(c, b, q, ask);
}

static uint32_t read_instances(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    struct vectors *q = state;
    q->shape = PREDICT;
    return read_all(c, b, q, ask);
}

/* ---------------------------------------------------------------- the answer */

static int render(struct call *c, struct err *e)
{
    static const char *const begins[] = {"{\"embedding\":", "{\"embeddings\":[",
                                         "{\"predictions\":["};
    const struct call_texts *t = c->texts;
    const struct vectors *q = t->state;
    struct buf *out = &c->out;
    buf_str(out, begins[q->shape]);
    for (uint32_t i = 0; i < t->job.n; i++) {
        const uint32_t n = q->dimensions[i] ? q->dimensions[i] : t->job.width;
        float *x = t->job.values + (size_t)i * t->job.width;
        texts_normalize(x, n);
        buf_fmt(out, "%s%s{\"values\":", i ? "," : "",
                q->shape == PREDICT ? "{\"embeddings\":" : "");
        texts_json(out, x, n);
        if (q->shape == PREDICT)
            buf_fmt(out, ",\"statistics\":{\"token_count\":%u}}", t->job.texts[i].n);
        buf_ch(out, '}');
    }
    buf_str(out, q->shape == ONE ? "}" : "]}");
    return out->oom ? err_nomem(e) : 0;
}

int gemini_embed(struct call *c, const char *action, struct err *e)
{
    const struct texts_row row = {.tasks = 1u << TASK_EMBED,
                                  .state = sizeof(struct vectors),
                                  .ask = {.truncate = true},
                                  .read = !strcmp(action, "predict") ? read_instances
                                          : !strcmp(action, "batchEmbedContents")
                                              ? read_batch
                                              : read_one_content,
                                  .render = render};
    return texts_work(c, &row, e);
}
