/* schema_distinct.c - pairs of an object whose keys differ, which `minProperties` asks for. That
 * two texts differ is not regular; that they differ at one place is. */
#include "common/constraint/schema_impl.h"

enum { BYTES = 256, MOST_PREFIX = 64 };

/* A pair by the byte at the first place where keys may differ. */
struct branches {
    term at[BYTES]; /* TERM_NONE: no key goes on with this byte */
    int n;
};

/* Splits `pair` behind its first `len` bytes, which all keys have in common. */
static void split(struct schema *s, term pair, const char *prefix, size_t len, struct branches *out)
{
    const term head = term_bytes_of(s->p, prefix, len),
               rest = term_after_all(s->p, pair, prefix, len);
    out->n = 0;
    for (int b = 0; b < BYTES; b++) {
        const char c = (char)b;
        const term after = term_after_all(s->p, rest, &c, 1);
        out->at[b] = TERM_NONE;
        if (after == TERM_NONE || !term_possible(s->p, after))
            continue;
        out->at[b] = term_cat(s->p, head, term_cat(s->p, term_bytes_of(s->p, &c, 1), after));
        out->n++;
    }
}

/* n pairs whose bytes ascend (`by` 1) or descend (-1). */
static term chain(struct schema *s, const struct branches *of, int by, uint32_t n)
{
    term from[BYTES + 1], next[BYTES + 1]; /* the last i + 1 of the chain, from byte b on */
    for (int b = 0; b <= BYTES; b++)
        from[b] = TERM_EMPTY;
    for (uint32_t i = 0; i < n; i++) {
        next[BYTES] = TERM_NONE;
        for (int b = BYTES; b-- > 0;) {
            const term one = of->at[by > 0 ? b : BYTES - 1 - b];
            const term more = i ? term_cat(s->p, s->comma, from[b + 1]) : TERM_EMPTY;
            next[b] = one == TERM_NONE || (i && from[b + 1] == TERM_NONE)
                          ? next[b + 1]
                          : term_alt(s->p, term_cat(s->p, one, more), next[b + 1]);
        }
        for (int b = 0; b <= BYTES; b++)
            from[b] = next[b];
    }
    return from[0];
}

term schema_distinct(struct schema *s, term pair, uint32_t n)
{
    struct branches of;
    char prefix[MOST_PREFIX] = "\"";
    size_t len = 1;
    if (n > SCHEMA_MOST_DISTINCT)
        return TERM_NONE;
    for (;; len++) {
        split(s, pair, prefix, len, &of);
        if (of.n != 1 || len == MOST_PREFIX - 1)
            break;
        int b = 0;
        while (of.at[b] == TERM_NONE)
            b++;
        if (b == '"') /* the only key */
            return TERM_NONE;
        prefix[len] = (char)b;
    }
    return term_alt(s->p, chain(s, &of, 1, n), chain(s, &of, -1, n));
}
