/* Rewriting steps. */
#include "common/tokenizer/byte_chars.h"
#include "common/tokenizer/normal_form.h"
#include "common/tokenizer/step.h"
#include "common/tokenizer/unicode.h"
#include "common/utf8.h"
#include <string.h>
#include <utf8proc.h>

static uint32_t peek(const struct rewrite *r, uint32_t at, uint32_t *len)
{
    size_t n = 1;
    uint32_t cp = (unsigned char)r->in->p[at];
    if (cp >= 0x80)
        cp = utf8_decode(r->in->p + at, r->end - at, &n);
    *len = (uint32_t)n;
    return cp;
}

static bool ascii(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] & 0x80)
            return false;
    return true;
}

bool step_rewrite_idle(const struct step *st, const struct text *t, const struct span *sp)
{
    const char *s = t->p + sp->start;
    size_t n = sp->end - sp->start;
    switch (st->kind) {
    case STEP_NFC:
    case STEP_NFD:
    case STEP_NFKC:
    case STEP_NFKD:
        return normal_form_idle(s, n, st->kind == STEP_NFC || st->kind == STEP_NFKC,
                                st->kind == STEP_NFKC || st->kind == STEP_NFKD);
    case STEP_DROP_MARKS:
    case STEP_DROP_MN:
    case STEP_CHINESE:
        return ascii(s, n);
    case STEP_REPLACE:
        return st->find == FIND_TEXT && (!st->what_n || !memmem(s, n, st->what, st->what_n));
    default:
        return false;
    }
}

static void lower(struct rewrite *r)
{
    for (uint32_t len; r->at < r->end;) {
        uint32_t cp = peek(r, r->at, &len);
        if (cp == 0x130) { /* the only character with a lower case of two characters */
            rewrite_put(r, 'i', 0);
            rewrite_put(r, 0x307, 1);
        } else if (cp < 0x80) {
            rewrite_put(r, cp - 'A' < 26 ? cp | 32 : cp, 0);
        } else {
            rewrite_put(r, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), 0);
        }
    }
}

static void strip(const struct step *st, struct rewrite *r)
{
    uint32_t len, begin = r->begin, end = r->end;
    while (st->left && begin < end && uni_white(peek(r, begin, &len)))
        begin += len;
    while (st->right && end > begin) {
        uint32_t last = end - 1;
        while (last > begin && ((unsigned char)r->in->p[last] & 0xC0) == 0x80)
            last--;
        if (!uni_white(peek(r, last, &len)))
            break;
        end = last;
    }
    rewrite_skip(r, begin - r->begin);
    rewrite_copy(r, end - begin);
}

static bool bert_control(uint32_t cp)
{
    enum uni_category c = uni_category(cp);
    return !cp || cp == 0xFFFD ||
           (cp != '\t' && cp != '\n' && cp != '\r' && (c == UNI_CC || c == UNI_CF || c == UNI_CO));
}

static bool nmt_control(uint32_t cp)
{
    return (cp >= 1 && cp <= 8) || cp == 0xB || (cp >= 0xE && cp <= 0x1F) || cp == 0x7F ||
           cp == 0x8F || cp == 0x9F;
}

static bool nmt_white(uint32_t cp)
{
    return cp == 9 || cp == 0xA || cp == 0xC || cp == 0xD || cp == 0x1680 ||
           (cp >= 0x200B && cp <= 0x200F) || cp == 0x2028 || cp == 0x2029 || cp == 0x2581 ||
           cp == 0xFEFF || cp == 0xFFFD;
}

/* Steps that drop some characters and map others to a space. */
static void sift(enum step_kind kind, struct rewrite *r)
{
    for (uint32_t len; r->at < r->end;) {
        uint32_t cp = peek(r, r->at, &len);
        bool drop = kind == STEP_CLEAN        ? bert_control(cp)
                    : kind == STEP_NMT        ? nmt_control(cp)
                    : kind == STEP_DROP_MARKS ? uni_mark(cp)
                                              : uni_category(cp) == UNI_MN;
        bool space = kind == STEP_CLEAN ? uni_white(cp) : kind == STEP_NMT && nmt_white(cp);
        if (drop)
            rewrite_skip(r, len);
        else if (space)
            rewrite_put(r, ' ', 0);
        else
            rewrite_copy(r, len);
    }
}

static bool ideograph(uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) ||
           (cp >= 0x20000 && cp <= 0x2A6DF) || (cp >= 0x2A700 && cp <= 0x2B81F) ||
           (cp >= 0x2B920 && cp <= 0x2CEAF) || (cp >= 0xF900 && cp <= 0xFAFF) ||
           (cp >= 0x2F800 && cp <= 0x2FA1F);
}

static void space_ideographs(struct rewrite *r)
{
    for (uint32_t len; r->at < r->end;) {
        uint32_t cp = peek(r, r->at, &len);
        if (!ideograph(cp)) {
            rewrite_copy(r, len);
            continue;
        }
        rewrite_put(r, ' ', 0);
        rewrite_put(r, cp, 1);
        rewrite_put(r, ' ', 1);
    }
}

static int replace(const struct step *st, struct step_work *w, struct rewrite *r, struct err *e)
{
    struct finder f = finder(st, r->in->p + r->begin, r->end - r->begin, w->match);
    size_t a, b;
    int rc;
    while ((rc = finder_next(&f, &a, &b)) > 0) {
        uint32_t start = r->begin + (uint32_t)a, end = r->begin + (uint32_t)b;
        rewrite_copy(r, start - r->at);
        rewrite_insert(r, st->text, st->text_n, end > r->begin ? end - 1 : end);
        rewrite_skip(r, end - start);
        if (r->out->own.len >= UINT32_MAX / 2)
            return err_set(e, ERR_VALIDATION, "the text grows past 2 GiB while it is normalized");
    }
    rewrite_copy(r, r->end - r->at);
    return rc < 0 ? err_set(e, ERR_VALIDATION, "the normalizer's regular expression gave up") : 0;
}

static void prepend(const struct step *st, struct rewrite *r)
{
    uint32_t len, first = r->end > r->begin ? peek(r, r->begin, &len) : 0;
    bool wanted = r->end > r->begin;
    if (st->when != PREPEND_ALWAYS && first == st->ch)
        wanted = false;
    if (st->when == PREPEND_FIRST && text_origin(r->in, r->begin, r->end).start != 0)
        wanted = false;
    if (wanted)
        rewrite_insert(r, st->text, st->text_n, r->begin);
    rewrite_copy(r, r->end - r->begin);
}

static void bytes_to_chars(struct rewrite *r)
{
    for (uint32_t len; r->at < r->end;) {
        uint32_t at = r->at;
        peek(r, at, &len);
        for (uint32_t i = 0; i < len; i++)
            rewrite_put(r, byte_to_char((unsigned char)r->in->p[at + i]), i > 0);
    }
}

/* ---------------------------------------------------------------- sentencepiece's map */
struct change {
    uint32_t cp;
    int change;
};

/* Records the replacement of `old` characters by `text`: insertions and removals are assigned to
 * its last characters, a removal without replacement to the preceding character. */
static void book(struct buf *list, const char *text, size_t n, size_t old)
{
    size_t count = utf8_count(text, n), len, i = 0;
    for (size_t at = 0; at < n; at += len, i++) {
        struct change c = {utf8_decode(text + at, n - at, &len), count > old && i >= old};
        if (count > old)
            c.change = i >= count - (count - old);
        buf_add(list, &c, sizeof c);
    }
    if (count < old && list->len && !list->oom) {
        struct change *last = (struct change *)(void *)(list->p + list->len) - 1;
        last->change -= (int)(old - count);
    }
}

static uint32_t grapheme_end(const struct rewrite *r, uint32_t at)
{
    uint32_t len, prev = peek(r, at, &len);
    utf8proc_int32_t state = 0;
    for (at += len; at < r->end; at += len) {
        uint32_t cp = peek(r, at, &len);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)prev, (utf8proc_int32_t)cp, &state))
            break;
        prev = cp;
    }
    return at;
}

/* Short grapheme clusters are looked up as a whole, although a match of a prefix replaces the whole
 * cluster; everything else character by character. The models were trained with this behaviour. */
static void charsmap(const struct charsmap *m, struct rewrite *r, struct buf *list)
{
    const char *s = r->in->p, *to;
    size_t n;
    buf_reset(list);
    for (uint32_t at = r->begin, stop, len; at < r->end; at = stop) {
        stop = grapheme_end(r, at);
        if (stop - at < 6 && (to = charsmap_find(m, s + at, stop - at, &n))) {
            book(list, to, n, utf8_count(s + at, stop - at));
            continue;
        }
        for (uint32_t i = at; i < stop; i += len) {
            struct change c = {peek(r, i, &len), 0};
            if ((to = charsmap_find(m, s + i, len, &n)))
                book(list, to, n, 1);
            else
                buf_add(list, &c, sizeof c);
        }
    }
    const struct change *c = (const struct change *)(const void *)list->p;
    for (size_t i = 0; i < list->len / sizeof *c; i++)
        rewrite_put(r, c[i].cp, c[i].change);
}

int step_rewrite(const struct step *st, struct step_work *w, struct rewrite *r, struct err *e)
{
    switch (st->kind) {
    case STEP_NFC:
    case STEP_NFD:
    case STEP_NFKC:
    case STEP_NFKD:
        if (normal_form(r, st->kind == STEP_NFC || st->kind == STEP_NFKC,
                        st->kind == STEP_NFKC || st->kind == STEP_NFKD, &w->chars) != 0)
            return err_nomem(e);
        break;
    case STEP_LOWER:
        lower(r);
        break;
    case STEP_STRIP:
        strip(st, r);
        break;
    case STEP_CHINESE:
        space_ideographs(r);
        break;
    case STEP_CHARSMAP:
        charsmap(st->map, r, &w->chars);
        if (w->chars.oom)
            return err_nomem(e);
        break;
    case STEP_REPLACE:
        return replace(st, w, r, e);
    case STEP_PREPEND:
        prepend(st, r);
        break;
    case STEP_BYTES:
        bytes_to_chars(r);
        break;
    default:
        sift(st->kind, r);
    }
    return 0;
}
