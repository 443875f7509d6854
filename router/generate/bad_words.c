#include "router/generate/bad_words.h"
#include "common/template/space.h"
#include <string.h>

struct word_spelling {
    const uint32_t *ids;
    uint32_t n;
};

static size_t n_bytes(const struct word_spelling *s) { return s->n * sizeof(*s->ids); }

static int spell(const struct validator *v, const char *text, struct tok_scratch **scratch,
                 struct arena *a, struct word_spelling *out, struct err *e)
{
    if (encode(v, text, strlen(text), 0, 0, scratch, a, &out->ids, &out->n, e) != 0)
        return -1;
    for (uint32_t i = 0; i < out->n; i++)
        if (out->ids[i] >= v->vocab_size)
            return err_set(e, ERR_VALIDATION,
                           "Input validation error: `bad_words`: token id %u is outside the "
                           "vocabulary of %u",
                           out->ids[i], v->vocab_size);
    return 0;
}

/* Tokenizes the one or two spellings of a word. Returns their number; -1: an error. */
static int spell_both(const struct validator *v, const char *word, struct tok_scratch **scratch,
                      struct arena *a, struct word_spelling out[2], struct err *e)
{
    const char *bare = word + space_prefix(word, strlen(word));
    size_t n = strlen(bare);
    char *blank = ARENA_NEW(a, char, n + 2);
    if (!blank)
        return err_nomem(e);
    blank[0] = ' ';
    memcpy(blank + 1, bare, n + 1);
    if (spell(v, bare, scratch, a, &out[0], e) || spell(v, blank, scratch, a, &out[1], e))
        return -1;
    if (!out[0].n)
        return err_set(e, ERR_VALIDATION,
                       "Input validation error: `bad_words` cannot contain an empty word, or white "
                       "space alone");
    bool same = out[1].n == out[0].n && !memcmp(out[1].ids, out[0].ids, n_bytes(&out[0]));
    return same ? 1 : 2;
}

static int join(const struct word_spelling *s, uint32_t n, struct arena *a, struct bad_words *out,
                struct err *e)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += s[i].n;
    uint32_t *ids = ARENA_NEW(a, uint32_t, total), *lengths = ARENA_NEW(a, uint32_t, n);
    if (!ids || !lengths)
        return err_nomem(e);
    *out = (struct bad_words){ids, lengths, (uint32_t)total, n};
    for (uint32_t i = 0; i < n; ids += s[i++].n) {
        memcpy(ids, s[i].ids, n_bytes(&s[i]));
        lengths[i] = s[i].n;
    }
    return 0;
}

int bad_words_encode(const struct validator *v, const struct ask *q, struct tok_scratch **scratch,
                     struct arena *a, struct bad_words *out, struct err *e)
{
    *out = (struct bad_words){0};
    if (!q->n_bad_words)
        return 0;
    struct word_spelling *s = ARENA_NEW(a, struct word_spelling, 2 * (size_t)q->n_bad_words);
    uint32_t n = 0;
    if (!s)
        return err_nomem(e);
    for (uint32_t i = 0; i < q->n_bad_words; i++) {
        int more = spell_both(v, q->bad_words[i], scratch, a, s + n, e);
        if (more < 0)
            return -1;
        n += (uint32_t)more;
    }
    return join(s, n, a, out, e);
}
