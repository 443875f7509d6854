/* Zero-shot classification (arXiv 1909.00161): a hypothesis for each label of the request, and the
 * probability that the text entails it. */
#include "common/json/json.h"
#include "common/text.h"
#include "router/api/hf/hf.h"
#include <math.h>
#include <string.h>
#include <strings.h>

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

/* A list, or one text with commas between labels. */
static void read_labels(struct body *b, struct object o, struct labelled *q)
{
    enum { MOST_LABELS = 1024 };
    q->labels = body_strings(b, o, "candidate_labels", true, false, &q->n);
    const char *only = q->labels && q->n == 1 ? q->labels[0] : NULL;
    if (only && strchr(only, ',')) {
        char *all = arena_strdup(b->arena, only, strlen(only)), *rest = all;
        const char **v = ARENA_NEW(b->arena, const char *, MOST_LABELS);
        q->n = 0;
        for (char *s; v && rest && q->n < MOST_LABELS && (s = strsep(&rest, ","));) {
            s += strspn(s, " \t\n");
            for (size_t n = strlen(s); n && strchr(" \t\n", s[n - 1]); s[--n] = '\0')
                ;
            if (*s)
                v[q->n++] = s;
        }
        q->labels = v;
        if (!v || !all)
            body_nomem(b, o, "candidate_labels");
    }
    if (!b->failed && (!q->n || q->n > MOST_LABELS))
        body_fail(b, o, "candidate_labels", "`candidate_labels`: 1 to %d labels are expected",
                  MOST_LABELS);
    q->each = body_opt_bool(b, o, "multi_label", false) || q->n == 1;
}

/* The hypotheses: `form` with each label in place of its {}. */
static void hypotheses(struct body *b, struct object o, const struct labelled *q,
                       struct text_input *out)
{
    const char *given = body_str(b, o, "hypothesis_template", false);
    const char *form = given ? given : "This example is {}.", *mark = strstr(form, "{}");
    if (!mark) {
        body_fail(b, o, "hypothesis_template", "`hypothesis_template` has no {} for a label");
        return;
    }
    const size_t before = (size_t)(mark - form), after = strlen(mark + 2);
    for (uint32_t i = 0; i < q->n; i++) {
        const size_t n = strlen(q->labels[i]);
        char *text = arena_alloc(b->arena, before + n + after + 1, 1);
        if (!text) {
            body_nomem(b, o, "candidate_labels");
            return;
        }
        memcpy(text, form, before);
        memcpy(text + before, q->labels[i], n);
        memcpy(text + before + n, mark + 2, after + 1);
        out[i] = (struct text_input){.second = text, .n_second = before + n + after};
    }
}

/* Long texts are cut, as in the pipeline. */
static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    struct labelled *q = state;
    bool given;
    uint32_t n;
    const struct object o = body_object(b, body_root(b), "parameters", &given);
    const struct text_input *texts = body_texts(b, body_root(b), "inputs", &n, &q->batch);
    read_labels(b, o, q);
    if (b->failed || texts_count(c, n, texts_most(c), b->e))
        return texts_failed(b);
    ask->n = n * q->n;
    struct text_input *in = ARENA_NEW(&c->arena, struct text_input, ask->n);
    if (!in) {
        err_nomem(b->e);
        return texts_failed(b);
    }
    hypotheses(b, o, q, in);
    hf_only_texts(b, texts, n);
    for (uint32_t i = ask->n; !b->failed && i-- > 0;) {
        const struct text_input *t = &texts[i / q->n];
        in[i] = (struct text_input){.text = t->text,
                                    .n = t->n,
                                    .second = in[i % q->n].second,
                                    .n_second = in[i % q->n].n_second};
    }
    ask->in = in;
    return ask->n;
}

const struct texts_row row_hf_zero_shot = {.tasks = 1u << TASK_CLASSIFY,
                                           .state = sizeof(struct labelled),
                                           .ask = {.plain = true, .truncate = true},
                                           .read = read_options,
                                           .render = render};
