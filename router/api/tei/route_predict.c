#include "common/json/json.h"
#include "router/api/tei/tei.h"
#include <stdio.h>
#include <string.h>

struct prediction {
    bool raw, batch;
};

static int one(struct call *c, const float *logits, bool raw, struct err *e)
{
    const struct infer_limits *l = edge_limits(c->edge);
    const uint32_t n = c->texts->job.width;
    float *score = ARENA_NEW(&c->arena, float, n);
    const uint32_t *order = score ? texts_ranking(c, logits, n) : NULL;
    if (!order)
        return err_nomem(e);
    if (raw)
        memcpy(score, logits, n * sizeof(*score));
    else
        texts_labels(c, logits, n, score);
    buf_ch(&c->out, '[');
    for (uint32_t i = 0; i < n; i++) {
        char number[24];
        const uint32_t at = order[i];
        const char *label = at < l->n_labels ? l->labels[at] : number;
        snprintf(number, sizeof(number), "LABEL_%u", at);
        buf_str(&c->out, i ? ",{\"score\":" : "{\"score\":");
        buf_json_f32(&c->out, score[at]);
        buf_str(&c->out, ",\"label\":");
        buf_json_str(&c->out, label, strlen(label));
        buf_ch(&c->out, '}');
    }
    buf_ch(&c->out, ']');
    return 0;
}

static int render(struct call *c, struct err *e)
{
    const struct prediction *q = c->texts->state;
    buf_str(&c->out, q->batch ? "[" : "");
    for (uint32_t i = 0; i < c->texts->job.n; i++) {
        buf_str(&c->out, i ? "," : "");
        if (one(c, call_text_row(c->texts, i), q->raw, e))
            return -1;
    }
    buf_str(&c->out, q->batch ? "]" : "");
    return c->out.oom ? err_nomem(e) : 0;
}

/* A text, or a list of one (a text) or two (a pair). */
static void sequence(struct body *b, struct object o, const cJSON *v, struct text_input *out)
{
    const cJSON *first = cJSON_IsArray(v) ? v->child : v, *second = NULL;
    if (cJSON_IsArray(v) && first)
        second = first->next;
    const bool ok =
        first && cJSON_IsString(first) && (!second || (cJSON_IsString(second) && !second->next));
    if (!ok) {
        body_mistyped(b, o, "inputs", v, "a text, or a list of one or two");
        return;
    }
    *out = (struct text_input){.text = first->valuestring, .n = strlen(first->valuestring)};
    if (second)
        out->second = second->valuestring, out->n_second = strlen(second->valuestring);
}

static const struct text_input *sequences(struct body *b, uint32_t *n, bool *batch)
{
    const struct object root = body_root(b);
    const cJSON *v = body_get(b, root, "inputs", true), *item;
    *n = 0;
    if (b->failed)
        return NULL;
    *batch = cJSON_IsArray(v) && cJSON_IsArray(v->child);
    const size_t count = *batch ? (size_t)cJSON_GetArraySize(v) : 1;
    struct text_input *in = ARENA_NEW(b->arena, struct text_input, count);
    if (!in) {
        b->failed = true;
        err_nomem(b->e);
        return NULL;
    }
    if (!*batch)
        sequence(b, root, v, &in[(*n)++]);
    else
        cJSON_ArrayForEach(item, v) sequence(b, root, item, &in[(*n)++]);
    return in;
}

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    struct prediction *q = state;
    ask->in = sequences(b, &ask->n, &q->batch);
    q->raw = body_opt_bool(b, body_root(b), "raw_scores", false);
    tei_options(b, body_root(b), ask);
    ask->prompt_name = NULL;
    if (b->failed || texts_count(c, ask->n, texts_most(c), b->e))
        return texts_failed(b);
    tei_not_empty(b, ask);
    return ask->n;
}

const struct texts_row row_tei_predict = {.tasks = 1u << TASK_CLASSIFY | 1u << TASK_RERANK,
                                          .state = sizeof(struct prediction),
                                          .ask = {.plain = true},
                                          .read = read_options,
                                          .render = render};

static int work(struct call *c, struct err *e) { return texts_work(c, &row_tei_predict, e); }

const struct route route_predict = {
    .method = "POST",
    .paths = {"/predict"},
    .errors = ERRORS_TEI,
    .summary = "TEI's labels of texts or pairs with their probabilities, likeliest first, of a "
               "classifier or reranker; others answer 400.",
    .body = "`inputs` (a text; a list of one or two, which is a pair; a list of such lists), "
            "`raw_scores`, `truncate`, `truncation_direction`",
    .takes = "Predict",
    .gives = "PredictAnswer",
    .task = TASK_CLASSIFY,
    .example = "{\"inputs\": \"Once upon a time\"}",
    .work = work,
};
