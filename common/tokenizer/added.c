#include "common/tokenizer/added.h"
#include "common/tokenizer/unicode.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

void added_free(struct added *a)
{
    vocab_free(&a->text);
    trie_free(&a->raw);
    trie_free(&a->normal);
    free(a->v);
    free(a->special);
    *a = (struct added){0};
}

/* ---------------------------------------------------------------- loading */
/* The id in the file is only a hint: the model's own id takes precedence, and unknown tokens are
 * numbered after all others. */
static uint32_t choose_id(const struct added *a, const struct vocab *model, const char *s, size_t n)
{
    uint32_t id = vocab_find(&a->text, s, n);
    if (id == NO_ID)
        id = vocab_find(model, s, n);
    if (id != NO_ID)
        return id;
    return a->text.size > model->count ? a->text.size : model->count;
}

static int read_token(struct added *a, const cJSON *item, const struct vocab *model, struct err *e)
{
    const char *s = json_str(item, "content", NULL);
    if (!s)
        return err_set(e, ERR_VALIDATION, "content: expected a string");
    size_t n = strlen(s);
    if (!n)
        return 0;
    struct added_token *t = &a->v[a->n];
    t->special = json_bool(item, "special", false);
    t->single_word = json_bool(item, "single_word", false);
    t->lstrip = json_bool(item, "lstrip", false);
    t->rstrip = json_bool(item, "rstrip", false);
    t->normalized = json_bool(item, "normalized", !t->special);
    t->id = choose_id(a, model, s, n);
    if (vocab_put(&a->text, s, n, t->id, e) != 0)
        return -1;
    a->n++;
    if (n > a->longest)
        a->longest = n;
    return 0;
}

static int mark_special(struct added *a, struct err *e)
{
    a->special_ids = a->text.size;
    if (!(a->special = calloc(a->special_ids / 8 + 1, 1)))
        return err_nomem(e);
    for (uint32_t i = 0; i < a->n; i++)
        if (a->v[i].special)
            a->special[a->v[i].id / 8] |= (uint8_t)(1u << a->v[i].id % 8);
    return 0;
}

/* The text of a token after normalization. */
static int normalized(const struct steps *normalizer, struct step_work *w, const char *s, size_t n,
                      struct err *e)
{
    struct text *t = work_text(w);
    w->s = 0;
    w->spans[0].n = 0;
    t->p = s;
    t->n = (uint32_t)n;
    t->mapped = false;
    if (spans_add(&w->spans[0], 0, t->n, NO_ID) != 0)
        return err_nomem(e);
    return steps_run(normalizer, w, e);
}

/* Special tokens first: of equal texts the earlier entry is found. */
static int fill_tries(struct added *a, const struct steps *normalizer, struct err *e)
{
    struct step_work w = {0};
    int rc = 0;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; rc == 0 && i < a->n; i++) {
            const struct added_token *t = &a->v[i];
            size_t n;
            const char *s = vocab_text(&a->text, t->id, &n);
            if (t->special == (pass > 0))
                continue;
            if (!t->normalized) {
                rc = trie_add(&a->raw, s, n, i) == 0 ? 0 : err_nomem(e);
            } else if ((rc = normalized(normalizer, &w, s, n, e)) == 0 && work_text(&w)->n) {
                const struct text *x = work_text(&w);
                rc = trie_add(&a->normal, x->p, x->n, i) == 0 ? 0 : err_nomem(e);
            }
        }
    step_work_free(&w);
    return rc;
}

int added_load(struct added *a, const cJSON *j, const struct vocab *model,
               const struct steps *normalizer, struct err *e)
{
    const cJSON *item;
    unsigned i = 0;
    if (!j)
        return 0;
    if (!cJSON_IsArray(j))
        return err_set(e, ERR_VALIDATION, "added_tokens: expected a list");
    if (!(a->v = calloc((size_t)cJSON_GetArraySize(j) + 1, sizeof *a->v)))
        return err_nomem(e);
    cJSON_ArrayForEach(item, j)
    {
        if (read_token(a, item, model, e) != 0)
            return err_wrap(e, "added_tokens[%u]", i);
        i++;
    }
    if (mark_special(a, e) != 0 || fill_tries(a, normalizer, e) != 0)
        return err_wrap(e, "added_tokens");
    return 0;
}

/* ---------------------------------------------------------------- cutting */
static uint32_t before(const char *s, uint32_t at, uint32_t *start)
{
    size_t len;
    *start = at - 1;
    while (*start > 0 && ((unsigned char)s[*start] & 0xC0) == 0x80)
        --*start;
    return utf8_decode(s + *start, at - *start, &len);
}

static bool alone(const char *s, uint32_t n, uint32_t start, uint32_t end)
{
    uint32_t at;
    size_t len;
    if (start > 0 && uni_word(before(s, start, &at)))
        return false;
    return end >= n || !uni_word(utf8_decode(s + end, n - end, &len));
}

static int cut_span(const struct added *a, const struct trie *t, const char *text,
                    const struct span *sp, struct spans *out)
{
    const char *s = text + sp->start;
    uint32_t n = sp->end - sp->start, done = 0, len = 0, base = sp->start;
    size_t clen;
    for (uint32_t at = 0; at < n;) {
        uint32_t i = TRIE_NONE;                         /* index in a->v */
        if (t->root[(unsigned char)s[at]] != TRIE_NONE) /* fast path: few bytes begin a token */
            i = trie_longest(t, s + at, n - at, &len);
        if (i == TRIE_NONE) {
            at++;
            continue;
        }
        const struct added_token *x = &a->v[i];
        uint32_t start = at, stop = at + len, from;
        at = stop;
        if (x->single_word && !alone(s, n, start, stop))
            continue;
        if (x->lstrip && start < done)
            start = done;
        while (x->lstrip && start > done && uni_white(before(s, start, &from)))
            start = from;
        if (x->rstrip && stop < done) /* the previous token has already taken this white space */
            stop = done;
        for (; x->rstrip && stop < n; stop += len) {
            if (!uni_white(utf8_decode(s + stop, n - stop, &clen)))
                break;
            len = (uint32_t)clen;
        }
        if (spans_add(out, base + done, base + start, NO_ID) != 0 ||
            spans_add(out, base + start, base + stop, x->id) != 0)
            return -1;
        done = stop;
    }
    return done < n ? spans_add(out, base + done, base + n, NO_ID) : 0;
}

int added_cut(const struct added *a, const struct trie *t, struct step_work *w, struct err *e)
{
    const struct spans *in = &w->spans[w->s];
    struct spans *out = &w->spans[!w->s];
    if (trie_empty(t))
        return 0;
    out->n = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const struct span *sp = &in->v[i];
        int rc = sp->id != NO_ID ? spans_add(out, sp->start, sp->end, sp->id)
                                 : cut_span(a, t, work_text(w)->p, sp, out);
        if (rc != 0)
            return err_nomem(e);
    }
    w->s = !w->s;
    return 0;
}
