/* Detokenization, of whole lists and as a stream. */
#include "common/tokenizer/tokenizer_impl.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD";

/* The text of an id in its vocabulary; NULL: it adds none. */
static const char *text_of(const struct tokenizer *t, uint32_t id, bool skip_special, size_t *n)
{
    if (skip_special && added_special(&t->added, id))
        return NULL;
    const char *s = vocab_text(&t->added.text, id, n);
    return s ? s : vocab_text(&t->vocab, id, n);
}

/* Decodes the ids and appends the text to `out`; their texts go through w->in. */
static void decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
                   struct decode_work *w, struct buf *out)
{
    struct strings *in = &w->in;
    strings_reset(in);
    for (size_t i = 0, len; i < n; i++) {
        const char *s = text_of(t, ids[i], skip_special, &len);
        if (!s)
            continue;
        buf_add(&in->text, s, len);
        strings_close(in);
    }
    decoder_run(&t->decoder, w, out);
}

void tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
                      struct buf *out)
{
    struct decode_work w = {0};
    decode(t, ids, n, skip_special, &w, out);
    decode_work_free(&w);
}

void tokenizer_join(const struct tokenizer *t, const struct tok_text *tokens, size_t n,
                    struct buf *out)
{
    struct decode_work w = {0};
    for (size_t i = 0; i < n; i++) {
        buf_add(&w.in.text, tokens[i].p, tokens[i].n);
        strings_close(&w.in);
    }
    decoder_run(&t->decoder, &w, out);
    decode_work_free(&w);
}

bool tokenizer_marks_inner(const struct tokenizer *t)
{
    return t->kind == MODEL_WORDPIECE ? t->wordpiece.marked
                                      : t->kind == MODEL_BPE && t->bpe.prefix && *t->bpe.prefix;
}

/* ---------------------------------------------------------------- streaming
 *
 * The window holds recent ids: the first `read` were emitted and serve as left context. The text of
 * the window beyond the text of that context is new, and is emitted once it ends in a complete
 * character (text-generation-inference's rule). */
enum { CONTEXT = 5, HELD_MAX = 64 };

struct detok_work {
    struct decode_work run;
    struct buf text, cut;
};

int detok_init(struct detok *d, const struct tokenizer *t, const uint32_t *context, size_t n,
               bool skip_special)
{
    size_t keep = n < CONTEXT ? n : CONTEXT;
    *d = (struct detok){.t = t, .skip_special = skip_special, .cap = 32};
    d->ids = malloc(d->cap * sizeof *d->ids);
    d->work = calloc(1, sizeof *d->work);
    if (!d->ids || !d->work) {
        detok_free(d);
        return -1;
    }
    if (keep)
        memcpy(d->ids, context + n - keep, keep * sizeof *d->ids);
    d->n = d->read = (uint32_t)keep;
    struct buf *b = &d->work->text;
    decode(t, d->ids, keep, skip_special, &d->work->run, b);
    if (b->oom) { /* with a shorter context its end would be new text */
        detok_free(d);
        return -1;
    }
    d->seen = utf8_count(b->p ? b->p : "", b->len);
    return 0;
}

void detok_free(struct detok *d)
{
    if (d->work) {
        decode_work_free(&d->work->run);
        buf_free(&d->work->text);
        buf_free(&d->work->cut);
    }
    free(d->work);
    free(d->ids);
    *d = (struct detok){0};
}

/* Decodes the first `n` ids of the window into `b`. */
static void window(struct detok *d, uint32_t n, struct buf *b)
{
    buf_reset(b);
    decode(d->t, d->ids, n, d->skip_special, &d->work->run, b);
}

/* Length in bytes of the first `chars` characters. */
static size_t bytes_of(const struct buf *b, size_t chars)
{
    size_t at = 0, len;
    for (; chars && at < b->len; chars--, at += len)
        utf8_decode(b->p + at, b->len - at, &len);
    return at;
}

/* The first `n` ids of the window were emitted: the previously held ones become the context. */
static void advance(struct detok *d, uint32_t n, struct buf *out)
{
    memmove(d->ids, d->ids + d->read, (d->n - d->read) * sizeof *d->ids);
    d->n -= d->read;
    d->read = n - d->read;
    window(d, d->read, &d->work->cut);
    d->seen = utf8_count(d->work->cut.p ? d->work->cut.p : "", d->work->cut.len);
    out->oom |= d->work->cut.oom;
}

static bool ends_whole(const struct buf *b)
{
    return b->len < 3 || memcmp(b->p + b->len - 3, replacement, 3) != 0;
}

/* Too much is held back (a run of invalid bytes): emits the older part, cut where its text is a
 * prefix of the whole. */
static void let_go(struct detok *d, struct buf *out)
{
    const struct buf *all = &d->work->text;
    struct buf *cut = &d->work->cut;
    for (uint32_t n = d->n - 4; n > d->n - 12; n--) {
        window(d, n, cut);
        out->oom |= cut->oom;
        if (cut->len > all->len || !cut->len != !all->len ||
            (cut->len && memcmp(cut->p, all->p, cut->len) != 0))
            continue;
        size_t from = bytes_of(cut, d->seen);
        buf_add(out, cut->p ? cut->p + from : "", cut->len - from);
        advance(d, n, out);
        return;
    }
}

static int reserve(struct detok *d)
{
    if (d->n < d->cap)
        return 0;
    uint32_t cap = d->cap * 2, *ids = realloc(d->ids, cap * sizeof *ids);
    if (!ids)
        return -1;
    d->ids = ids;
    d->cap = cap;
    return 0;
}

void detok_push(struct detok *d, uint32_t id, struct buf *out)
{
    struct buf *b = &d->work->text;
    size_t unused;
    if (!text_of(d->t, id, d->skip_special, &unused)) /* a run of them would fill the window */
        return;
    if (reserve(d) != 0) {
        out->oom = true;
        return;
    }
    d->ids[d->n++] = id;
    window(d, d->n, b);
    out->oom |= b->oom;
    size_t from = bytes_of(b, d->seen);
    if (b->len > from && ends_whole(b)) {
        buf_add(out, b->p + from, b->len - from);
        advance(d, d->n, out);
    } else if (d->n - d->read > HELD_MAX) {
        let_go(d, out);
    }
}

void detok_finish(struct detok *d, struct buf *out)
{
    struct buf *b = &d->work->text;
    window(d, d->n, b);
    out->oom |= b->oom;
    size_t from = bytes_of(b, d->seen);
    buf_add(out, b->p ? b->p + from : "", b->len - from);
    advance(d, d->n, out);
}
