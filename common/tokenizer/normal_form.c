/* Unicode Standard Annex 15. utf8proc provides decompositions and combining classes. Composition is
 * done here, because it must track which characters were merged. */
#include "common/tokenizer/normal_form.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <utf8proc.h>

/* A decomposed character: `change` as in rewrite_put(). */
struct unit {
    uint32_t cp;
    int change;
    uint16_t class;
};

bool normal_form_idle(const char *s, size_t n, bool compose, bool compat)
{
    for (size_t i = 0, len; i < n; i += len) {
        if (!((unsigned char)s[i] & 0x80)) {
            len = 1;
            continue;
        }
        uint32_t cp = utf8_decode(s + i, n - i, &len);
        if (compose && !compat && cp < 0x300)
            continue;
        const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
        if (p->combining_class || p->decomp_seqindex != UINT16_MAX || p->comb_index != UINT16_MAX ||
            (cp >= 0x1100 && cp <= 0x11FF) || (cp >= 0xAC00 && cp <= 0xD7A3))
            return false;
    }
    return true;
}

/* The reference uses tables of Unicode 11: later decompositions are ignored. */
static bool too_new(uint32_t cp)
{
    return cp >= 0x32FF &&
           (cp == 0x32FF || (cp >= 0xA7F2 && cp <= 0xA7F4) || cp == 0xAB69 ||
            (cp >= 0x10780 && cp <= 0x107BF) || cp == 0x11938 || (cp >= 0x1E030 && cp <= 0x1E06D) ||
            cp == 0x1F16C || (cp >= 0x1FBF0 && cp <= 0x1FBF9));
}

static int decompose(const struct rewrite *r, bool compat, struct buf *work)
{
    utf8proc_option_t how = UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
    const char *s = r->in->p;
    for (uint32_t i = r->begin; i < r->end;) {
        utf8proc_int32_t out[32]; /* the longest decomposition has 18 */
        int boundary = 0;
        size_t len;
        uint32_t cp = utf8_decode(s + i, r->end - i, &len);
        i += (uint32_t)len;
        utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, out, 32, how, &boundary);
        if (n < 1 || n > 32 || too_new(cp)) {
            out[0] = (utf8proc_int32_t)cp;
            n = 1;
        }
        for (utf8proc_ssize_t k = 0; k < n; k++) {
            struct unit u = {(uint32_t)out[k], k > 0,
                             (uint16_t)utf8proc_get_property(out[k])->combining_class};
            buf_add(work, &u, sizeof u);
        }
    }
    return work->oom ? -1 : 0;
}

/* Sorts the marks of one base by class, stable. Short runs by insertion; long (hostile) runs by
 * counting. */
static int order(struct unit *u, size_t n)
{
    if (n <= 32) {
        for (size_t i = 1; i < n; i++)
            for (size_t k = i; k > 0 && u[k - 1].class > u[k].class; k--) {
                struct unit x = u[k];
                u[k] = u[k - 1];
                u[k - 1] = x;
            }
        return 0;
    }
    size_t at[256] = {0}, sum = 0;
    struct unit *sorted = malloc(n * sizeof *u);
    if (!sorted)
        return -1;
    for (size_t i = 0; i < n; i++)
        at[u[i].class & 255]++;
    for (size_t c = 0; c < 256; c++) {
        size_t k = at[c];
        at[c] = sum;
        sum += k;
    }
    for (size_t i = 0; i < n; i++)
        sorted[at[u[i].class & 255]++] = u[i];
    for (size_t i = 0; i < n; i++)
        u[i] = sorted[i];
    free(sorted);
    return 0;
}

static int order_all(struct unit *u, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t begin = i;
        if (!u[i++].class)
            continue;
        while (i < n && u[i].class)
            i++;
        if (order(u + begin, i - begin) != 0)
            return -1;
    }
    return 0;
}

/* The primary composite of a pair; 0: none. */
static uint32_t pair(uint32_t a, uint32_t b)
{
    utf8proc_int32_t v[2] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b};
    if (b < 0x300)
        return 0;
    utf8proc_ssize_t n = utf8proc_normalize_utf32(v, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    return n == 1 && !too_new((uint32_t)v[0]) ? (uint32_t)v[0] : 0;
}

/* Composes in place; returns the number of units. */
static size_t recompose(struct unit *u, size_t n)
{
    size_t out = 0, base = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        struct unit c = u[i];
        if (base != SIZE_MAX) {
            /* blocked: a unit of equal or higher class, or a starter, is in between */
            bool open = out == base + 1 || (u[out - 1].class && u[out - 1].class < c.class);
            uint32_t made = open ? pair(u[base].cp, c.cp) : 0;
            if (made) {
                u[base].cp = made;
                u[base].change += c.change - 1;
                continue;
            }
        }
        if (!c.class)
            base = out;
        u[out++] = c;
    }
    return out;
}

int normal_form(struct rewrite *r, bool compose, bool compat, struct buf *work)
{
    buf_reset(work);
    if (decompose(r, compat, work) != 0)
        return -1;
    struct unit *u = (struct unit *)(void *)work->p;
    size_t n = work->len / sizeof *u;
    if (order_all(u, n) != 0)
        return -1;
    if (compose)
        n = recompose(u, n);
    for (size_t i = 0; i < n; i++)
        rewrite_put(r, u[i].cp, u[i].change);
    return 0;
}
