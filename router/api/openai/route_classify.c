/* vLLM's labels of texts, with the probabilities of all of them. */
#include "common/json/json.h"
#include "router/call/embed_body.h"
#include <stdio.h>
#include <string.h>

enum { MOST_INPUTS = 2048 };
struct classified {
    bool raw; /* logits in place of probabilities */
};

static int one(struct call *c, uint32_t i, bool raw, struct err *e)
{
    const struct infer_limits *l = edge_limits(c->edge);
    const uint32_t n = c->texts->job.width;
    const float *logits = call_text_row(c->texts, i);
    const uint32_t *order = texts_ranking(c, logits, n);
    float *probs = ARENA_NEW(&c->arena, float, n);
    char number[24];
    if (!order || !probs)
        return err_nomem(e);
    texts_labels(c, logits, n, probs);
    snprintf(number, sizeof(number), "LABEL_%u", order[0]);
    const char *label = order[0] < l->n_labels ? l->labels[order[0]] : number;
    buf_fmt(&c->out, "%s{\"index\":%u,\"label\":", i ? "," : "", i);
    buf_json_str(&c->out, label, strlen(label));
    buf_str(&c->out, ",\"probs\":");
    texts_json(&c->out, raw ? logits : probs, n);
    buf_fmt(&c->out, ",\"num_classes\":%u}", n);
    return 0;
}

static int render(struct call *c, struct err *e)
{
    const struct call_texts *t = c->texts;
    const struct classified *q = t->state;
    struct buf *out = &c->out;
    texts_list_begin(c, "classify");
    for (uint32_t i = 0; i < t->job.n; i++)
        if (one(c, i, q->raw, e) != 0)
            return -1;
    buf_ch(out, ']');
    texts_usage(c, true);
    return out->oom ? err_nomem(e) : 0;
}

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    const struct object root = body_root(b);
    struct classified *q = state;
    (void)c;
    q->raw = !body_opt_bool(b, root, "use_activation", body_opt_bool(b, root, "activation", true));
    body_truncate(b, root, ask);
    return MOST_INPUTS;
}

static int work(struct call *c, struct err *e)
{
    static const struct texts_row row = {.tasks = 1u << TASK_CLASSIFY | 1u << TASK_RERANK,
                                         .key = "input",
                                         .state = sizeof(struct classified),
                                         .ask = {.plain = true},
                                         .read = read_options,
                                         .render = render};
    return texts_work(c, &row, e);
}

const struct route route_classify = {
    .method = "POST",
    .paths = {"/classify", "/v1/classify"},
    .errors = ERRORS_OPENAI,
    .summary = "vLLM's labels: of each text the likeliest `label` and the probabilities of all, in "
               "the model's order; of a classifier or reranker, others answer 400.",
    .body = "`input` (a text, a list of texts, the ids of a text, a list of such lists), "
            "`use_activation` (true), `truncate_prompt_tokens`",
    .takes = "Classify",
    .gives = "ClassifyAnswer",
    .task = TASK_CLASSIFY,
    .example = "{\"input\": [\"Once upon a time\", \"there was a ball\"]}",
    .work = work,
};
