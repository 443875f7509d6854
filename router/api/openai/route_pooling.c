/* vLLM's /pooling: vectors of texts as they come from the model's pooling; vectors or probabilities
 * of their tokens. */
#include "router/api/openai/messages_input.h"
#include "router/call/embed_images.h"
#include <string.h>

enum { MOST_INPUTS = 2048 };
/* Values of `task`, and the tasks of models that have them. */
static const struct pooled_task {
    const char *name;
    enum model_task task, other; /* other: of a model that has the first one, too; or the same */
} pooled_tasks[] = {{"embed", TASK_EMBED, TASK_EMBED},
                    {"token_embed", TASK_TOKEN_EMBED, TASK_EMBED},
                    {"token_classify", TASK_TOKEN_CLASSIFY, TASK_TOKEN_CLASSIFY}};
enum {
    N_TASKS = sizeof(pooled_tasks) / sizeof(pooled_tasks[0]),
    POOLS = 1u << TASK_EMBED | 1u << TASK_TOKEN_EMBED | 1u << TASK_TOKEN_CLASSIFY
};

struct pooled {
    const struct pooled_task *task;
    bool activation;
    enum text_late late;
};

/* A row of width n, of a text or of a token. */
static void row(struct buf *out, const struct pooled *q, float *x, uint32_t n)
{
    if (q->activation && q->task->task == TASK_TOKEN_CLASSIFY)
        texts_probabilities(x, n, x);
    else if (q->activation)
        texts_normalize(x, n);
    texts_json(out, x, n);
}

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const struct pooled *q = t->state;
    struct buf *out = &c->out;
    const uint32_t n = t->job.width;
    struct late_skip skip;
    texts_list_begin(c, "pool");
    late_skip_of(c, q->late, &skip);
    float *x = t->job.values;
    for (uint32_t i = 0; i < t->job.n; i++) {
        const uint32_t rows = t->job.all ? late_rows(c, &skip, i, x) : 1;
        buf_fmt(out, "%s{\"index\":%u,\"object\":\"pooling\",\"data\":%s", i ? "," : "", i,
                t->job.all ? "[" : "");
        for (uint32_t k = 0; k < rows; k++) {
            buf_str(out, k ? "," : "");
            row(out, q, x + (size_t)k * n, n);
        }
        x += (size_t)n * (t->job.all ? t->job.texts[i].n : 1);
        buf_str(out, t->job.all ? "]}" : "}");
    }
    buf_ch(out, ']');
    texts_usage(c, true);
    return out->oom ? err_nomem(e) : 0;
}

/* The value of `task` that the model has; without one the model's own. NULL: it has no such. */
static const struct pooled_task *task_of(const char *name, enum model_task has)
{
    for (int i = 0; i < N_TASKS; i++) {
        const struct pooled_task *t = &pooled_tasks[i];
        if (name ? !strcmp(name, t->name) && (has == t->task || has == t->other) : has == t->task)
            return t;
    }
    return NULL;
}

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    const struct object root = body_root(b);
    const enum model_task has = edge_limits(c->edge)->task;
    struct pooled *q = state;
    if (!messages_input(c, b, ask))
        ask->in = body_texts_or_images(c, b, root, "input", &ask->n);
    const char *format = body_str(b, root, "encoding_format", false);
    q->task = task_of(body_str(b, root, "task", false), has);
    if (!q->task)
        body_fail(b, root, "task", "`task`: this model is served for `%s` here",
                  model_task_name(has));
    ask->all = q->task && q->task->task != TASK_EMBED;
    if (format && strcmp(format, "float") != 0)
        body_fail(b, root, "encoding_format", "`encoding_format` must be float");
    q->activation =
        body_opt_bool(b, root, "use_activation", body_opt_bool(b, root, "normalize", true));
    body_truncate(b, root, ask);
    q->late = body_late(c, b, root, ask, LATE_NONE);
    return ask->all ? TEXTS_MOST_LATE : MOST_INPUTS;
}

static int work(struct call *c, struct err *e)
{
    static const struct texts_row row = {.tasks = POOLS,
                                         .state = sizeof(struct pooled),
                                         .ask = {.plain = true},
                                         .read = read_options,
                                         .render = render};
    return texts_work(c, &row, e);
}

const struct route route_pooling = {
    .method = "POST",
    .paths = {"/pooling"},
    .errors = ERRORS_OPENAI,
    .summary = "vLLM's vectors of texts, or of their tokens, of a model that embeds; probabilities "
               "of their tokens' labels, of one that classifies tokens; others answer 400.",
    .body = "`input` or `messages` (as `/v1/embeddings`), `task` (`embed`, `token_embed`, "
            "`token_classify`: as "
            "the model), `use_activation` (true: length 1, softmax), `truncate_prompt_tokens`, "
            "`input_type` (`query`, `document`: filled, cut and without tokens as ColBERT's files "
            "say)",
    .takes = "Pooling",
    .gives = "PoolingAnswer",
    .task = TASK_EMBED,
    .example = "{\"input\": [\"Once upon a time\", \"there was a ball\"]}",
    .work = work,
};
