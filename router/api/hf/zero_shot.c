/* Zero-shot classification (arXiv 1909.00161): a hypothesis for each label of the request, and the
 * probability that the text entails it. */
#include "common/json/json.h"
#include "common/text.h"
#include "router/api/hf/hf.h"
#include <math.h>
#include <string.h>
#include <strings.h>

enum { MOST_LABELS = 1024 };

struct labelled {
    const char *const *labels; /* [n] */
    uint32_t n;
    bool batch, each; /* each: labels do not exclude each other */
};

/* The model's label that begins with "entail"; without one the last. */
static uint32_t entailment(const struct call *c)
{
    const struct infer_limits *l = edge_limits(c->edge);
    for (uint32_t i = 0; i < l->n_labels; i++)
        if (strncasecmp(l->labels[i], "entail", strlen("entail")) == 0)
            return i;
    return c->texts->job.width - 1;
}

/* Scores of the hypotheses whose logits are the rows from `first` on. */
static void score(const struct call *c, const struct labelled *q, uint32_t first, float *out)
{
    const uint32_t yes = entailment(c), no = yes ? 0 : c->texts->job.width - 1;
    for (uint32_t i = 0; i < q->n; i++) {
        const float *logits = call_text_row(c->texts, first + i);
        out[i] = q->each ? texts_sigmoid(logits[yes] - logits[no]) : logits[yes];
    }
    if (!q->each)
        texts_probabilities(out, q->n, out);
}

static int render(struct call *c, struct err *e)
{
    const struct labelled *q = c->texts->state;
    float *scores = ARENA_NEW(&c->arena, float, q->n);
    buf_str(&c->out, q->batch ? "[" : "");
    for (uint32_t at = 0; at < c->texts->job.n; at += q->n) {
        const uint32_t *order = NULL;
        if (scores) {
            score(c, q, at, scores);
            order = texts_ranking(c, scores, q->n);
        }
        if (!order)
            return err_nomem(e);
        buf_str(&c->out, at ? ",[" : "[");
        for (uint32_t k = 0; k < q->n; k++) {
            buf_str(&c->out, k ? "," : "");
            hf_label(&c->out, q->labels[order[k]], scores[order[k]]);
        }
        buf_ch(&c->out, ']');
    }
    buf_str(&c->out, q->batch ? "]" : "");
    return c->out.oom ? err_nomem(e) : 0;
}

/* One text with commas between labels; of too many, one more than is allowed. */
static const char **divide(struct body *b, struct object o, const char *text, uint32_t *n)
{
    char *all = arena_strdup(b->arena, text, strlen(text)), *rest = all;
    const char **v = ARENA_NEW(b->arena, const char *, MOST_LABELS + 1);
    *n = 0;
    for (char *s; v && rest && *n <= MOST_LABELS && (s = strsep(&rest, ","));) {
        s += strspn(s, " \t\n");
        for (size_t k = strlen(s); k && strchr(" \t\n", s[k - 1]); s[--k] = '\0')
            ;
        if (*s)
            v[(*n)++] = s;
    }
    if (!v || !all)
        body_nomem(b, o, "candidate_labels");
    return v;
}

const char *const *hf_labels(struct body *b, struct object o, uint32_t *n)
{
    const char *const *labels = body_strings(b, o, "candidate_labels", true, false, n);
    if (labels && *n == 1 && strchr(labels[0], ','))
        labels = divide(b, o, labels[0], n);
    if (!b->failed && (!*n || *n > MOST_LABELS))
        body_fail(b, o, "candidate_labels", "`candidate_labels`: 1 to %d labels are expected",
                  MOST_LABELS);
    return b->failed ? NULL : labels;
}

const char **hf_hypotheses(struct body *b, struct object o, const char *usual,
                           const char *const *labels, uint32_t n)
{
    const char *given = body_str(b, o, "hypothesis_template", false);
    const char *form = given ? given : usual, *mark = strstr(form, "{}");
    const char **out = ARENA_NEW(b->arena, const char *, n + (size_t)1);
    if (!mark) {
        body_fail(b, o, "hypothesis_template", "`hypothesis_template` has no {} for a label");
        return NULL;
    }
    if (!out)
        body_nomem(b, o, "candidate_labels");
    if (b->failed)
        return NULL;
    const size_t before = (size_t)(mark - form), after = strlen(mark + 2);
    for (uint32_t i = 0; i < n; i++) {
        const size_t k = strlen(labels[i]);
        char *text = arena_alloc(b->arena, before + k + after + 1, 1);
        if (!text) {
            body_nomem(b, o, "candidate_labels");
            return NULL;
        }
        memcpy(text, form, before);
        memcpy(text + before, labels[i], k);
        memcpy(text + before + k, mark + 2, after + 1);
        out[i] = text;
    }
    return out;
}

/* Long texts are cut, as in the pipeline. */
static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    struct labelled *q = state;
    bool given;
    uint32_t n;
    const struct object o = body_object(b, body_root(b), "parameters", &given);
    const struct text_input *texts = body_texts(b, body_root(b), "inputs", &n, &q->batch);
    q->labels = hf_labels(b, o, &q->n);
    q->each = body_opt_bool(b, o, "multi_label", false) || q->n == 1;
    if (b->failed || texts_count(c, n, texts_most(c), b->e))
        return texts_failed(b);
    ask->n = n * q->n;
    struct text_input *in = ARENA_NEW(&c->arena, struct text_input, ask->n);
    if (!in) {
        body_nomem(b, body_root(b), "inputs");
        return 0;
    }
    const char **form = hf_hypotheses(b, o, "This example is {}.", q->labels, q->n);
    hf_only_texts(b, texts, n);
    for (uint32_t i = 0; !b->failed && i < ask->n; i++) {
        const struct text_input *t = &texts[i / q->n];
        const char *second = form[i % q->n];
        in[i] = (struct text_input){
            .text = t->text, .n = t->n, .second = second, .n_second = strlen(second)};
    }
    ask->in = in;
    return ask->n;
}

const struct texts_row row_hf_zero_shot = {.tasks = 1u << TASK_CLASSIFY,
                                           .state = sizeof(struct labelled),
                                           .ask = {.plain = true, .truncate = true},
                                           .read = read_options,
                                           .render = render};
