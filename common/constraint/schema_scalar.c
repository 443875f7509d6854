/* schema_scalar.c - strings and numbers. */
#include "common/constraint/schema_impl.h"
#include "common/json.h"
#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- strings */

term schema_quoted(struct schema *s, term inside)
{
    return term_cat(s->p, lit(s, "\""), term_cat(s->p, inside, lit(s, "\"")));
}

term schema_string(struct schema *s, const struct conj *c)
{
    uint32_t lo = conj_bound(s, c, "minLength", true, 0);
    uint32_t hi = conj_bound(s, c, "maxLength", false, TERM_UNBOUNDED);
    term inside = TERM_ALL;
    for (int i = 0; i < c->n; i++) {
        const cJSON *pattern = json_get(c->at[i], "pattern"),
                    *format = json_get(c->at[i], "format");
        const char *text = cJSON_GetStringValue(pattern);
        if (pattern && !text)
            return schema_fail(s, pattern, "`pattern` is no string");
        if (text) {
            struct err e = ERR_INIT;
            term t = pattern_term(s->p, text, strlen(text), PATTERN_SEARCH, SPELL_JSON, &e);
            if (t == TERM_NONE)
                return schema_fail(s, pattern, "%.150s", e.msg);
            inside = term_and(s->p, inside, t);
        }
        term t = format ? schema_format(s, format) : TERM_EMPTY;
        if (t != TERM_EMPTY)
            inside = term_and(s->p, inside, t);
    }
    if (inside == TERM_ALL)
        inside = term_repeat(s->p, s->free_char, lo, hi);
    else if (lo || hi != TERM_UNBOUNDED)
        inside = term_and(s->p, inside, term_repeat(s->p, s->char_once, lo, hi));
    return schema_quoted(s, inside);
}

/* ---------------------------------------------------------------- numbers */

struct bounds {
    double lo, hi;
    bool lo_strict, hi_strict;
};

static bool number_at(struct schema *s, const cJSON *node, const char *key, double *v)
{
    const cJSON *k = json_get(node, key);
    if (k && !cJSON_IsNumber(k))
        schema_fail(s, k, "`%s` is no number", key);
    *v = k ? k->valuedouble : 0;
    return k && !s->failed;
}

static struct bounds number_bounds(struct schema *s, const struct conj *c)
{
    struct bounds b = {-INFINITY, INFINITY, false, false};
    double v;
    for (int i = 0; i < c->n; i++) {
        if (number_at(s, c->at[i], "minimum", &v) && v > b.lo)
            b.lo = v, b.lo_strict = false;
        if (number_at(s, c->at[i], "exclusiveMinimum", &v) && v >= b.lo)
            b.lo = v, b.lo_strict = true;
        if (number_at(s, c->at[i], "maximum", &v) && v < b.hi)
            b.hi = v, b.hi_strict = false;
        if (number_at(s, c->at[i], "exclusiveMaximum", &v) && v <= b.hi)
            b.hi = v, b.hi_strict = true;
    }
    return b;
}

/* Texts of the multiples of all `multipleOf`: whole numbers up to 10000 (of fractions validators
 * disagree, since they divide in binary). */
static term multiples(struct schema *s, const struct conj *c)
{
    term t = TERM_ALL;
    for (int i = 0; i < c->n; i++) {
        double v;
        if (!number_at(s, c->at[i], "multipleOf", &v))
            continue;
        if (!(v >= 1 && v <= 10000 && v == floor(v)))
            return schema_fail(s, json_get(c->at[i], "multipleOf"),
                               "this `multipleOf` is not supported");
        t = term_and(s->p, t, number_multiple(s->p, (uint32_t)v));
    }
    return t;
}

term schema_number(struct schema *s, const struct conj *c, bool integer)
{
    static const char whole[] = "-?(0|[1-9]\\d{0,17})",
                      point[] = "-?(0|[1-9]\\d{0,17})(\\.\\d{1,17})?",
                      any[] = "-?(0|[1-9]\\d{0,17})(\\.\\d{1,17})?([eE][+-]?\\d{1,2})?";
    struct bounds b = number_bounds(s, c);
    term m = multiples(s, c);
    bool bounded = b.lo != -INFINITY || b.hi != INFINITY || m != TERM_ALL;
    const char *form = integer ? whole : bounded ? point : any;
    if (s->failed)
        return TERM_NONE;
    term t = pattern_term(s->p, form, strlen(form), PATTERN_WHOLE, SPELL_PLAIN, s->e);
    if (bounded)
        t = term_and(s->p, t,
                     term_and(s->p, m, number_range(s->p, b.lo, b.lo_strict, b.hi, b.hi_strict)));
    return t;
}
