/* schema_number.c - decimal numbers by value: comparison digit by digit, multiples by remainders.
 * Valid number syntax (leading zeros, number of digits) is enforced by the caller's
 * intersection. */
#include "common/constraint/schema_impl.h"
#include <stdlib.h>
#include <string.h>

/* A magnitude as digits; the fraction has no trailing zeros. */
struct spelled {
    char whole[DECIMAL_DIGITS + DECIMAL_POINT + 2], fraction[DECIMAL_DIGITS + DECIMAL_POINT + 2];
};

static void spell(struct spelled *d, const struct decimal *v)
{
    size_t w = 0, f = 0;
    for (int i = 0; i < v->point; i++)
        d->whole[w++] = i < v->n ? v->digit[i] : '0';
    if (!w)
        d->whole[w++] = '0';
    for (int i = v->point; i < v->n; i++)
        d->fraction[f++] = i >= 0 ? v->digit[i] : '0';
    d->whole[w] = d->fraction[f] = '\0';
}

static term digit(struct term_pool *p, int first, int last)
{
    struct byte_set s = {{0}};
    if (first <= last)
        byte_set_add(&s, (unsigned)('0' + first), (unsigned)('0' + last));
    return term_set(p, &s);
}

static term digits(struct term_pool *p, uint32_t lo, uint32_t hi)
{
    return term_repeat(p, digit(p, 0, 9), lo, hi);
}

static term fraction(struct term_pool *p, term t)
{
    return term_cat(p, term_bytes_of(p, ".", 1), t);
}

static term any_fraction(struct term_pool *p)
{
    return term_opt(p, fraction(p, digits(p, 1, TERM_UNBOUNDED)));
}

/* Texts that share text[0 .. i) and then differ in digit i, upwards or downwards. */
static term differs(struct term_pool *p, const char *text, size_t i, bool up)
{
    int d = text[i] - '0';
    return term_cat(p, term_bytes_of(p, text, i), up ? digit(p, d + 1, 9) : digit(p, 0, d - 1));
}

/* Integer parts above (below) d's. */
static term other_whole(struct term_pool *p, const struct spelled *d, bool up)
{
    uint32_t n = (uint32_t)strlen(d->whole);
    term t = up ? digits(p, n + 1, TERM_UNBOUNDED) : n > 1 ? digits(p, 1, n - 1) : TERM_NONE;
    for (uint32_t i = 0; i < n; i++)
        t = term_alt(p, t,
                     term_cat(p, differs(p, d->whole, i, up), digits(p, n - i - 1, n - i - 1)));
    return t;
}

/* Fractions of numbers with d's integer part, including the point. */
static term greater_fraction(struct term_pool *p, const struct spelled *d, bool strict)
{
    size_t n = strlen(d->fraction);
    term zeros = term_repeat(p, digit(p, 0, 0), 0, TERM_UNBOUNDED), t = TERM_NONE;
    term more = term_cat(p, zeros, term_cat(p, digit(p, 1, 9), digits(p, 0, TERM_UNBOUNDED)));
    for (size_t i = 0; i < n; i++)
        t = term_alt(p, t,
                     term_cat(p, differs(p, d->fraction, i, true), digits(p, 0, TERM_UNBOUNDED)));
    term equal = term_bytes_of(p, d->fraction, n);
    t = term_alt(p, t,
                 term_cat(p, equal,
                          strict ? more
                          : n    ? digits(p, 0, TERM_UNBOUNDED)
                                 : digits(p, 1, TERM_UNBOUNDED)));
    t = fraction(p, t);
    return n || strict ? t : term_opt(p, t);
}

static term less_fraction(struct term_pool *p, const struct spelled *d, bool strict)
{
    size_t n = strlen(d->fraction);
    term zeros = term_repeat(p, digit(p, 0, 0), n ? 0 : 1, TERM_UNBOUNDED), t = TERM_NONE;
    for (size_t i = 0; i < n; i++) {
        t = term_alt(p, t,
                     term_cat(p, differs(p, d->fraction, i, false), digits(p, 0, TERM_UNBOUNDED)));
        if (i) /* a shorter fraction: missing digits are zeros */
            t = term_alt(p, t, term_bytes_of(p, d->fraction, i));
    }
    if (!strict)
        t = term_alt(p, t, term_cat(p, term_bytes_of(p, d->fraction, n), zeros));
    t = fraction(p, t);
    return n || !strict ? term_opt(p, t) : t;
}

static term above(struct term_pool *p, const struct decimal *v, bool strict)
{
    struct spelled d = {0};
    spell(&d, v);
    term equal =
        term_cat(p, term_bytes_of(p, d.whole, strlen(d.whole)), greater_fraction(p, &d, strict));
    return term_alt(p, equal, term_cat(p, other_whole(p, &d, true), any_fraction(p)));
}

static term below(struct term_pool *p, const struct decimal *v, bool strict)
{
    struct spelled d = {0};
    spell(&d, v);
    term equal =
        term_cat(p, term_bytes_of(p, d.whole, strlen(d.whole)), less_fraction(p, &d, strict));
    return term_alt(p, equal, term_cat(p, other_whole(p, &d, false), any_fraction(p)));
}

static term negative(struct term_pool *p, term t)
{
    return term_cat(p, term_bytes_of(p, "-", 1), t);
}

term number_range(struct term_pool *p, const struct number_bounds *b)
{
    term any = term_cat(p, digits(p, 1, TERM_UNBOUNDED), any_fraction(p)), t = TERM_ALL;
    if (b->has_lo)
        t = b->lo.negative ? term_alt(p, any, negative(p, below(p, &b->lo, b->lo_strict)))
                           : above(p, &b->lo, b->lo_strict);
    if (!b->has_hi)
        return t;
    term top = b->hi.negative || (!b->hi.n && b->hi_strict)
                   ? negative(p, above(p, &b->hi, b->hi_strict))
                   : term_alt(p, negative(p, any), below(p, &b->hi, b->hi_strict));
    return term_and(p, t, top);
}

term number_other(struct term_pool *p, const struct decimal *v)
{
    struct number_bounds less = {.hi = *v, .has_hi = true, .hi_strict = true};
    struct number_bounds more = {.lo = *v, .has_lo = true, .lo_strict = true};
    return term_alt(p, number_range(p, &less), number_range(p, &more));
}

/* ---------------------------------------------------------------- multiples */

enum { MAX_MULTIPLE = 10000, MAX_REMAINDERS = 20000 };

/* Remainders of the digits read, in units of the last of `places` decimals. */
struct remainders {
    struct term_pool *p;
    uint32_t of, places;
    term *rule; /* [places + 2][of]: before the point, then after 0, 1, .. decimals */
};

/* The remaining decimals are zeros. */
static bool divides(const struct remainders *m, uint32_t r, uint32_t missing)
{
    uint64_t v = r;
    while (missing--)
        v = v * 10 % m->of;
    return v % m->of == 0;
}

static term then_digit(const struct remainders *m, uint32_t r, const term *next)
{
    term part[10];
    for (uint32_t d = 0; d < 10; d++)
        part[d] = term_cat(m->p, digit(m->p, (int)d, (int)d), next[((uint64_t)r * 10 + d) % m->of]);
    return term_alt_n(m->p, part, 10);
}

/* One rule per remainder and number of decimals; it may end at a multiple. */
static void define(const struct remainders *m)
{
    struct term_pool *p = m->p;
    for (uint32_t r = 0; r < m->of; r++) {
        term t = term_alt(p, then_digit(m, r, m->rule),
                          term_cat(p, term_bytes_of(p, ".", 1), m->rule[m->of + r]));
        t = divides(m, r, m->places) ? term_alt(p, t, TERM_EMPTY) : t;
        term_define(p, m->rule[r], t);
        for (uint32_t j = 0; j <= m->places; j++) {
            const term *row = m->rule + (size_t)(j + 1) * m->of;
            bool end = j && divides(m, r, m->places - j);
            term zeros = term_repeat(p, digit(p, 0, 0), j ? 0 : 1, TERM_UNBOUNDED);
            t = j == m->places ? r ? TERM_NONE : zeros : then_digit(m, r, row + m->of);
            term_define(p, row[r], end ? term_alt(p, t, TERM_EMPTY) : t);
        }
    }
}

term number_multiple(struct term_pool *p, const struct decimal *v)
{
    struct remainders m = {.p = p};
    uint64_t of = 0;
    for (int i = 0; (i < v->n || i < v->point) && of <= MAX_MULTIPLE; i++)
        of = of * 10 + (i < v->n ? (uint64_t)(v->digit[i] - '0') : 0);
    m.places = v->n > v->point ? (uint32_t)(v->n - v->point) : 0;
    if (v->negative || !of || of > MAX_MULTIPLE || of * (m.places + 2) > MAX_REMAINDERS)
        return TERM_NONE;
    m.of = (uint32_t)of;
    m.rule = malloc(m.of * (size_t)(m.places + 2) * sizeof(*m.rule));
    if (!m.rule)
        return term_no_memory(p), TERM_NONE;
    for (uint32_t j = 0; j < m.places + 2; j++)
        for (uint32_t r = 0; r < m.of; r++)
            m.rule[j * m.of + r] = term_rule(p, j == 0   ? divides(&m, r, m.places)
                                                : j == 1 ? false
                                                         : divides(&m, r, m.places - (j - 1)));
    define(&m);
    term t = term_cat(p, digit(p, 0, 9), TERM_ALL); /* at least one digit */
    t = term_cat(p, term_opt(p, term_bytes_of(p, "-", 1)), term_and(p, m.rule[0], t));
    free(m.rule);
    return t;
}
