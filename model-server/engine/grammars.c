#include "model-server/engine/grammars.h"
#include "common/buf.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Unused constraints that stay compiled, and the length of their texts: a compiled text takes about
 * 25 times its length. Every rank keeps the same ones. */
enum { KEPT = 64, KEPT_TEXT = 1 << 20 };

struct kept {
    struct constraint *c;
    enum constraint_kind kind;
    struct constraint_front front;
    char *text;
    uint64_t used;
};

struct grammars {
    const struct tokenizer *tok;
    uint32_t vocab, n_eos, *eos;
    struct buf bytes;
    struct token_text *text; /* [vocab]; NULL: not built yet */
    struct token_set *tokens;
    struct kept kept[KEPT];
    uint64_t clock;
};

struct grammars *grammars_new(const struct tokenizer *tok, uint32_t vocab, const uint32_t *eos,
                              uint32_t n_eos)
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
    return g;
}

static void drop(struct kept *k)
{
    constraint_unref(k->c);
    free(k->text);
    *k = (struct kept){0};
}

void grammars_free(struct grammars *g)
{
    if (!g)
        return;
    for (int i = 0; i < KEPT; i++)
        drop(&g->kept[i]);
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

static bool is_of(const struct kept *k, const struct grammar_spec *spec)
{
    return k->c && k->kind == spec->kind && k->front.reasoning == spec->front.reasoning &&
           k->front.marks == spec->front.marks && !strcmp(k->text, spec->text);
}

/* Drops those that were used the longest ago until a text of n bytes may be added. */
static void make_room(struct grammars *g, size_t n)
{
    for (;;) {
        struct kept *oldest = NULL;
        size_t all = n;
        for (struct kept *k = g->kept; k < g->kept + KEPT; k++) {
            if (!k->c)
                continue;
            all += strlen(k->text);
            oldest = !oldest || k->used < oldest->used ? k : oldest;
        }
        if (!oldest || all <= KEPT_TEXT)
            return;
        drop(oldest);
    }
}

/* The entry of `spec`, else the one that was used the longest ago. */
static struct kept *find(struct grammars *g, const struct grammar_spec *spec)
{
    struct kept *oldest = g->kept;
    for (struct kept *k = g->kept; k < g->kept + KEPT; k++) {
        if (is_of(k, spec))
            return k;
        oldest = k->used < oldest->used ? k : oldest;
    }
    return oldest;
}

struct constraint *grammars_get(struct grammars *g, const struct grammar_spec *spec, struct err *e)
{
    if (!g->text && lay_out(g, e))
        return NULL;
    struct kept *k = find(g, spec);
    if (is_of(k, spec) && !constraint_full(k->c)) { /* requests that run keep a full one */
        k->used = ++g->clock;
        return constraint_ref(k->c);
    }
    char *text = strdup(spec->text);
    if (!text)
        return err_nomem(e), NULL;
    struct constraint *c = constraint_order(spec->front, spec->kind, text, strlen(text), e);
    if (!c) {
        free(text);
        return NULL;
    }
    drop(k);
    make_room(g, strlen(text));
    *k = (struct kept){c, spec->kind, spec->front, text, ++g->clock};
    return constraint_ref(c);
}

const struct token_set *grammars_tokens(const struct grammars *g) { return g->tokens; }

constraint_state grammars_next(const struct grammars *g, struct constraint *c, constraint_state at,
                               uint32_t id)
{
    if (id >= g->vocab)
        return CONSTRAINT_DEAD;
    const struct token_text *t = &g->text[id];
    return t->n ? constraint_next(c, at, t->bytes, t->n) : at;
}
