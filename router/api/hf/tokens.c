/* Labels of tokens, or of groups of them: transformers' token classification, whose strategies of
 * aggregation are its own. */
#include "common/json/json.h"
#include "common/utf8.h"
#include "router/api/hf/groups.h"
#include "router/api/hf/hf.h"
#include <stdlib.h>
#include <string.h>

struct tagged {
    enum strategy strategy;
    const char *const *ignored; /* labels that are left out */
    uint32_t n_ignored, n;
    struct text_windows *texts; /* [n] */
    bool batch;
};

/* ---------------------------------------------------------------- tokens */

static bool is_ignored(const struct tagged *q, const char *label)
{
    for (uint32_t i = 0; i < q->n_ignored; i++)
        if (strcmp(label, q->ignored[i]) == 0)
            return true;
    return false;
}

/* A token that continues the word of the one before. Where the vocabulary does not mark such
 * tokens, one that no space precedes. */
static bool continues(const struct call *c, const struct text_windows *t, uint32_t token,
                      const struct tok_text *name)
{
    const struct tok_offset at = t->places[token];
    if (tokenizer_marks_inner(c->edge->tokenizer))
        return utf8_count(name->p, name->n) != utf8_count(t->text + at.start, at.end - at.start);
    const size_t first = utf8_valid_len(t->text + at.start, t->n_text - at.start);
    const size_t more = first && *(t->text + at.start) == ' ' ? first : 0;
    return at.start && t->text[at.start - 1] != ' ' && !more;
}

/* Token `token` of a text as an entity of its own. probabilities: [labels] of it. */
static struct entity entity_of(const struct call *c, const struct text_windows *t, uint32_t token,
                               const float *probabilities)
{
    const struct tokenizer *k = c->edge->tokenizer;
    const struct tok_offset at = t->places[token];
    const char *name = tokenizer_token(k, t->ids[token]), *unk = tokenizer_special(k, "unk_token");
    struct entity x = {.start = at.start, .end = at.end, .scores = probabilities};
    x.word = (struct tok_text){name ? name : "", name ? strlen(name) : 0};
    x.continues = continues(c, t, token, &x.word);
    if (unk && name && strcmp(name, unk) == 0) {
        x.word = (struct tok_text){t->text + at.start, at.end - at.start};
        x.continues = false;
    }
    return x;
}

/* ---------------------------------------------------------------- the answer */

static int by_start(const void *pa, const void *pb)
{
    const struct entity *a = pa, *b = pb;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Of entities that overlap, as windows do, the longest one remains, or the most probable. */
static uint32_t without_overlaps(struct entity *x, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        x[i].index = i; /* qsort() is not stable */
    qsort(x, n, sizeof(*x), by_start);
    for (uint32_t i = 1; i < n; i++) {
        struct entity *was = &x[kept];
        const uint32_t length = x[i].end - x[i].start, before = was->end - was->start;
        if (was->start > x[i].start || x[i].start >= was->end)
            x[++kept] = x[i];
        else if (length > before || (length == before && x[i].score > was->score))
            *was = x[i];
    }
    return n ? kept + 1 : 0;
}

static void print(struct buf *out, const struct tagged *q, const struct entity *x)
{
    buf_str(out, q->strategy == AGGREGATE_NONE ? "{\"entity\":" : "{\"entity_group\":");
    buf_json_str(out, x->label, strlen(x->label));
    buf_str(out, ",\"score\":");
    buf_json_f32(out, x->score);
    if (q->strategy == AGGREGATE_NONE)
        buf_fmt(out, ",\"index\":%u", x->index);
    buf_str(out, ",\"word\":");
    buf_json_str(out, x->word.p, x->word.n);
    buf_fmt(out, ",\"start\":%u,\"end\":%u}", x->start, x->end);
}

/* Appends those with labels that are asked for, placed by characters. */
static void take(const struct tagged *q, const char *text, const struct entity *x, uint32_t n,
                 struct char_place *at, struct entity *all, uint32_t *taken)
{
    for (uint32_t i = 0; i < n; i++) {
        if (is_ignored(q, x[i].label))
            continue;
        struct entity *to = &all[(*taken)++];
        *to = x[i];
        to->start = text_chars(text, x[i].start, at);
        to->end = text_chars(text, x[i].end, at);
    }
}

/* Entities of window w of a text; their number. -1: out of memory. */
static int64_t of_window(struct call *c, const struct tagged *q, const struct text_windows *t,
                         uint32_t w, float *rows, struct entity *out)
{
    const struct text_window *v = &t->v[w];
    const uint32_t width = c->texts->job.width;
    for (uint32_t i = 0; i < v->n; i++) {
        float *scores = rows + (size_t)(v->at + i) * width;
        texts_probabilities(scores, width, scores);
        out[i] = entity_of(c, t, v->first + i, scores);
        out[i].index = v->at + i;
    }
    return entities_join(c, q->strategy, out, v->n);
}

static int one(struct call *c, const struct tagged *q, const struct text_windows *t, float **rows,
               struct err *e)
{
    struct entity *all = NULL, *x = ARENA_NEW(&c->arena, struct entity, t->n_ids + (size_t)1);
    struct char_place at = {0};
    uint32_t n = 0, room = 0;
    for (uint32_t w = 0; w < t->n; w++)
        room += t->v[w].n;
    if (!x || !(all = ARENA_NEW(&c->arena, struct entity, room + (size_t)1)))
        return err_nomem(e);
    for (uint32_t w = 0; w < t->n; w++) {
        const int64_t some = of_window(c, q, t, w, *rows, x);
        if (some < 0)
            return err_nomem(e);
        take(q, t->text, x, (uint32_t)some, &at, all, &n);
        *rows += (size_t)t->in[w].n_ids * c->texts->job.width;
    }
    if (t->n > 1)
        n = without_overlaps(all, n);
    buf_ch(&c->out, '[');
    for (uint32_t i = 0; i < n; i++) {
        buf_str(&c->out, i ? "," : "");
        print(&c->out, q, &all[i]);
    }
    buf_ch(&c->out, ']');
    return 0;
}

static int render(struct call *c, struct err *e)
{
    const struct tagged *q = c->texts->state;
    float *rows = c->texts->job.values;
    buf_str(&c->out, q->batch ? "[" : "");
    for (uint32_t i = 0; i < q->n; i++) {
        buf_str(&c->out, i ? "," : "");
        if (one(c, q, &q->texts[i], &rows, e))
            return -1;
    }
    buf_str(&c->out, q->batch ? "]" : "");
    return c->out.oom ? err_nomem(e) : 0;
}

/* ---------------------------------------------------------------- the request */

static enum strategy read_strategy(struct body *b, struct object o)
{
    static const char *const names[] = {"none", "simple", "first", "average", "max"};
    const char *name = body_str(b, o, "aggregation_strategy", false);
    for (int i = AGGREGATE_NONE; name && i <= AGGREGATE_MAX; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum strategy)i;
    if (name)
        body_fail(b, o, "aggregation_strategy",
                  "`aggregation_strategy` must be none, simple, first, average or max");
    return AGGREGATE_SIMPLE;
}

static uint32_t read_options(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    static const char *const outside[] = {"O"};
    struct tagged *q = state;
    bool given;
    const struct object o = body_object(b, body_root(b), "parameters", &given);
    const struct text_input *in = body_texts(b, body_root(b), "inputs", &q->n, &q->batch);
    q->strategy = read_strategy(b, o);
    q->ignored = body_strings(b, o, "ignore_labels", false, true, &q->n_ignored);
    if (!json_get(o.json, "ignore_labels"))
        q->ignored = outside, q->n_ignored = 1;
    const struct opt_u64 shared = body_u32(b, o, "stride");
    hf_only_texts(b, in, q->n);
    if (b->failed || texts_count(c, q->n, texts_most(c), b->e))
        return texts_failed(b);
    if (!(q->texts = ARENA_NEW(&c->arena, struct text_windows, q->n))) {
        body_nomem(b, body_root(b), "inputs");
        return 0;
    }
    for (uint32_t i = 0; i < q->n; i++) {
        const struct text_windows_ask w = {.text = in[i].text,
                                           .n = in[i].n,
                                           .shared =
                                               shared.set ? (uint32_t)shared.v : WINDOWS_WHOLE};
        if (texts_windows(c, &w, &q->texts[i], b->e))
            return texts_failed(b);
    }
    return texts_of_windows(c, q->texts, q->n, ask, b->e) ? texts_failed(b) : ask->n;
}

const struct texts_row row_hf_tokens = {.tasks = 1u << TASK_TOKEN_CLASSIFY,
                                        .state = sizeof(struct tagged),
                                        .read = read_options,
                                        .render = render};
