/* Splitting steps: the matches, and the side on which each falls. */
#include "common/tokenizer/step.h"
#include "common/tokenizer/unicode.h"
#include "common/utf8.h"
#include <string.h>

struct finder finder(const struct step *st, const char *s, size_t n, void *match)
{
    struct finder f = {.st = st, .s = s, .n = n};
    if (st->find == FIND_REGEX)
        f.it = regex_iter(st->regex, s, n, match);
    return f;
}

static bool wanted(const struct step *st, uint32_t cp)
{
    switch (st->find) {
    case FIND_CHAR:
        return cp == st->ch;
    case FIND_NUMERIC:
        return uni_numeric(cp);
    case FIND_WHITE:
        return uni_white(cp);
    default:
        return uni_punct(cp);
    }
}

/* \w+|[^\w\s]+ */
static int next_word(struct finder *f, size_t *start, size_t *end)
{
    size_t len;
    uint32_t cp = 0;
    for (; f->at < f->n; f->at += len)
        if (!uni_white(cp = utf8_decode(f->s + f->at, f->n - f->at, &len)))
            break;
    if (f->at >= f->n)
        return 0;
    bool word = uni_word(cp);
    *start = f->at;
    for (; f->at < f->n; f->at += len) {
        cp = utf8_decode(f->s + f->at, f->n - f->at, &len);
        if (word ? !uni_word(cp) : uni_word(cp) || uni_white(cp))
            break;
    }
    *end = f->at;
    return 1;
}

static int next_char(struct finder *f, size_t *start, size_t *end)
{
    for (size_t len; f->at < f->n; f->at += len) {
        uint32_t cp = (unsigned char)f->s[f->at];
        len = 1;
        if (cp >= 0x80)
            cp = utf8_decode(f->s + f->at, f->n - f->at, &len);
        if (wanted(f->st, cp)) {
            *start = f->at;
            *end = f->at += len;
            return 1;
        }
    }
    return 0;
}

int finder_next(struct finder *f, size_t *start, size_t *end)
{
    if (f->st->find == FIND_REGEX)
        return regex_next(&f->it, start, end);
    if (f->st->find == FIND_WORDS)
        return next_word(f, start, end);
    if (f->st->find != FIND_TEXT)
        return next_char(f, start, end);
    if (!f->st->what_n)
        return 0;
    const char *hit = memmem(f->s + f->at, f->n - f->at, f->st->what, f->st->what_n);
    if (!hit)
        return 0;
    *start = (size_t)(hit - f->s);
    *end = f->at = *start + f->st->what_n;
    return 1;
}

/* ---------------------------------------------------------------- behaviours */
struct cutter {
    enum split_behaviour how;
    struct spans *out;
    uint32_t base;       /* of the span in its text */
    uint32_t start, end; /* the current piece, which may be empty */
    bool open, previous; /* is there one; did it precede a match? */
    bool oom;
};

static void flush(struct cutter *c)
{
    if (c->open)
        c->oom |= spans_add(c->out, c->base + c->start, c->base + c->end, NO_ID) != 0;
    c->open = false;
}

/* The piece [a, b): a match, or the text between matches. */
static void cut(struct cutter *c, size_t a, size_t b, bool match)
{
    bool join = false;
    switch (c->how) {
    case SPLIT_ISOLATED:
        break;
    case SPLIT_REMOVED:
        if (match)
            return;
        break;
    case SPLIT_CONTIGUOUS:
        join = match == c->previous;
        break;
    case SPLIT_PREVIOUS:
        join = match && !c->previous;
        break;
    case SPLIT_NEXT: /* a match is merged into the next piece */
        join = !match && c->previous;
        break;
    }
    c->previous = match;
    if (!join || !c->open) {
        flush(c);
        c->start = (uint32_t)a;
    }
    c->end = (uint32_t)b;
    c->open = true;
}

static int split_fixed(const struct step *st, const char *s, const struct span *sp,
                       struct spans *out)
{
    size_t n = sp->end - sp->start, at = 0;
    while (at < n) {
        size_t begin = at, len;
        for (uint32_t i = 0; i < st->count && at < n; i++, at += len)
            utf8_decode(s + at, n - at, &len);
        if (spans_add(out, sp->start + (uint32_t)begin, sp->start + (uint32_t)at, NO_ID) != 0)
            return -1;
    }
    return 0;
}

int step_split(const struct step *st, struct step_work *w, const struct span *sp, struct spans *out,
               struct err *e)
{
    const char *s = work_text(w)->p + sp->start;
    size_t n = sp->end - sp->start, at = 0, a, b;
    struct cutter c = {.how = st->behaviour, .out = out, .base = sp->start};
    if (st->kind == STEP_FIXED)
        return split_fixed(st, s, sp, out) == 0 ? 0 : err_nomem(e);
    struct finder f = finder(st, s, n, w->match);
    int rc;
    while ((rc = finder_next(&f, &a, &b)) > 0 && !c.oom) {
        if (a > at)
            cut(&c, at, a, st->invert);
        cut(&c, a, b, !st->invert);
        at = b;
    }
    if (rc < 0)
        return err_set(e, ERR_VALIDATION,
                       "the tokenizer's regular expression gave up on this text");
    if (n > at)
        cut(&c, at, n, st->invert);
    flush(&c);
    return c.oom ? err_nomem(e) : 0;
}
