/* Queries and encoding with a loaded tokenizer. */
#include "common/tokenizer/byte_chars.h"
#include "common/tokenizer/tokenizer_impl.h"
#include "common/tokenizer/unicode.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 1 << 30 };

uint32_t tokenizer_vocab_size(const struct tokenizer *t)
{
    return t->vocab.size > t->added.text.size ? t->vocab.size : t->added.text.size;
}

const char *tokenizer_token(const struct tokenizer *t, uint32_t id)
{
    size_t n;
    const char *s = vocab_text(&t->added.text, id, &n);
    return s ? s : vocab_text(&t->vocab, id, &n);
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id)
{
    return added_special(&t->added, id);
}

int64_t tokenizer_id(const struct tokenizer *t, const char *token)
{
    size_t n = strlen(token);
    uint32_t id = vocab_find(&t->added.text, token, n);
    if (id == NO_ID)
        id = vocab_find(&t->vocab, token, n);
    return id == NO_ID ? -1 : (int64_t)id;
}

const char *tokenizer_special(const struct tokenizer *t, const char *name)
{
    struct err unknown = ERR_INIT;
    if (!(t = tokenizer_whole(t, &unknown)))
        return NULL;
    const cJSON *const in[] = {t->config, t->special_map};
    for (int i = 0; i < 2; i++) {
        const char *s = json_str(in[i], name, NULL);
        if (!s)
            s = json_str(json_get(in[i], name), "content", NULL);
        if (s)
            return s;
    }
    return NULL;
}

void tok_ids_free(struct tok_ids *ids)
{
    free(ids->id);
    free(ids->at);
    free(ids->word);
    *ids = (struct tok_ids){0};
}

void tok_scratch_free(struct tok_scratch *s)
{
    if (!s)
        return;
    step_work_free(&s->steps);
    bpe_work_free(s->bpe);
    unigram_work_free(s->unigram);
    free(s);
}

/* ---------------------------------------------------------------- output */
int sink_grow(struct sink *k)
{
    struct tok_ids *o = k->out;
    uint32_t cap = o->cap ? o->cap * 2 : 64;
    uint32_t *id = realloc(o->id, cap * sizeof *id);
    if (id)
        o->id = id;
    struct tok_offset *at = k->offsets ? realloc(o->at, cap * sizeof *at) : NULL;
    if (at)
        o->at = at;
    uint32_t *word = k->offsets ? realloc(o->word, cap * sizeof *word) : NULL;
    if (word)
        o->word = word;
    if (!id || (k->offsets && (!at || !word))) {
        k->oom = true;
        return -1;
    }
    o->cap = cap;
    return 0;
}

static void put_special(struct sink *k, const uint32_t *id, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        sink_put(k, id[i], 0, 0);
        if (!k->oom && k->offsets)
            k->out->at[k->out->n - 1] = (struct tok_offset){0, 0};
    }
}

/* Number of white space characters at one end of s[0..n). Byte-level text shows a space as U+0120;
 * other white space is visible. */
static uint32_t margin(const char *s, size_t n, bool at_end)
{
    uint32_t count = 0;
    for (size_t done = 0, len; done < n; done += len, count++) {
        size_t at = at_end ? n - done - 1 : done;
        while (at_end && at > 0 && ((unsigned char)s[at] & 0xC0) == 0x80)
            at--;
        uint32_t cp = utf8_decode(s + at, n - at, &len);
        if (!uni_white(cp) && cp != byte_to_char(' '))
            break;
    }
    return count;
}

/* Trims a token's offsets in the text `s` by the white space at the ends of the token's text. */
static void trim(const struct post *p, struct tok_offset *o, const char *s, const char *token,
                 size_t n, bool first)
{
    uint32_t lead = margin(token, n, false), trail = margin(token, n, true);
    if (p->keep_first && lead == 1 && (first || o->start == 0))
        lead = 0; /* a single space may be the prefix; further ones were in the text */
    for (; lead && o->start < o->end; lead--) {
        size_t len = utf8_valid_len(s + o->start, o->end - o->start);
        o->start += len ? (uint32_t)len : 1;
    }
    for (; trail && o->end > o->start; trail--) {
        o->end--;
        for (int i = 0; i < 3 && o->end > o->start && ((unsigned char)s[o->end] & 0xC0) == 0x80;
             i++)
            o->end--;
    }
}

static void trim_tokens(const struct tokenizer *t, struct sink *k, const struct span *sp,
                        const char *original, uint32_t from, uint32_t first)
{
    for (uint32_t i = from; i < k->out->n; i++) {
        size_t n = sp->end - sp->start;
        const char *s = k->text->p + sp->start;
        if (sp->id == NO_ID)
            s = vocab_text(&t->vocab, k->out->id[i], &n);
        trim(&t->post, &k->out->at[i], original, s ? s : "", n, i == first);
    }
}

/* ---------------------------------------------------------------- encoding */
/* Ensures valid UTF-8. Returns 1 if the text was rewritten (to text[0]). */
static int take_text(struct tok_scratch *x, const char *s, size_t n)
{
    struct step_work *w = &x->steps;
    struct text *to = &w->text[0];
    w->t = w->s = 0;
    w->spans[0].n = 0;
    to->mapped = false;
    to->p = s;
    to->n = (uint32_t)n;
    if (!utf8_valid(s, n)) {
        struct text raw = {.p = s, .n = (uint32_t)n};
        struct rewrite r = {&raw, to, 0, (uint32_t)n, 0};
        buf_reset(&to->own);
        to->mapped = w->offsets;
        rewrite_mend(&r);
        to->p = to->own.p;
        to->n = (uint32_t)to->own.len;
        if (to->own.oom)
            return -1;
    }
    return spans_add(&w->spans[0], 0, to->n, NO_ID);
}

static int encode_span(const struct tokenizer *t, struct tok_scratch *x, struct sink *k,
                       const struct span *sp, const char *original, uint32_t first, struct err *e)
{
    uint32_t from = k->out->n;
    int rc = 0;
    if (sp->id != NO_ID)
        sink_put(k, sp->id, sp->start, sp->end);
    else if (t->kind == MODEL_BPE)
        rc = bpe_encode(&t->bpe, x->bpe, k, sp->start, sp->end, e);
    else if (t->kind == MODEL_UNIGRAM)
        rc = unigram_encode(&t->unigram, &x->unigram, k, sp->start, sp->end, e);
    else
        rc = wordpiece_encode(&t->wordpiece, k, sp->start, sp->end, e);
    if (rc == 0 && k->offsets && t->post.trim && !k->oom)
        trim_tokens(t, k, sp, original, from, first);
    return rc;
}

static struct tok_scratch *scratch_for(const struct tokenizer *t, struct tok_scratch **scratch)
{
    if (!*scratch && !(*scratch = calloc(1, sizeof **scratch)))
        return NULL;
    struct tok_scratch *x = *scratch;
    if (x->stamp != t->stamp) {
        bpe_work_free(x->bpe);
        x->bpe = NULL;
        x->stamp = t->stamp;
    }
    if (t->kind == MODEL_BPE && !x->bpe && !(x->bpe = bpe_work_new()))
        return NULL;
    return x;
}

static int drop_guards(struct step_work *w, struct err *e)
{
    static char guard[] = TOK_GUARD, nothing[] = "";
    struct step drop = {.kind = STEP_REPLACE,
                        .find = FIND_TEXT,
                        .what = guard,
                        .what_n = sizeof(guard) - 1,
                        .text = nothing};
    const struct steps s = {.v = &drop, .n = 1};
    return steps_run(&s, w, e);
}

int tokenizer_encode(const struct tokenizer *t, const char *s, size_t n, unsigned flags,
                     struct tok_scratch **scratch, struct tok_ids *out, struct err *e)
{
    if (!(t = tokenizer_whole(t, e)))
        return -1;
    struct tok_scratch *x = scratch_for(t, scratch);
    if (!x)
        return err_nomem(e);
    if (n > MAX_TEXT)
        return err_set(e, ERR_VALIDATION, "a text of %zu bytes is too long to tokenize", n);
    struct step_work *w = &x->steps;
    struct sink k = {.out = out, .offsets = flags & TOK_OFFSETS};
    w->offsets = k.offsets || t->needs_offsets;
    out->n = 0;
    if (k.offsets != (out->at != NULL)) /* the arrays grow together */
        tok_ids_free(out);
    if (take_text(x, s, n) != 0)
        return err_nomem(e);
    if (added_cut(&t->added, &t->added.raw, w, e) != 0 || steps_run(&t->normalizer, w, e) != 0 ||
        added_cut(&t->added, &t->added.normal, w, e) != 0 ||
        (flags & TOK_GUARDED && drop_guards(w, e) != 0) || steps_run(&t->pre, w, e) != 0)
        return -1;
    k.text = work_text(w);
    if (flags & TOK_ADD_SPECIAL)
        put_special(&k, t->post.before, t->post.before_n);
    const struct spans *spans = work_spans(w);
    uint32_t first = out->n;
    for (uint32_t i = 0; i < spans->n; i++) {
        k.word = i;
        if (encode_span(t, x, &k, &spans->v[i], s, first, e) != 0)
            return -1;
    }
    if (flags & TOK_ADD_SPECIAL)
        put_special(&k, t->post.after, t->post.after_n);
    return k.oom ? err_nomem(e) : 0;
}
