/* schema_flat.c - schemas without alternatives: types, enum, const. */
#include "common/constraint/schema_impl.h"
#include "common/json.h"
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
/* keywords that speak of one type */
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
             {"multipleOf", T_NUMBER | T_INTEGER}};

static unsigned type_bits(struct schema *s, const cJSON *t)
{
    const char *name = cJSON_GetStringValue(t);
    for (size_t i = 0; name && i < sizeof(types) / sizeof(*types); i++)
        if (!strcmp(types[i].name, name))
            return types[i].bits;
    schema_fail(s, t, "an unknown type");
    return 0;
}

unsigned conj_types(struct schema *s, const struct conj *c)
{
    unsigned all = T_NULL | T_BOOL | T_INTEGER | T_NUMBER | T_STRING | T_ARRAY | T_OBJECT;
    unsigned bits = all, hinted = 0;
    bool typed = false;
    for (int i = 0; i < c->n; i++) {
        const cJSON *t = json_get(c->at[i], "type"), *one;
        unsigned own = 0;
        for (size_t h = 0; h < sizeof(hints) / sizeof(*hints); h++)
            if (json_get(c->at[i], hints[h].key))
                hinted |= hints[h].bits;
        if (!t)
            continue;
        if (cJSON_IsArray(t))
            cJSON_ArrayForEach(one, t) own |= type_bits(s, one);
        else
            own = type_bits(s, t);
        bits &= own;
        typed = true;
    }
    return !typed && hinted ? hinted : bits;
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
        t = term_alt(s->p, t, term_alt(s->p, lit(s, "true"), lit(s, "false")));
    if (bits & T_NULL)
        t = term_alt(s->p, t, lit(s, "null"));
    return t;
}

/* ---------------------------------------------------------------- enum and const */

bool value_allowed(struct schema *s, const cJSON *node, const cJSON *value, const cJSON *own)
{
    const cJSON *list = json_get(node, "enum"),
                *one = cJSON_GetObjectItemCaseSensitive(node, "const");
    if (one && !cJSON_Compare(one, value, true))
        return false;
    if (!list || own == list)
        return true;
    const cJSON *kid;
    cJSON_ArrayForEach(kid, list)
    {
        term_work(s->p, 1);
        if (kid == value || cJSON_Compare(kid, value, true))
            return true;
    }
    return false;
}

bool has_values(const cJSON *node)
{
    return cJSON_GetObjectItemCaseSensitive(node, "const") || json_get(node, "enum");
}

/* `value` (of the list `own`) written out, if it satisfies all of c; `rest`: the language of c
 * without its values. */
static term value_text(struct schema *s, const struct conj *c, const cJSON *value, const cJSON *own,
                       term rest)
{
    for (int i = 0; i < c->n; i++)
        if (!value_allowed(s, c->at[i], value, own))
            return TERM_NONE;
    char *text = cJSON_PrintUnformatted(value);
    size_t n = text ? strlen(text) : 0;
    term t = TERM_NONE;
    if (!text || n > MAX_LITERAL)
        schema_fail(s, value, "a value too long to be written out");
    else if (term_nullable(s->p, term_after_all(s->p, rest, text, n)))
        t = term_bytes_of(s->p, text, n);
    cJSON_free(text);
    return t;
}

static term listed_values(struct schema *s, const struct conj *c, const cJSON *node, term rest)
{
    const cJSON *list = json_get(node, "enum"), *kid;
    if (!list)
        return value_text(s, c, cJSON_GetObjectItemCaseSensitive(node, "const"), NULL, rest);
    if (!cJSON_IsArray(list) || !cJSON_GetArraySize(list))
        return schema_fail(s, list, "`enum` is no list of values");
    size_t n = 0;
    term *part = malloc((size_t)cJSON_GetArraySize(list) * sizeof(*part)), t = TERM_NONE;
    if (!part)
        return schema_fail(s, list, "no memory");
    cJSON_ArrayForEach(kid, list) part[n++] = value_text(s, c, kid, list, rest);
    t = term_alt_n(s->p, part, n);
    free(part);
    return t;
}

/* c is flat: no alternatives are left to choose. */
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
    bool plain = true; /* nothing but values and types: no need to look at their texts */
    for (size_t h = 0; h < sizeof(hints) / sizeof(*hints); h++)
        for (int i = 0; i < c->n; i++)
            plain &= !json_get(c->at[i], hints[h].key);
    if (plain && !typed)
        return listed_values(s, c, values, TERM_ALL);
    return listed_values(s, c, values, typed_value(s, c, bits));
}
