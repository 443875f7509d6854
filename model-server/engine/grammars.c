#include "model-server/engine/grammars.h"
#include "common/buf.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Constraints that nothing uses, however small they are: a longer list would cost time. */
enum { MOST_UNUSED = 256 };

struct kept {
    struct constraint *c;
    enum constraint_kind kind;
    struct constraint_front front;
    char *text;
    uint64_t used; /* the time of the last grammars_get() */
    uint32_t users;
    bool changed; /* since `bytes` were counted, or not counted yet */
    bool closed;
    size_t bytes;
};

struct grammars {
    const struct tokenizer *tok;
    uint32_t vocab, n_eos, *eos;
    struct buf bytes;
    struct token_text *text; /* [vocab]; NULL: not built yet */
    struct token_set *tokens;
    struct kept *kept; /* [n] */
    size_t n, cap, budget;
    uint64_t clock;
    struct grammars_stats stats;
};

struct grammars *grammars_new(const struct tokenizer *tok, uint32_t vocab, const uint32_t *eos,
                              uint32_t n_eos, size_t budget)
{
    struct grammars *g = calloc(1, sizeof(*g));
    uint32_t *copy = malloc((n_eos + (size_t)1) * sizeof(*copy));
    if (!g || !copy) {
        free(g);
        free(copy);
        return NULL;
    }
    if (n_eos)
        memcpy(copy, eos, n_eos * sizeof(*copy));
    g->tok = tok, g->vocab = vocab, g->eos = copy, g->n_eos = n_eos;
    g->budget = budget;
    return g;
}

/* The last one takes its place. */
static void drop(struct grammars *g, struct kept *k)
{
    assert(!k->users);
    constraint_unref(k->c);
    free(k->text);
    *k = g->kept[--g->n];
}

void grammars_free(struct grammars *g)
{
    if (!g)
        return;
    while (g->n)
        drop(g, &g->kept[g->n - 1]);
    free(g->kept);
    token_set_free(g->tokens);
    buf_free(&g->bytes);
    free(g->text);
    free(g->eos);
    free(g);
}

static int lay_out(struct grammars *g, struct err *e)
{
    uint32_t n = tokenizer_vocab_size(g->tok);
    assert(!g->tokens && !g->text);
    size_t *end = malloc((n + (size_t)1) * sizeof(*end));
    struct token_text *text = calloc(g->vocab + (size_t)1, sizeof(*text));
    if (end && text && !tokenizer_token_bytes(g->tok, &g->bytes, end)) {
        for (uint32_t id = 0; id < n && id < g->vocab; id++) {
            size_t from = id ? end[id - 1] : 0;
            text[id] = (struct token_text){g->bytes.p + from, (uint32_t)(end[id] - from)};
        }
        for (uint32_t i = 0; i < g->n_eos; i++)
            if (g->eos[i] < g->vocab)
                text[g->eos[i]].n = 0; /* an end token, whatever its text is */
        g->tokens = token_set_new(text, g->vocab, g->eos, g->n_eos);
    }
    free(end);
    if (!g->tokens) {
        free(text);
        buf_free(&g->bytes);
        return err_nomem(e);
    }
    g->text = text;
    return 0;
}

/* ---------------------------------------------------------------- users */

static bool is_of(const struct kept *k, const struct grammar_spec *spec)
{
    return k->kind == spec->kind && k->front.reasoning == spec->front.reasoning &&
           k->front.marks == spec->front.marks && !strcmp(k->text, spec->text);
}

/* The one of `spec`, unless it is full; NULL: none. */
static struct kept *find(struct grammars *g, const struct grammar_spec *spec)
{
    for (struct kept *k = g->kept; k < g->kept + g->n; k++)
        if (is_of(k, spec) && !constraint_full(k->c))
            return k;
    return NULL;
}

static struct kept *add(struct grammars *g, const struct grammar_spec *spec, struct err *e)
{
    if (g->n == g->cap) {
        const size_t cap = g->cap ? 2 * g->cap : 16;
        struct kept *more = realloc(g->kept, cap * sizeof(*more));
        if (!more)
            return err_nomem(e), NULL;
        g->kept = more;
        g->cap = cap;
    }
    char *text = strdup(spec->text);
    if (!text)
        return err_nomem(e), NULL;
    struct constraint *c = constraint_order(spec->front, spec->kind, text, strlen(text), e);
    if (!c) {
        free(text);
        return NULL;
    }
    g->kept[g->n] = (struct kept){.c = c, .kind = spec->kind, .front = spec->front, .text = text};
    return &g->kept[g->n++];
}

struct constraint *grammars_get(struct grammars *g, const struct grammar_spec *spec, struct err *e)
{
    if (!g->text && lay_out(g, e))
        return NULL;
    struct kept *k = find(g, spec);
    if (!k && !(k = add(g, spec, e)))
        return NULL;
    k->used = ++g->clock;
    k->users++;
    return k->c;
}

void grammars_put(struct grammars *g, struct constraint *c)
{
    struct kept *k = g->kept;
    while (k < g->kept + g->n && k->c != c)
        k++;
    assert(k < g->kept + g->n && k->users > 0);
    k->users--;
    k->changed = true;
    if (!k->users && constraint_full(k->c)) /* of no use to others */
        drop(g, k);
}

/* ---------------------------------------------------------------- memory */

/* A constraint without users counts from the end of its compilation on. One with users counts from
 * its first mask on: that is the same step on all ranks, and no step waits for a compilation. */
static void count_one(struct kept *k)
{
    const size_t n = k->users && !constraint_begun(k->c) ? 0 : constraint_bytes(k->c);
    k->bytes = n ? n + 2 * strlen(k->text) : 0; /* compiling has copied it */
    k->changed = !n;
}

/* Counts those that may have grown. */
static size_t count(struct grammars *g, size_t *unused)
{
    size_t all = 0;
    *unused = 0;
    for (struct kept *k = g->kept; k < g->kept + g->n; k++) {
        if (k->users || k->changed)
            count_one(k);
        all += k->bytes;
        *unused += !k->users;
    }
    return all;
}

/* The least recently requested one that is not in use. */
static struct kept *oldest_unused(struct grammars *g)
{
    struct kept *oldest = NULL;
    for (struct kept *k = g->kept; k < g->kept + g->n; k++)
        if (!k->users && (!oldest || k->used < oldest->used))
            oldest = k;
    return oldest;
}

static int by_use(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;
    return (x->used > y->used) - (x->used < y->used);
}

/* Drops transitions and masks until `all` bytes fit. Returns what is left. */
static size_t trim(struct grammars *g, size_t all)
{
    qsort(g->kept, g->n, sizeof(*g->kept), by_use);
    for (struct kept *k = g->kept; all > g->budget && k < g->kept + g->n; k++) {
        const size_t was = k->bytes;
        if (!was)
            continue;
        constraint_trim(k->c);
        count_one(k);
        g->stats.trimmed += k->bytes < was;
        all -= was - k->bytes;
    }
    return all;
}

/* Closes the largest ones, whose requests then end, until the others fit. */
static void close_largest(struct grammars *g, size_t all)
{
    size_t gone = 0;
    for (struct kept *k = g->kept; k < g->kept + g->n; k++)
        gone += k->closed ? k->bytes : 0;
    while (all - gone > g->budget) {
        struct kept *largest = NULL;
        for (struct kept *k = g->kept; k < g->kept + g->n; k++)
            if (!k->closed && (!largest || k->bytes > largest->bytes))
                largest = k;
        assert(largest); /* or nothing were left that exceeds the budget */
        constraint_close(largest->c);
        largest->closed = true;
        gone += largest->bytes;
        g->stats.closed++;
    }
}

void grammars_settle(struct grammars *g)
{
    size_t unused, all = count(g, &unused);
    for (; unused && (all > g->budget || unused > MOST_UNUSED); unused--) {
        struct kept *k = oldest_unused(g);
        all -= k->bytes;
        drop(g, k);
        g->stats.dropped++;
    }
    all = all > g->budget ? trim(g, all) : all;
    if (all > g->budget)
        close_largest(g, all);
    g->stats.bytes = all;
}

struct grammars_stats grammars_stats(const struct grammars *g) { return g->stats; }

/* ---------------------------------------------------------------- tokens */

const struct token_set *grammars_tokens(const struct grammars *g) { return g->tokens; }

constraint_state grammars_next(const struct grammars *g, struct constraint *c, constraint_state at,
                               uint32_t id)
{
    if (id >= g->vocab)
        return CONSTRAINT_DEAD;
    const struct token_text *t = &g->text[id];
    return t->n ? constraint_next(c, at, t->bytes, t->n) : at;
}
