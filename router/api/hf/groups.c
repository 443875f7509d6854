#include "router/api/hf/groups.h"
#include "router/api/hf/hf.h"
#include <string.h>

/* The text of several tokens. */
static int join_words(struct call *c, const struct entity *x, uint32_t n, struct tok_text *out)
{
    struct tok_text *v = ARENA_NEW(&c->arena, struct tok_text, n);
    struct buf b = BUF_INIT;
    for (uint32_t i = 0; v && i < n; i++)
        v[i] = x[i].word;
    if (v)
        tokenizer_join(c->edge->tokenizer, v, n, &b);
    const char *text = v && !b.oom ? arena_strdup(&c->arena, b.p ? b.p : "", b.len) : NULL;
    *out = (struct tok_text){text, b.len};
    buf_free(&b);
    return text ? 0 : -1;
}

/* The label with the greatest of these probabilities. */
static int choose(struct call *c, const float *scores, struct entity *out)
{
    const uint32_t n = c->texts->job.width;
    uint32_t best = 0;
    char spare[HF_LABEL_CAP];
    for (uint32_t i = 1; i < n; i++)
        best = scores[i] > scores[best] ? i : best;
    const char *name = hf_label_name(c, best, spare);
    out->score = scores[best];
    out->label = name == spare ? arena_strdup(&c->arena, name, strlen(name)) : name;
    return out->label ? 0 : -1;
}

static float greatest(const float *x, uint32_t n)
{
    float y = x[0];
    for (uint32_t i = 1; i < n; i++)
        y = x[i] > y ? x[i] : y;
    return y;
}

/* The word of tokens x[0 .. n). */
static int word_of(struct call *c, enum strategy s, const struct entity *x, uint32_t n,
                   struct entity *out)
{
    const uint32_t width = c->texts->job.width;
    const float *scores = x[0].scores;
    for (uint32_t i = 1; s == AGGREGATE_MAX && i < n; i++)
        if (greatest(x[i].scores, width) > greatest(scores, width))
            scores = x[i].scores;
    float *mean = s == AGGREGATE_AVERAGE ? ARENA_NEW(&c->arena, float, width) : NULL;
    for (uint32_t k = 0; mean && k < width; k++) {
        double sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += x[i].scores[k];
        mean[k] = (float)(sum / n);
    }
    struct entity y = {.start = x[0].start, .end = x[n - 1].end};
    if ((s == AGGREGATE_AVERAGE && !mean) || join_words(c, x, n, &y.word) ||
        choose(c, mean ? mean : scores, &y))
        return -1;
    *out = y;
    return 0;
}

static int64_t words_of(struct call *c, enum strategy s, struct entity *x, uint32_t n)
{
    uint32_t words = 0;
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && x[end].continues; end++)
            ;
        if (word_of(c, s, x + i, end - i, &x[words++]))
            return -1;
    }
    return words;
}

/* The kind of entity that a label names behind B- (begins one) or I- (is in one). */
static const char *kind_of(const char *label, bool *begins)
{
    *begins = strncmp(label, "B-", 2) == 0;
    return *begins || strncmp(label, "I-", 2) == 0 ? label + 2 : label;
}

static bool same_group(const struct entity *before, const struct entity *x)
{
    bool begins, began;
    const char *kind = kind_of(x->label, &begins), *of = kind_of(before->label, &began);
    return !begins && strcmp(kind, of) == 0;
}

/* A group's label is what follows the first hyphen. */
static int group_of(struct call *c, const struct entity *x, uint32_t n, struct entity *out)
{
    const char *hyphen = strchr(x[0].label, '-');
    struct entity y = {.start = x[0].start, .end = x[n - 1].end};
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i].score;
    y.score = (float)(sum / n);
    y.label = hyphen ? hyphen + 1 : x[0].label;
    if (join_words(c, x, n, &y.word))
        return -1;
    *out = y;
    return 0;
}

int64_t entities_join(struct call *c, enum strategy s, struct entity *x, uint32_t n)
{
    int64_t left = n;
    uint32_t groups = 0;
    if (s == AGGREGATE_NONE || s == AGGREGATE_SIMPLE) {
        for (uint32_t i = 0; i < n; i++)
            if (choose(c, x[i].scores, &x[i]))
                return -1;
    } else {
        left = words_of(c, s, x, n);
    }
    if (s == AGGREGATE_NONE || left < 0)
        return left;
    for (uint32_t i = 0, end; i < left; i = end) {
        for (end = i + 1; end < left && same_group(&x[end - 1], &x[end]); end++)
            ;
        if (group_of(c, x + i, end - i, &x[groups++]))
            return -1;
    }
    return groups;
}
