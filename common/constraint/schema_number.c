/* schema_number.c - decimal texts by their value: comparisons digit by digit, multiples by
 * remainders. Which texts are numbers at all (leading zeros, how many digits) is not decided here:
 * the caller intersects. */
#include "common/constraint/schema_impl.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A magnitude as digits, the fraction without trailing zeros. */
struct decimal {
    char whole[800], fraction[800];
};

static struct decimal decimal_of(double v)
{
    struct decimal d;
    char text[800];
    int digits = 0;
    do /* the fewest digits behind the point that mean this number */
        snprintf(text, sizeof(text), "%.*f", digits, v);
    while (strtod(text, NULL) != v && digits++ < 320);
    char *point = strchr(text, '.');
    snprintf(d.fraction, sizeof(d.fraction), "%s", point ? point + 1 : "");
    if (point)
        *point = '\0';
    snprintf(d.whole, sizeof(d.whole), "%s", text);
    for (size_t n = strlen(d.fraction); n && d.fraction[n - 1] == '0'; n--)
        d.fraction[n - 1] = '\0';
    return d;
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

/* Whole parts above (below) d's. */
static term other_whole(struct term_pool *p, const struct decimal *d, bool up)
{
    uint32_t n = (uint32_t)strlen(d->whole);
    term t = up ? digits(p, n + 1, TERM_UNBOUNDED) : n > 1 ? digits(p, 1, n - 1) : TERM_NONE;
    for (uint32_t i = 0; i < n; i++)
        t = term_alt(p, t,
                     term_cat(p, differs(p, d->whole, i, up), digits(p, n - i - 1, n - i - 1)));
    return t;
}

/* Fractions of numbers with d's whole part, the point included. */
static term greater_fraction(struct term_pool *p, const struct decimal *d, bool strict)
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

static term less_fraction(struct term_pool *p, const struct decimal *d, bool strict)
{
    size_t n = strlen(d->fraction);
    term zeros = term_repeat(p, digit(p, 0, 0), n ? 0 : 1, TERM_UNBOUNDED), t = TERM_NONE;
    for (size_t i = 0; i < n; i++) {
        t = term_alt(p, t,
                     term_cat(p, differs(p, d->fraction, i, false), digits(p, 0, TERM_UNBOUNDED)));
        if (i) /* cut short: the digits that are missing are zeros */
            t = term_alt(p, t, term_bytes_of(p, d->fraction, i));
    }
    if (!strict)
        t = term_alt(p, t, term_cat(p, term_bytes_of(p, d->fraction, n), zeros));
    t = fraction(p, t);
    return n || !strict ? term_opt(p, t) : t;
}

static term above(struct term_pool *p, double magnitude, bool strict)
{
    struct decimal d = decimal_of(magnitude);
    term equal =
        term_cat(p, term_bytes_of(p, d.whole, strlen(d.whole)), greater_fraction(p, &d, strict));
    return term_alt(p, equal, term_cat(p, other_whole(p, &d, true), any_fraction(p)));
}

static term below(struct term_pool *p, double magnitude, bool strict)
{
    struct decimal d = decimal_of(magnitude);
    term equal =
        term_cat(p, term_bytes_of(p, d.whole, strlen(d.whole)), less_fraction(p, &d, strict));
    return term_alt(p, equal, term_cat(p, other_whole(p, &d, false), any_fraction(p)));
}

static term negative(struct term_pool *p, term t)
{
    return term_cat(p, term_bytes_of(p, "-", 1), t);
}

term number_range(struct term_pool *p, double lo, bool lo_strict, double hi, bool hi_strict)
{
    term any = term_cat(p, digits(p, 1, TERM_UNBOUNDED), any_fraction(p)), t = TERM_ALL;
    if (lo != -INFINITY)
        t = lo < 0 ? term_alt(p, any, negative(p, below(p, -lo, lo_strict)))
                   : above(p, lo, lo_strict);
    if (hi == INFINITY)
        return t;
    term top = hi < 0                 ? negative(p, above(p, -hi, hi_strict))
               : hi == 0 && hi_strict ? negative(p, above(p, 0, true))
                                      : term_alt(p, negative(p, any), below(p, hi, hi_strict));
    return term_and(p, t, top);
}

/* One rule a remainder: it may end where the remainder is 0. */
term number_multiple(struct term_pool *p, uint32_t of)
{
    term *rule = malloc(of * sizeof(*rule)), t = TERM_NONE;
    for (uint32_t r = 0; rule && r < of; r++)
        rule[r] = term_rule(p, r == 0);
    for (uint32_t r = 0; rule && r < of; r++) {
        term part[11];
        for (uint32_t d = 0; d < 10; d++)
            part[d] = term_cat(p, digit(p, (int)d, (int)d),
                               rule[(uint32_t)(((uint64_t)r * 10 + d) % of)]);
        part[10] = r ? TERM_NONE : TERM_EMPTY;
        term_define(p, rule[r], term_alt_n(p, part, 11));
    }
    if (rule)
        t = term_cat(p, term_opt(p, term_bytes_of(p, "-", 1)),
                     term_and(p, rule[0], digits(p, 1, TERM_UNBOUNDED)));
    free(rule);
    return t;
}
