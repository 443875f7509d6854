/* schema_scalar.c - strings and numbers. */
#include "common/constraint/grammar.h"
#include "common/constraint/schema_impl.h"
#include "common/json/exact.h"
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- strings */

term schema_quoted(struct schema *s, term inside)
{
    return term_cat(s->p, lit(s, "\""), term_cat(s->p, inside, lit(s, "\"")));
}

/* A pattern, or the negation of one. */
static term pattern_of(struct schema *s, const cJSON *pattern)
{
    struct err e = ERR_INIT;
    if (!cJSON_IsString(pattern))
        return schema_fail(s, pattern, "`pattern` is not a string");
    term t = schema_pattern(s, pattern->valuestring, &e);
    return t == TERM_NONE ? schema_fail(s, pattern, "%.150s", e.msg) : t;
}

term schema_pattern(struct schema *s, const char *text, struct err *e)
{
    struct buf b = BUF_INIT;
    json_text_exact(&b, text);
    term t = TERM_NONE;
    if (b.oom)
        term_no_memory(s->p);
    else
        t = pattern_term(s->p, b.p ? b.p : "", b.len, PATTERN_SEARCH, SPELL_JSON, e);
    buf_free(&b);
    return t;
}

/* The inside of a string as constrained by one schema's keywords, if any. */
static term inside_of(struct schema *s, const cJSON *node)
{
    const cJSON *pattern = json_get(node, "pattern"), *format = json_get(node, "format"), *kid;
    term t = TERM_ALL;
    if (pattern)
        t = term_and(s->p, t, pattern_of(s, pattern));
    if (format && !s->failed) {
        term own = schema_format(s, format);
        t = own == TERM_EMPTY ? t : term_and(s->p, t, own);
    }
    if ((pattern = made_get(node, MADE_NOT_PATTERN)) && !s->failed)
        t = term_and(s->p, t, term_not(s->p, pattern_of(s, pattern)));
    if ((format = made_get(node, MADE_NOT_FORMAT)) && !s->failed)
        t = term_and(s->p, t, schema_not_format(s, format));
    cJSON_ArrayForEach(kid, made_get(node, MADE_EXCEPT)) if (cJSON_IsString(kid)) t = term_and(
        s->p, t, term_not(s->p, chars_json_text(s->p, kid->valuestring, strlen(kid->valuestring))));
    return t;
}

/* `x-grammar`: the whole string is a text of this grammar. */
static term grammar_of(struct schema *s, const cJSON *grammar)
{
    struct err e = ERR_INIT;
    struct buf b = BUF_INIT;
    const char *definition = json_str(grammar, "definition", NULL);
    const bool lark = !strcmp(json_str(grammar, "syntax", ""), "lark");
    term t = TERM_NONE;
    if (definition)
        json_text_exact(&b, definition);
    if (!definition)
        err_set(&e, ERR_VALIDATION, "`x-grammar` has no `definition`");
    else if (b.oom)
        err_nomem(&e);
    else if (lark)
        t = grammar_part(s->p, b.p ? b.p : "", b.len, GRAMMAR_LARK, SPELL_JSON, &e);
    else
        t = pattern_term(s->p, b.p ? b.p : "", b.len, PATTERN_WHOLE, SPELL_JSON, &e);
    buf_free(&b);
    return t == TERM_NONE ? schema_fail(s, grammar, "%.150s", e.msg) : t;
}

/* A pattern alone, without assertions, is made of characters in one spelling. */
static bool only_pattern(const struct schema *s, const struct conj *c, term inside)
{
    for (int i = 0; i < c->n; i++)
        if (json_get(c->at[i], "format"))
            return false;
    return !term_checked(s->p, inside);
}

/* The inside of the quotes of a string. */
static term schema_inside(struct schema *s, const struct conj *c)
{
    for (int i = 0; i < c->n; i++)
        if (json_get(c->at[i], "x-grammar"))
            return grammar_of(s, json_get(c->at[i], "x-grammar"));
    uint32_t lo = conj_bound(s, c, "minLength", true, 0);
    uint32_t hi = conj_bound(s, c, "maxLength", false, TERM_UNBOUNDED);
    term inside = TERM_ALL;
    for (int i = 0; i < c->n && !s->failed; i++)
        inside = term_and(s->p, inside, inside_of(s, c->at[i]));
    if (s->failed)
        return TERM_NONE;
    if (inside == TERM_ALL)
        return term_repeat(s->p, s->free_char, lo, hi);
    /* an intersection costs a search for each new state: whether both sides can be completed */
    if (lo <= !term_nullable(s->p, inside) && hi == TERM_UNBOUNDED && only_pattern(s, c, inside))
        return inside;
    return term_and(s->p, inside, term_repeat(s->p, s->char_once, lo, hi));
}

term schema_string(struct schema *s, const struct conj *c)
{
    return schema_quoted(s, schema_inside(s, c));
}

/* ---------------------------------------------------------------- numbers */

static bool number_at(struct schema *s, const cJSON *node, const char *key, struct decimal *v)
{
    const cJSON *k = json_get(node, key);
    if (k && !cJSON_IsNumber(k))
        schema_fail(s, k, "`%s` is not a number", key);
    else if (k && !decimal_of(v, k))
        schema_fail(s, k, "`%s` has too many digits", key);
    return k && !s->failed;
}

static void raise(struct number_bounds *b, const struct decimal *v, bool strict)
{
    int by = b->has_lo ? decimal_compare(v, &b->lo) : 1;
    b->lo_strict = by > 0 ? strict : b->lo_strict || (by == 0 && strict);
    b->lo = by > 0 ? *v : b->lo;
    b->has_lo = true;
}

static void lower(struct number_bounds *b, const struct decimal *v, bool strict)
{
    int by = b->has_hi ? decimal_compare(v, &b->hi) : -1;
    b->hi_strict = by < 0 ? strict : b->hi_strict || (by == 0 && strict);
    b->hi = by < 0 ? *v : b->hi;
    b->has_hi = true;
}

/* `exclusiveMinimum: true` of drafts before 6 makes `minimum` strict. */
static bool exclusive(const cJSON *node, const char *key)
{
    return cJSON_IsTrue(json_get(node, key));
}

static bool strict_at(struct schema *s, const cJSON *node, const char *key, struct decimal *v)
{
    return !cJSON_IsBool(json_get(node, key)) && number_at(s, node, key, v);
}

static struct number_bounds number_bounds(struct schema *s, const struct conj *c)
{
    struct number_bounds b = {.has_lo = false};
    struct decimal v;
    for (int i = 0; i < c->n; i++) {
        if (number_at(s, c->at[i], "minimum", &v))
            raise(&b, &v, exclusive(c->at[i], "exclusiveMinimum"));
        if (strict_at(s, c->at[i], "exclusiveMinimum", &v))
            raise(&b, &v, true);
        if (number_at(s, c->at[i], "maximum", &v))
            lower(&b, &v, exclusive(c->at[i], "exclusiveMaximum"));
        if (strict_at(s, c->at[i], "exclusiveMaximum", &v))
            lower(&b, &v, true);
    }
    return b;
}

/* Multiples of `multipleOf`, in exact decimals: 0.3 is a multiple of 0.1. */
static term multiple(struct schema *s, const cJSON *of)
{
    struct decimal v;
    term t = cJSON_IsNumber(of) && decimal_of(&v, of) ? number_multiple(s->p, &v) : TERM_NONE;
    return t == TERM_NONE ? schema_fail(s, of, "this `multipleOf` is not supported") : t;
}

/* Further conditions on the number's value. */
static term number_values(struct schema *s, const struct conj *c)
{
    term t = TERM_ALL;
    for (int i = 0; i < c->n && !s->failed; i++) {
        const cJSON *of = json_get(c->at[i], "multipleOf"), *kid;
        if (of)
            t = term_and(s->p, t, multiple(s, of));
        if ((of = made_get(c->at[i], MADE_NOT_MULTIPLE)) && !s->failed)
            t = term_and(s->p, t, term_not(s->p, multiple(s, of)));
        if (made_get(c->at[i], MADE_FRACTION)) {
            static const char form[] = "-?\\d+\\.\\d*[1-9]\\d*";
            t = term_and(
                s->p, t,
                pattern_term(s->p, form, sizeof(form) - 1, PATTERN_WHOLE, SPELL_PLAIN, s->e));
        }
        cJSON_ArrayForEach(kid, made_get(c->at[i], MADE_EXCEPT))
        {
            struct decimal v;
            if (cJSON_IsNumber(kid) && !decimal_of(&v, kid))
                return schema_fail(s, kid, "a number with too many digits");
            if (cJSON_IsNumber(kid))
                t = term_and(s->p, t, number_other(s->p, &v));
        }
    }
    return t;
}

static int at_least(int n, const cJSON *number)
{
    struct decimal v;
    return cJSON_IsNumber(number) && decimal_of(&v, number) && v.point > n ? v.point : n;
}

/* Integers have at most 18 digits, or as many as a bound or a listed value. */
static int most_digits(const struct conj *c, const struct number_bounds *b)
{
    int n = 18;
    if (b->has_lo && b->lo.point > n)
        n = b->lo.point;
    if (b->has_hi && b->hi.point > n)
        n = b->hi.point;
    for (int i = 0; i < c->n; i++) {
        const cJSON *kid;
        n = at_least(n, json_get(c->at[i], "const"));
        cJSON_ArrayForEach(kid, json_get(c->at[i], "enum")) n = at_least(n, kid);
    }
    return n;
}

term schema_number(struct schema *s, const struct conj *c, bool integer)
{
    struct number_bounds b = number_bounds(s, c);
    term m = number_values(s, c);
    bool bounded = b.has_lo || b.has_hi || m != TERM_ALL;
    char form[96];
    if (s->failed)
        return TERM_NONE;
    int n = snprintf(form, sizeof(form), "-?(0|[1-9]\\d{0,%d})%s", most_digits(c, &b) - 1,
                     integer   ? ""
                     : bounded ? "(\\.\\d{1,17})?"
                               : "(\\.\\d{1,17})?([eE][+-]?\\d{1,2})?");
    term t = pattern_term(s->p, form, (size_t)n, PATTERN_WHOLE, SPELL_PLAIN, s->e);
    if (bounded)
        t = term_and(s->p, t, term_and(s->p, m, number_range(s->p, &b)));
    return t;
}
