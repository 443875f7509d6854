/* schema_flat.c - schemas without alternatives: types, enum, const. */
#include "common/constraint/schema_impl.h"
#include "common/json/exact.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- types */

static const struct {
    const char *name;
    unsigned bits;
} types[] = {{"null", T_NULL},       {"boolean", T_BOOL},
             {"integer", T_INTEGER}, {"number", T_NUMBER | T_INTEGER},
             {"string", T_STRING},   {"array", T_ARRAY},
             {"object", T_OBJECT}};
/* keywords that apply to one type */
static const struct {
    const char *key;
    unsigned bits;
} hints[] = {{"properties", T_OBJECT},
             {"required", T_OBJECT},
             {"additionalProperties", T_OBJECT},
             {"patternProperties", T_OBJECT},
             {"minProperties", T_OBJECT},
             {"maxProperties", T_OBJECT},
             {"items", T_ARRAY},
             {"prefixItems", T_ARRAY},
             {"minItems", T_ARRAY},
             {"maxItems", T_ARRAY},
             {"minLength", T_STRING},
             {"maxLength", T_STRING},
             {"pattern", T_STRING},
             {"format", T_STRING},
             {"minimum", T_NUMBER | T_INTEGER},
             {"maximum", T_NUMBER | T_INTEGER},
             {"exclusiveMinimum", T_NUMBER | T_INTEGER},
             {"exclusiveMaximum", T_NUMBER | T_INTEGER},
             {"multipleOf", T_NUMBER | T_INTEGER},
             {"propertyNames", T_OBJECT},
             {"unevaluatedProperties", T_OBJECT},
             {"additionalItems", T_ARRAY},
             {"contains", T_ARRAY},
             {"uniqueItems", T_ARRAY},
             {"unevaluatedItems", T_ARRAY}};

static unsigned type_bit(struct schema *s, const cJSON *t)
{
    const char *name = cJSON_GetStringValue(t);
    for (size_t i = 0; name && i < sizeof(types) / sizeof(*types); i++)
        if (!strcmp(types[i].name, name))
            return types[i].bits;
    schema_fail(s, t, "an unknown type");
    return 0;
}

unsigned schema_types(struct schema *s, const cJSON *type)
{
    unsigned own = 0;
    const cJSON *one;
    if (!cJSON_IsArray(type))
        return type_bit(s, type);
    cJSON_ArrayForEach(one, type) own |= type_bit(s, one);
    return own;
}

unsigned conj_types(struct schema *s, const struct conj *c)
{
    unsigned all = T_NULL | T_BOOL | T_INTEGER | T_NUMBER | T_STRING | T_ARRAY | T_OBJECT;
    unsigned bits = all, hinted = 0;
    bool typed = false;
    for (int i = 0; i < c->n; i++) {
        const cJSON *t = json_get(c->at[i], "type");
        for (size_t h = 0; s->closed && !is_made(c->at[i]) && h < sizeof(hints) / sizeof(*hints);
             h++)
            if (json_get(c->at[i], hints[h].key))
                hinted |= hints[h].bits;
        if (!t)
            continue;
        bits &= schema_types(s, t);
        typed = true;
    }
    return !typed && hinted ? hinted : bits;
}

/* A literal scalar, unless c excludes it. */
static term word(struct schema *s, const struct conj *c, const char *text, int type)
{
    for (int i = 0; i < c->n; i++) {
        const cJSON *kid;
        cJSON_ArrayForEach(kid, made_get(c->at[i], MADE_EXCEPT)) if ((kid->type & 0xff) ==
                                                                     type) return TERM_NONE;
    }
    return lit(s, text);
}

static term typed_value(struct schema *s, const struct conj *c, unsigned bits)
{
    term t = TERM_NONE;
    if (bits & T_OBJECT)
        t = term_alt(s->p, t, schema_object(s, c));
    if (bits & T_ARRAY)
        t = term_alt(s->p, t, schema_array(s, c));
    if (bits & T_STRING)
        t = term_alt(s->p, t, schema_string(s, c));
    if (bits & (T_NUMBER | T_INTEGER))
        t = term_alt(s->p, t, schema_number(s, c, !(bits & T_NUMBER)));
    if (bits & T_BOOL)
        t = term_alt(
            s->p, t,
            term_alt(s->p, word(s, c, "true", cJSON_True), word(s, c, "false", cJSON_False)));
    if (bits & T_NULL)
        t = term_alt(s->p, t, word(s, c, "null", cJSON_NULL));
    return t;
}

/* ---------------------------------------------------------------- enum and const */

bool value_allowed(struct schema *s, const cJSON *node, const cJSON *value, const cJSON *own)
{
    const cJSON *list = json_get(node, "enum"),
                *one = cJSON_GetObjectItemCaseSensitive(node, "const");
    if (one && !json_same(one, value))
        return false;
    if (!list || own == list)
        return true;
    const cJSON *kid;
    cJSON_ArrayForEach(kid, list)
    {
        term_work(s->p, 1);
        if (kid == value || json_same(kid, value))
            return true;
    }
    return false;
}

bool has_values(const cJSON *node)
{
    return cJSON_GetObjectItemCaseSensitive(node, "const") || json_get(node, "enum");
}

/* An integral number by its digits only; TERM_NONE: not integral, or already written so. */
static term plain_number(struct schema *s, const cJSON *value)
{
    char room[32];
    struct decimal d;
    struct buf b = BUF_INIT;
    if (!cJSON_IsNumber(value) || !strpbrk(json_number_text(value, room), ".eE") ||
        !decimal_of(&d, value) || !decimal_integer(&d))
        return TERM_NONE;
    if (d.negative)
        buf_ch(&b, '-');
    buf_str(&b, d.n ? d.digit : "0");
    for (int i = d.n; i < d.point; i++)
        buf_ch(&b, '0');
    if (b.oom)
        term_no_memory(s->p);
    term t = b.oom ? TERM_NONE : term_bytes_of(s->p, b.p, b.len);
    buf_free(&b);
    return t;
}

enum { MAX_MEMBERS = 4 }; /* properties that may come in any order */

static term spelled(struct schema *s, const cJSON *value);

static term member(struct schema *s, const cJSON *value)
{
    if (!value->string)
        return spelled(s, value);
    term key = schema_quoted(s, chars_json_text(s->p, value->string, strlen(value->string)));
    term colon = term_cat(s->p, lit(s, ":"), s->colon_blank);
    return term_cat(s->p, key, term_cat(s->p, colon, spelled(s, value)));
}

static term in_order(struct schema *s, const cJSON *value)
{
    term t = TERM_EMPTY;
    for (const cJSON *kid = value->child->prev;; kid = kid->prev) {
        t = term_cat(s->p, member(s, kid), t);
        if (kid == value->child)
            return t;
        t = term_cat(s->p, s->comma, t);
    }
}

static term in_any_order(struct schema *s, const cJSON *value, int n)
{
    term tail[1 << MAX_MEMBERS], of[MAX_MEMBERS];
    const cJSON *kid = value->child;
    assert(n >= 0 && n <= MAX_MEMBERS);
    for (int i = 0; i < n; i++, kid = kid->next)
        of[i] = member(s, kid);
    tail[0] = TERM_NONE;
    for (unsigned all = (1u << n) - 1, set = all + 1; set-- > 0;) {
        tail[set] = set == all ? TERM_EMPTY : TERM_NONE;
        for (int i = 0; i < n; i++) {
            if (set >> i & 1)
                continue;
            term one = set ? term_cat(s->p, s->comma, of[i]) : of[i];
            tail[set] = term_alt(s->p, tail[set], term_cat(s->p, one, tail[set | 1u << i]));
        }
    }
    return tail[0];
}

/* A value in the spellings allowed to a model: with white space between tokens, and few members in
 * any order. */
static term spelled(struct schema *s, const cJSON *value)
{
    const bool array = cJSON_IsArray(value);
    const int n = cJSON_GetArraySize(value);
    struct buf text = BUF_INIT;
    term t;
    if ((array || cJSON_IsObject(value)) && n) {
        schema_indent(s, +1);
        t = array || n > MAX_MEMBERS ? in_order(s, value) : in_any_order(s, value, n);
        return schema_enclosed(s, array ? "[" : "{", t, array ? "]" : "}");
    }
    json_print_exact(&text, value);
    t = text.oom ? schema_nomem(s) : term_bytes_of(s->p, text.p, text.len);
    buf_free(&text);
    return term_alt(s->p, t, plain_number(s, value)); /* 2.0 also as 2 */
}

/* `value` (of the list `own`) as text, if it satisfies all of c; `rest`: the language of c without
 * its values. */
static term value_text(struct schema *s, const struct conj *c, const cJSON *value, const cJSON *own,
                       term rest)
{
    for (int i = 0; i < c->n; i++)
        if (!value_allowed(s, c->at[i], value, own))
            return TERM_NONE;
    struct buf text = BUF_INIT;
    term t = TERM_NONE;
    json_print_exact(&text, value);
    if (text.oom)
        schema_nomem(s);
    else if (text.len > MAX_LITERAL)
        schema_fail(s, value, "a value too long to be written out");
    else if (term_nullable(s->p, term_after_all(s->p, rest, text.p, text.len)))
        t = spelled(s, value);
    else /* 2.0 where only 2 is allowed */
        t = term_and(s->p, plain_number(s, value), rest);
    buf_free(&text);
    return t;
}

static term listed_values(struct schema *s, const struct conj *c, const cJSON *node, term rest)
{
    const cJSON *list = json_get(node, "enum"), *kid;
    if (!list)
        return value_text(s, c, cJSON_GetObjectItemCaseSensitive(node, "const"), NULL, rest);
    if (!cJSON_IsArray(list) || !cJSON_GetArraySize(list))
        return schema_fail(s, list, "`enum` is not a list of values");
    size_t n = 0;
    term *part = malloc((size_t)cJSON_GetArraySize(list) * sizeof(*part)), t = TERM_NONE;
    if (!part)
        return schema_nomem(s);
    cJSON_ArrayForEach(kid, list) part[n++] = value_text(s, c, kid, list, rest);
    t = term_alt_n(s->p, part, n);
    free(part);
    return t;
}

/* c is flat: without alternatives. */
term schema_flat(struct schema *s, const struct conj *c)
{
    unsigned bits = conj_types(s, c);
    const cJSON *values = NULL;
    bool typed = false;
    for (int i = 0; i < c->n; i++) {
        if (!values && has_values(c->at[i]))
            values = c->at[i];
        typed |= json_get(c->at[i], "type") != NULL;
    }
    if (!values)
        return typed_value(s, c, bits);
    bool plain = true; /* only values and types: no need to compare texts */
    for (int i = 0; i < c->n; i++) {
        plain &= !is_made(c->at[i]);
        for (size_t h = 0; h < sizeof(hints) / sizeof(*hints); h++)
            plain &= !cJSON_HasObjectItem(c->at[i], hints[h].key);
    }
    if (plain && !typed)
        return listed_values(s, c, values, TERM_ALL);
    return listed_values(s, c, values, typed_value(s, c, bits));
}
