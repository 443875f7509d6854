#include "router/generate/encoder_text.h"
#include "common/digest.h"
#include <stdio.h>
#include <string.h>

#define REFUSE(...) return err_set(e, ERR_VALIDATION, "Input validation error: " __VA_ARGS__)

/* ---------------------------------------------------------------- languages */

/* Number of letters from `first` to `last` at the start of s. */
static size_t letters(const char *s, char first, char last)
{
    size_t n = 0;
    while (s[n] >= first && s[n] <= last)
        n++;
    return n;
}

/* True for "__ceb__", "fr_XX" and "zho_Hans". */
static bool names_language(const char *s)
{
    const bool marked = strncmp(s, "__", 2) == 0;
    if (marked)
        s += 2;
    const size_t n = letters(s, 'a', 'z');
    if (n < 2 || n > 3)
        return false;
    s += n;
    if (marked)
        return strcmp(s, "__") == 0;
    if (*s != '_')
        return false;
    const size_t upper = letters(++s, 'A', 'Z');
    const size_t lower = letters(s + upper, 'a', 'z');
    return !s[upper + lower] && ((upper == 2 && lower == 0) || (upper == 1 && lower == 3));
}

static bool is_language(const struct tokenizer *t, uint32_t id)
{
    const char *token = tokenizer_token(t, id);
    return token && tokenizer_is_special(t, id) && names_language(token);
}

/* The token of a language, by its own text or by the letters within "__". */
static int language(const struct validator *v, const char *key, const char *word, uint32_t *out,
                    struct err *e)
{
    char marked[16];
    snprintf(marked, sizeof(marked), "__%.8s__", word);
    const char *const forms[] = {word, marked};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const int64_t id = tokenizer_id(v->tokenizer, forms[i]);
        if (id >= 0 && is_language(v->tokenizer, (uint32_t)id)) {
            *out = (uint32_t)id;
            return 0;
        }
    }
    REFUSE("`%s`: this model has no token for the language `%.60s`", key, word);
}

int answer_first(const struct validator *v, const struct ask *q, struct opt_u64 *first,
                 struct err *e)
{
    uint32_t id = 0;
    *first = q->forced_bos;
    if (!v->has_encoder && (first->set || q->src_lang || q->tgt_lang))
        REFUSE("`%s` needs a model with an encoder", first->set    ? "forced_bos_token_id"
                                                     : q->src_lang ? "src_lang"
                                                                   : "tgt_lang");
    if (first->set && q->tgt_lang)
        REFUSE("`tgt_lang` and `forced_bos_token_id` both choose the first token");
    if (first->set && first->v >= v->vocab_size)
        REFUSE("`forced_bos_token_id`: %llu is outside the vocabulary of %u",
               (unsigned long long)first->v, v->vocab_size);
    if (q->tgt_lang) {
        if (language(v, "tgt_lang", q->tgt_lang, &id, e) != 0)
            return -1;
        *first = (struct opt_u64){true, id};
    }
    if (v->has_encoder && !first->set && v->defaults)
        *first = v->defaults->forced_bos_token_id;
    if (first->set && first->v >= v->vocab_size)
        REFUSE("`forced_bos_token_id` of the model is %llu: it has %u tokens",
               (unsigned long long)first->v, v->vocab_size);
    return 0;
}

int text_language(const struct validator *v, const struct ask *q, struct arena *a,
                  const uint32_t **ids, uint32_t n, struct err *e)
{
    uint32_t id, at = 0;
    if (!q->src_lang)
        return 0;
    if (language(v, "src_lang", q->src_lang, &id, e) != 0)
        return -1;
    if (n && !is_language(v->tokenizer, (*ids)[0]))
        at = n - 1; /* behind the text and its end: the first mBART */
    if (!n || !is_language(v->tokenizer, (*ids)[at]))
        REFUSE("`src_lang`: the tokenizer of this model puts no language beside a text");
    uint32_t *copy = ARENA_NEW(a, uint32_t, n);
    if (!copy)
        return err_nomem(e);
    memcpy(copy, *ids, n * sizeof(*copy));
    copy[at] = id;
    *ids = copy;
    return 0;
}

/* ---------------------------------------------------------------- the prompt */

int move_to_encoder(const struct validator *v, struct opt_u64 first, struct arena *a,
                    struct gen_request *r, struct err *e)
{
    const struct gen_medium *seen = r->n_media ? &r->media[0] : NULL;
    struct gen_medium *m = ARENA_NEW(a, struct gen_medium, 1);
    uint32_t *start = ARENA_NEW(a, uint32_t, 2);
    if (!m || !start)
        return err_nomem(e);
    if (r->n_media > 1)
        REFUSE("this model reads one image. Given: %u", r->n_media);
    start[0] = v->decoder_start;
    start[1] = (uint32_t)first.v;
    *m = (struct gen_medium){.ids = r->ids,
                             .n_ids = r->n_ids,
                             .n = 1,
                             .digest = digest_bytes(r->ids, r->n_ids * sizeof(*r->ids))};
    if (seen) {
        const uint64_t both[] = {m->digest, seen->digest};
        m->bytes = seen->bytes;
        m->n_bytes = seen->n_bytes;
        m->type = seen->type;
        m->digest = digest_bytes(both, sizeof(both));
    }
    r->ids = start;
    r->n_ids = first.set ? 2 : 1;
    r->media = m;
    r->n_media = 1;
    return 0;
}
