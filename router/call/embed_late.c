/* embed_late.c - queries and documents of late interaction, as PyLate and sentence-transformers 6
 * tokenize them. */
#include "router/call/embed_impl.h"
#include <string.h>

/* True if the tokenizer makes one token of the text by itself. */
static bool is_one(const struct encoding *x, const char *text, size_t n, int64_t id)
{
    struct tok_part p;
    return embed_ids(x, text, n, 0, &p) == 0 && p.n == 1 && p.id[0] == id;
}

/* The text behind its prompt. A prompt, or its first word, that is a token of the vocabulary is
 * that token, also where the tokenizer would divide it ([unused0]). */
static int behind(const struct encoding *x, const char *prompt, const struct text_input *in,
                  struct tok_part *out)
{
    const struct tokenizer *t = x->c->edge->tokenizer;
    const size_t all = strlen(prompt), first = strcspn(prompt, " \t\n");
    char *both = arena_alloc(&x->c->arena, all + in->n + 1, 1);
    char *word = arena_strdup(&x->c->arena, prompt, first);
    if (!both || !word)
        return err_nomem(x->e);
    memcpy(both, prompt, all + 1);
    memcpy(both + all, in->text, in->n + 1);
    const int64_t whole = all ? tokenizer_id(t, prompt) : -1;
    const int64_t id = whole >= 0 || !first ? whole : tokenizer_id(t, word);
    const size_t n = whole >= 0 ? all : first;
    if (id < 0 || is_one(x, prompt, n, id))
        return embed_ids(x, both, all + in->n, 0, out);
    struct tok_part rest;
    if (embed_ids(x, both + n, all + in->n - n, 0, &rest))
        return -1;
    uint32_t *ids = ARENA_NEW(&x->c->arena, uint32_t, rest.n + (size_t)1);
    if (!ids)
        return err_nomem(x->e);
    ids[0] = (uint32_t)id;
    memcpy(ids + 1, rest.id, rest.n * sizeof(*ids));
    *out = (struct tok_part){ids, rest.n + 1};
    return 0;
}

/* Fills a query up. */
static int fill(const struct encoding *x, struct embed_text *t)
{
    const struct sentence_late *l = &x->c->edge->sentence.late;
    const struct tokenizer *k = x->c->edge->tokenizer;
    const char *mask = tokenizer_special(k, "mask_token"), *end = tokenizer_special(k, "eos_token");
    if (t->n < l->filled && !l->attends)
        t->attended = t->n;
    return embed_fill(x, t, l->filled,
                      l->token ? l->token
                      : mask   ? mask
                               : end,
                      "token that fills queries");
}

/* A text of a model whose documents are images: a query with its fillers, or a document as it is.
 */
static int visual(const struct encoding *x, const char *prompt, const struct text_input *in,
                  struct embed_text *out)
{
    const struct visual_form *v = x->c->edge->sentence.late.visual;
    const struct tokenizer *t = x->c->edge->tokenizer;
    const char *pad = tokenizer_special(t, "pad_token"), *bos = tokenizer_special(t, "bos_token");
    const char *filler = v->filler ? v->filler : pad;
    struct tok_part a;
    struct buf b = BUF_INIT;
    buf_fmt(&b, "%s%s", v->bare && bos ? bos : "", prompt);
    buf_add(&b, in->text, in->n);
    for (int i = 0; in->late == LATE_QUERY && i < VISUAL_FILLERS; i++)
        buf_str(&b, filler ? filler : "");
    buf_str(&b, in->late == LATE_QUERY ? v->end : "");
    const int rc = b.oom ? err_nomem(x->e) : embed_ids(x, b.p ? b.p : "", b.len, 0, &a);
    buf_free(&b);
    if (rc || !v->bare)
        return rc ? rc : embed_frame(x, &a, NULL, out);
    if (embed_fit(x, &a, NULL, 0))
        return -1;
    *out = (struct embed_text){.ids = a.id, .n = a.n};
    return 0;
}

int embed_late(const struct encoding *x, const struct text_input *in, struct embed_text *out)
{
    const struct sentence *s = &x->c->edge->sentence;
    const bool query = in->late == LATE_QUERY;
    const char *prompt = sentence_prompt(s, query ? "query" : "document");
    const uint32_t most = query ? s->late.query_length : s->late.document_length;
    struct texts_ask cut = *x->q;
    struct encoding own = *x;
    struct tok_part a;
    if (s->late.visual)
        return visual(x, prompt ? prompt : "", in, out);
    own.q = &cut;
    if (most && (!own.most || most < own.most)) {
        own.most = most;
        cut.truncate = true;
    }
    if (behind(x, prompt ? prompt : "", in, &a) || embed_frame(&own, &a, NULL, out))
        return -1;
    return query ? fill(x, out) : 0;
}
