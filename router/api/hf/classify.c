/* Labels of texts: the most probable ones, or a request's own by entailment. */
#include "common/json/json.h"
#include "router/api/hf/hf.h"
#include <stdio.h>
#include <string.h>

enum function { OF_MODEL, OF_SIGMOID, OF_SOFTMAX, OF_NONE };
struct classified {
    enum function function;
    uint32_t top; /* labels of a text; 0: all */
};

void hf_label(struct buf *out, const char *label, float score)
{
    buf_str(out, "{\"label\":");
    buf_json_str(out, label, strlen(label));
    buf_str(out, ",\"score\":");
    buf_json_f32(out, score);
    buf_ch(out, '}');
}

const char *hf_label_name(const struct call *c, uint32_t i, char spare[HF_LABEL_CAP])
{
    const struct infer_limits *l = edge_limits(c->edge);
    snprintf(spare, HF_LABEL_CAP, "LABEL_%u", i);
    return i < l->n_labels ? l->labels[i] : spare;
}

uint32_t hf_positive(struct body *b, struct object o, const char *key, uint32_t usual)
{
    const struct opt_u64 v = body_u32(b, o, key);
    if (v.set && !v.v)
        body_fail(b, o, key, "`%s` must be positive", key);
    return v.set ? (uint32_t)v.v : usual;
}

void hf_only_texts(struct body *b, const struct text_input *in, uint32_t n)
{
    for (uint32_t i = 0; !b->failed && i < n; i++)
        if (!in[i].text)
            body_fail(b, body_root(b), "inputs", "texts are expected, not ids");
}

static void scores_of(const struct call *c, const float *logits, uint32_t n, enum function f,
                      float *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = f == OF_SIGMOID ? texts_sigmoid(logits[i]) : logits[i];
    if (f == OF_MODEL)
        texts_labels(c, logits, n, out);
    else if (f == OF_SOFTMAX && n == 1)
        out[0] = 1;
    else if (f == OF_SOFTMAX)
        texts_probabilities(logits, n, out);
}

static int render(struct call *c, struct err *e)
{
    const struct classified *q = c->texts->state;
    const uint32_t n = c->texts->job.width, most = q->top && q->top < n ? q->top : n;
    float *scores = ARENA_NEW(&c->arena, float, n);
    char spare[HF_LABEL_CAP];
    buf_ch(&c->out, '[');
    for (uint32_t i = 0; i < c->texts->job.n; i++) {
        const float *logits = call_text_row(c->texts, i);
        const uint32_t *order = texts_ranking(c, logits, n);
        if (!order || !scores)
            return err_nomem(e);
        scores_of(c, logits, n, q->function, scores);
        buf_str(&c->out, i ? ",[" : "[");
        for (uint32_t k = 0; k < most; k++) {
            buf_str(&c->out, k ? "," : "");
            hf_label(&c->out, hf_label_name(c, order[k], spare), scores[order[k]]);
        }
        buf_ch(&c->out, ']');
    }
    buf_ch(&c->out, ']');
    return c->out.oom ? err_nomem(e) : 0;
}

static enum function read_function(struct body *b, struct object o)
{
    static const char *const names[] = {"", "sigmoid", "softmax", "none"};
    const char *name = body_str(b, o, "function_to_apply", false);
    for (int i = OF_SIGMOID; name && i <= OF_NONE; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum function)i;
    if (name)
        body_fail(b, o, "function_to_apply",
                  "`function_to_apply` must be sigmoid, softmax or none");
    return OF_MODEL;
}

/* One list per text, which InferenceClient unwraps, also of a single one. */
static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    struct classified *q = state;
    bool given;
    (void)ask;
    const struct object o = body_object(b, body_root(b), "parameters", &given);
    q->function = read_function(b, o);
    q->top = hf_positive(b, o, "top_k", 0);
    return texts_most(c);
}

const struct texts_row row_hf_classify = {.tasks = 1u << TASK_CLASSIFY | 1u << TASK_RERANK,
                                          .key = "inputs",
                                          .state = sizeof(struct classified),
                                          .ask = {.plain = true},
                                          .read = read_options,
                                          .render = render};
