/* schema_shape.c - objects and arrays. Both are built from their end: what may follow after element
 * i, depending on how many are there already, is one term that all ways to get there share. */
#include "common/constraint/schema_impl.h"
#include "common/json.h"
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- properties */

enum { MAX_PROPERTIES = 2000, MAX_PATTERNS = 4, MAX_PREFIX = 1000 };

struct patterns { /* of the patternProperties of all schemas: pattern texts, each once */
    const char *text[MAX_PATTERNS];
    term t[MAX_PATTERNS]; /* keys that match, as the inside of a JSON string */
    int n;
};

struct object {
    const char *name[MAX_PROPERTIES];
    bool required[MAX_PROPERTIES];
    term pair[MAX_PROPERTIES]; /* "name": value */
    uint32_t n, n_required;
    struct patterns patterns;
    term others; /* a pair that no property names */
    uint32_t lo, hi;
};

static uint32_t property(struct schema *s, struct object *o, const char *name, const cJSON *at)
{
    uint32_t i = 0;
    while (i < o->n && strcmp(o->name[i], name) != 0)
        i++;
    term_work(s->p, i / 4);
    if (i == MAX_PROPERTIES) {
        schema_fail(s, at, "more than %d properties", MAX_PROPERTIES);
        return 0;
    }
    if (i == o->n)
        o->name[o->n++] = name;
    return i;
}

/* The schemas under a keyword, by name; NULL if there are none, or a list, whose items have no
 * names. */
static const cJSON *named(struct schema *s, const cJSON *at, const char *keyword)
{
    const cJSON *v = json_get(at, keyword);
    if (!v || cJSON_IsObject(v))
        return v;
    schema_fail(s, v, "`%s` is no object", keyword);
    return NULL;
}

static void collect_patterns(struct schema *s, const struct conj *c, struct patterns *out)
{
    for (int i = 0; i < c->n; i++) {
        const cJSON *kid;
        cJSON_ArrayForEach(kid, named(s, c->at[i], "patternProperties"))
        {
            int k = 0;
            while (k < out->n && strcmp(out->text[k], kid->string) != 0)
                k++;
            if (k < out->n)
                continue;
            if (k == MAX_PATTERNS) {
                schema_fail(s, kid, "more than %d patterns of properties", MAX_PATTERNS);
                return;
            }
            struct err e = ERR_INIT;
            out->t[k] = pattern_term(s->p, kid->string, strlen(kid->string), PATTERN_SEARCH,
                                     SPELL_JSON, &e);
            if (out->t[k] == TERM_NONE)
                schema_fail(s, kid, "%.150s", e.msg);
            out->text[out->n++] = kid->string;
        }
    }
}

static void collect_names(struct schema *s, const struct conj *c, struct object *o)
{
    for (int i = 0; i < c->n && !s->failed; i++) {
        const cJSON *kid;
        cJSON_ArrayForEach(kid, named(s, c->at[i], "properties"))
        {
            property(s, o, kid->string, kid);
            if (s->failed)
                return;
        }
    }
    for (int i = 0; i < c->n && !s->failed; i++) {
        const cJSON *required = json_get(c->at[i], "required"), *kid;
        if (required && !cJSON_IsArray(required))
            schema_fail(s, required, "`required` is no array");
        cJSON_ArrayForEach(kid, required)
        {
            if (!cJSON_IsString(kid)) {
                schema_fail(s, kid, "no name of a property");
                return;
            }
            o->required[property(s, o, kid->valuestring, kid)] = true;
            if (s->failed)
                return;
        }
    }
    for (uint32_t i = 0; i < o->n; i++)
        o->n_required += o->required[i];
}

/* What must hold of the value under a key: of the schemas that name it, whose patterns match it
 * (`matches`: bit per pattern), or whose additionalProperties covers it. `name` NULL: a key that
 * nobody names. */
static struct conj key_conj(struct schema *s, const struct conj *c, const struct patterns *p,
                            const char *name, unsigned matches)
{
    struct conj out = {.n = 0};
    for (int i = 0; i < c->n; i++) {
        const cJSON *properties = json_get(c->at[i], "properties");
        const cJSON *own = name ? cJSON_GetObjectItemCaseSensitive(properties, name) : NULL;
        const cJSON *by_pattern = json_get(c->at[i], "patternProperties");
        bool covered = own != NULL;
        if (own)
            conj_add(s, &out, own);
        for (int k = 0; k < p->n; k++) {
            const cJSON *of = cJSON_GetObjectItemCaseSensitive(by_pattern, p->text[k]);
            if (of && matches >> k & 1) {
                conj_add(s, &out, of);
                covered = true;
            }
        }
        const cJSON *more = cJSON_GetObjectItemCaseSensitive(c->at[i], "additionalProperties");
        if (!covered)
            conj_add(s, &out, more);
        /* who lists properties and says nothing of others does not expect any */
        out.never |= !covered && !name && !more && (properties || by_pattern);
    }
    return out;
}

static term key_value(struct schema *s, term key, term value)
{
    term colon = term_cat(s->p, lit(s, ":"), s->colon_blank);
    return term_cat(s->p, schema_quoted(s, key), term_cat(s->p, colon, value));
}

static void name_pairs(struct schema *s, const struct conj *c, struct object *o)
{
    for (uint32_t i = 0; i < o->n && !s->failed; i++) {
        size_t n = strlen(o->name[i]);
        if (n > MAX_LITERAL) {
            schema_fail(s, NULL, "a property's name is too long");
            return;
        }
        term key = chars_json_text(s->p, o->name[i], n);
        unsigned matches = 0;
        for (int k = 0; k < o->patterns.n; k++) { /* the key's own text decides */
            term seen = term_and(s->p, o->patterns.t[k], key);
            matches |= (unsigned)term_possible(s->p, seen) << k;
        }
        struct conj of = key_conj(s, c, &o->patterns, o->name[i], matches);
        o->pair[i] = key_value(s, key, schema_value(s, &of));
    }
}

/* Pairs whose key no property names: one alternative for each set of patterns that a key may
 * match. Keys are spelled in one way only, so that none is a property's name in disguise. */
static void other_pairs(struct schema *s, const struct conj *c, struct object *o)
{
    term *named = malloc((o->n + 1) * sizeof(*named));
    o->others = TERM_NONE;
    for (uint32_t i = 0; named && i < o->n; i++)
        named[i] = chars_json_text(s->p, o->name[i], strlen(o->name[i]));
    term names = named ? term_alt_n(s->p, named, o->n) : TERM_ALL;
    free(named);
    term free_key =
        term_and(s->p, term_repeat(s->p, s->char_once, 0, TERM_UNBOUNDED), term_not(s->p, names));
    for (unsigned matches = 0; matches < 1u << o->patterns.n; matches++) {
        struct conj of = key_conj(s, c, &o->patterns, NULL, matches);
        term key = free_key;
        for (int k = 0; k < o->patterns.n; k++) {
            term t = o->patterns.t[k];
            key = term_and(s->p, key, matches >> k & 1 ? t : term_not(s->p, t));
        }
        o->others = term_alt(s->p, o->others, key_value(s, key, schema_value(s, &of)));
    }
}

/* Behind the properties, `have` of which were written: others, separated by commas. */
static term trailing(struct schema *s, const struct object *o, uint32_t have)
{
    uint32_t lo = o->lo > have ? o->lo - have : 0;
    uint32_t hi = o->hi == TERM_UNBOUNDED ? o->hi : o->hi < have ? 0 : o->hi - have;
    if (o->hi != TERM_UNBOUNDED && o->hi < have)
        return TERM_NONE;
    if (lo > 1) /* the same key twice would count once */
        return TERM_NONE;
    if (have)
        return term_repeat(s->p, term_cat(s->p, s->comma, o->others), lo, hi);
    if (!hi || o->others == TERM_NONE)
        return lo ? TERM_NONE : TERM_EMPTY;
    uint32_t rest = hi == TERM_UNBOUNDED ? hi : hi - 1;
    term some =
        term_cat(s->p, o->others, term_repeat(s->p, term_cat(s->p, s->comma, o->others), 0, rest));
    return lo ? some : term_opt(s->p, some);
}

/* tail[h]: what may follow property i when h of them were written (all counts above `most` are
 * alike). From the last property to the first. */
static term inside_object(struct schema *s, struct object *o)
{
    uint32_t most = o->lo > 1 ? o->lo : 1;
    if (o->hi != TERM_UNBOUNDED && o->hi + 1 > most)
        most = o->hi + 1;
    most = most < o->n + 1 ? most : o->n + 1;
    term *tail = malloc((most + 1) * sizeof(*tail)), t = TERM_NONE;
    if (!tail)
        return schema_fail(s, NULL, "no memory");
    for (uint32_t h = 0; h <= most; h++)
        tail[h] = trailing(s, o, h);
    for (uint32_t i = o->n; i-- > 0;)
        for (uint32_t h = 0; h <= most; h++) { /* ascending: tail[h + 1] is of property i + 1 yet */
            uint32_t then = h < most ? h + 1 : most;
            term pair = h ? term_cat(s->p, s->comma, o->pair[i]) : o->pair[i];
            term with = term_cat(s->p, pair, tail[then]);
            tail[h] = o->required[i] ? with : term_alt(s->p, with, tail[h]);
        }
    t = tail[0];
    free(tail);
    return t;
}

term schema_object(struct schema *s, const struct conj *c)
{
    struct object *o = calloc(1, sizeof(*o));
    if (!o)
        return schema_fail(s, NULL, "no memory");
    schema_indent(s, +1);
    o->lo = conj_bound(s, c, "minProperties", true, 0);
    o->hi = conj_bound(s, c, "maxProperties", false, TERM_UNBOUNDED);
    collect_patterns(s, c, &o->patterns);
    collect_names(s, c, o);
    if (!s->failed)
        name_pairs(s, c, o);
    if (!s->failed)
        other_pairs(s, c, o);
    term inside = s->failed ? TERM_NONE : inside_object(s, o);
    free(o);
    return schema_enclosed(s, "{", inside, "}");
}

/* ---------------------------------------------------------------- arrays */

static const cJSON *prefix_items(const cJSON *node)
{
    const cJSON *prefix = json_get(node, "prefixItems"), *items = json_get(node, "items");
    return prefix ? prefix : cJSON_IsArray(items) ? items : NULL; /* drafts before 2020 */
}

/* Element i; i at or past all prefixes: every further one. */
static term element(struct schema *s, const struct conj *c, int i)
{
    struct conj of = {.n = 0};
    for (int k = 0; k < c->n; k++) {
        const cJSON *prefix = prefix_items(c->at[k]);
        const cJSON *items = cJSON_GetObjectItemCaseSensitive(c->at[k], "items");
        if (prefix && i < cJSON_GetArraySize(prefix))
            conj_add(s, &of, cJSON_GetArrayItem(prefix, i));
        else
            conj_add(s, &of,
                     cJSON_IsArray(items)
                         ? cJSON_GetObjectItemCaseSensitive(c->at[k], "additionalItems")
                         : items);
    }
    return schema_value(s, &of);
}

/* The elements from the end of the prefix on, of which `lo` to `hi` are wanted. */
static term further(struct schema *s, term of, bool first, uint32_t lo, uint32_t hi)
{
    term next = term_cat(s->p, s->comma, of);
    if (!first)
        return term_repeat(s->p, next, lo, hi);
    if (!hi || of == TERM_NONE)
        return lo ? TERM_NONE : TERM_EMPTY;
    uint32_t less = lo ? lo - 1 : 0, rest = hi == TERM_UNBOUNDED ? hi : hi - 1;
    term some = term_cat(s->p, of, term_repeat(s->p, next, less, rest));
    return lo ? some : term_opt(s->p, some);
}

term schema_array(struct schema *s, const struct conj *c)
{
    uint32_t lo = conj_bound(s, c, "minItems", true, 0);
    uint32_t hi = conj_bound(s, c, "maxItems", false, TERM_UNBOUNDED), n = 0;
    for (int k = 0; k < c->n; k++) {
        const cJSON *prefix = prefix_items(c->at[k]);
        if (prefix && !cJSON_IsArray(prefix))
            return schema_fail(s, prefix, "`prefixItems` is no array");
        uint32_t own = (uint32_t)cJSON_GetArraySize(prefix);
        if (own > MAX_PREFIX)
            return schema_fail(s, prefix, "more than %d items", MAX_PREFIX);
        n = own > n ? own : n;
    }
    term inside = TERM_NONE;
    schema_indent(s, +1);
    if (lo <= hi && hi >= n)
        inside = further(s, element(s, c, (int)n), !n, lo > n ? lo - n : 0,
                         hi == TERM_UNBOUNDED ? hi : hi - n);
    else
        n = hi; /* the prefix ends early */
    if (hi == n && inside == TERM_NONE && lo <= hi)
        inside = TERM_EMPTY;
    for (uint32_t i = n; i-- > 0 && !s->failed;) {
        term one = term_cat(
            s->p, i ? term_cat(s->p, s->comma, element(s, c, (int)i)) : element(s, c, (int)i),
            inside);
        inside = i >= lo ? term_alt(s->p, one, TERM_EMPTY) : one;
    }
    return schema_enclosed(s, "[", inside, "]");
}
