/* Extractive question answering (SQuAD, arXiv 1606.05250): the places of a context that answer a
 * question, as transformers' pipeline of that name finds them. */
#include "common/json/json.h"
#include "router/api/hf/hf.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    USUAL_WINDOW = 384,
    USUAL_SHARED = 128,
    USUAL_TOKENS = 15,
    MOST_ANSWERS = 100,
    MOST_SPANS = 2 * MOST_ANSWERS + 10
};

struct question {
    struct text_windows context;
    uint32_t top, most_tokens; /* answers; tokens of one */
    bool words;                /* answers are whole words */
    bool may_fail;             /* no answer may be the answer */
    float none;                /* its probability */
};

/* Tokens [first, last] of a window. */
struct tokens_span {
    double score;
    uint32_t first, last;
};
struct found {
    float score;
    uint32_t start, end; /* bytes of the context */
};

/* ---------------------------------------------------------------- spans */

/* Probabilities of column `which` of the window's tokens [n]; returns that of the first row. With
 * `cls` that row, where a model has "no answer", is one of them. */
static double probabilities(const float *rows, const struct text_window *v, int which, bool cls,
                            double *out)
{
    const float *x = rows + 2 * (size_t)v->at + which;
    double most = cls ? rows[which] : -INFINITY, sum = 0;
    for (uint32_t i = 0; i < v->n; i++)
        most = x[2 * (size_t)i] > most ? x[2 * (size_t)i] : most;
    for (uint32_t i = 0; i < v->n; i++)
        sum += out[i] = exp(x[2 * (size_t)i] - most);
    const double none = cls ? exp(rows[which] - most) : 0;
    sum += none;
    for (uint32_t i = 0; i < v->n; i++)
        out[i] /= sum;
    return none / sum;
}

/* Keeps the `most` best spans, best first; the first of equal ones. */
static void keep(struct tokens_span *best, uint32_t *n, uint32_t most, struct tokens_span x)
{
    uint32_t i = *n;
    if (i == most && x.score <= best[i - 1].score)
        return;
    if (i == most)
        i--;
    else
        (*n)++;
    for (; i > 0 && best[i - 1].score < x.score; i--)
        best[i] = best[i - 1];
    best[i] = x;
}

static uint32_t best_spans(const double *start, const double *end, uint32_t n, uint32_t longest,
                           uint32_t most, struct tokens_span *best)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i; k < n && k - i < longest; k++)
            if (start[i] * end[k] > 0)
                keep(best, &kept, most, (struct tokens_span){start[i] * end[k], i, k});
    return kept;
}

/* ---------------------------------------------------------------- answers */

/* The place of a span, or of all words that it touches, as far as the window has them. */
static struct found place_of(const struct question *q, const struct text_window *v,
                             const struct tokens_span *s)
{
    const struct text_windows *t = &q->context;
    uint32_t first = v->first + s->first, last = v->first + s->last;
    while (q->words && first > v->first && t->words[first - 1] == t->words[first])
        first--;
    while (q->words && last + 1 < v->first + v->n && t->words[last + 1] == t->words[last])
        last++;
    return (struct found){(float)s->score, t->places[first].start, t->places[last].end};
}

/* Equal texts are one answer, whose score is their sum. */
static void add(const struct question *q, struct found *all, uint32_t *n, struct found x)
{
    const char *text = q->context.text;
    const uint32_t length = x.end > x.start ? x.end - x.start : 0;
    for (uint32_t i = 0; i < *n; i++)
        if (all[i].end - all[i].start == length &&
            strncasecmp(text + all[i].start, text + x.start, length) == 0) {
            all[i].score += x.score;
            return;
        }
    x.end = x.start + length;
    all[(*n)++] = x;
}

static int better(const void *pa, const void *pb)
{
    const struct found *a = pa, *b = pb;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start;
}

/* Answers of all windows, best first; NULL: out of memory. */
static struct found *find(struct call *c, struct question *q, uint32_t *n)
{
    const struct text_windows *t = &q->context;
    const uint32_t most = q->words ? 2 * q->top + 10 : q->top;
    const char *cls = tokenizer_special(c->edge->tokenizer, "cls_token");
    const int64_t cls_id = cls ? tokenizer_id(c->edge->tokenizer, cls) : -1;
    struct found *all = ARENA_NEW(&c->arena, struct found, (size_t)t->n * most + 1);
    double *start = ARENA_NEW(&c->arena, double, 2 * (size_t)t->n_ids);
    struct tokens_span *best = ARENA_NEW(&c->arena, struct tokens_span, MOST_SPANS);
    const float *rows = c->texts->job.values;
    *n = 0;
    if (!all || !start || !best)
        return NULL;
    double *end = start + t->n_ids;
    for (uint32_t w = 0; w < t->n; rows += 2 * (size_t)t->in[w++].n_ids) {
        const struct text_window *v = &t->v[w];
        const bool first = t->in[w].ids[0] == cls_id && v->at;
        const float none = (float)(probabilities(rows, v, 0, first, start) *
                                   probabilities(rows, v, 1, first, end));
        q->none = none < q->none ? none : q->none;
        const uint32_t spans = best_spans(start, end, v->n, q->most_tokens, most, best);
        for (uint32_t i = 0; i < spans; i++)
            add(q, all, n, place_of(q, v, &best[i]));
    }
    if (q->may_fail)
        all[(*n)++] = (struct found){.score = q->none};
    qsort(all, *n, sizeof(*all), better);
    *n = *n < q->top ? *n : q->top;
    return all;
}

/* A single answer is not in a list. */
static int render(struct call *c, struct err *e)
{
    struct question *q = c->texts->state;
    const char *text = q->context.text;
    struct char_place at = {0};
    uint32_t n;
    const struct found *all = find(c, q, &n);
    if (!all)
        return err_nomem(e);
    buf_str(&c->out, n == 1 ? "" : "[");
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t start = text_chars(text, all[i].start, &at);
        buf_str(&c->out, i ? ",{\"score\":" : "{\"score\":");
        buf_json_f32(&c->out, all[i].score);
        buf_fmt(&c->out, ",\"start\":%u,\"end\":%u,\"answer\":", start,
                text_chars(text, all[i].end, &at));
        buf_json_str(&c->out, text + all[i].start, all[i].end - all[i].start);
        buf_ch(&c->out, '}');
    }
    buf_str(&c->out, n == 1 ? "" : "]");
    return c->out.oom ? err_nomem(e) : 0;
}

/* ---------------------------------------------------------------- the request */

static void read_parameters(const struct call *c, struct body *b, struct question *q,
                            struct text_windows_ask *w)
{
    bool given;
    const struct object o = body_object(b, body_root(b), "parameters", &given);
    const uint32_t limit = edge_limits(c->edge)->max_input_tokens;
    q->top = hf_positive(b, o, "top_k", 1);
    q->most_tokens = hf_positive(b, o, "max_answer_len", USUAL_TOKENS);
    q->words = body_opt_bool(b, o, "align_to_words", true);
    q->may_fail = body_opt_bool(b, o, "handle_impossible_answer", false);
    q->none = 1;
    w->most =
        hf_positive(b, o, "max_seq_len", limit && limit < USUAL_WINDOW ? limit : USUAL_WINDOW);
    w->most_before = hf_positive(b, o, "max_question_len", UINT32_MAX);
    const struct opt_u64 shared = body_u32(b, o, "doc_stride");
    w->shared = shared.set                   ? (uint32_t)shared.v
                : w->most / 2 < USUAL_SHARED ? w->most / 2
                                             : USUAL_SHARED;
    if (q->top > MOST_ANSWERS)
        body_fail(b, o, "top_k", "`top_k` must be at most %d", MOST_ANSWERS);
}

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    struct text_windows_ask w = {0};
    struct question *q = state;
    bool given;
    const struct object o = body_object(b, body_root(b), "inputs", &given);
    w.before = body_str(b, o, "question", true);
    w.text = body_str(b, o, "context", true);
    read_parameters(c, b, q, &w);
    if (b->failed)
        return 0;
    w.n_before = strlen(w.before);
    w.n = strlen(w.text);
    return texts_windows(c, &w, &q->context, b->e) || texts_of_windows(c, &q->context, 1, ask, b->e)
               ? texts_failed(b)
               : ask->n;
}

const struct texts_row row_hf_answer = {.tasks = 1u << TASK_ANSWER,
                                        .state = sizeof(struct question),
                                        .read = read_options,
                                        .render = render};
