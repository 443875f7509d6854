/* schema_shape.c - objects, built from the end: the continuation after property i, given the number
 * of properties so far, is one term that all paths share. */
#include "common/constraint/schema_impl.h"
#include "common/json/exact.h"
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- properties */

enum { MAX_PROPERTIES = 2000, MAX_PATTERNS = 4, MAX_MUST = 4 };

struct patterns { /* of patternProperties in all schemas: pattern texts, without duplicates */
    const char *text[MAX_PATTERNS];
    term t[MAX_PATTERNS]; /* matching keys, as the inside of a JSON string */
    int n;
};

struct object_shape {
    const char *name[MAX_PROPERTIES];
    bool required[MAX_PROPERTIES];
    term pair[MAX_PROPERTIES]; /* "name": value */
    uint32_t n;
    struct patterns patterns;
    term names;          /* allowed by propertyNames, as a string; TERM_ALL: everything */
    term others;         /* a pair that no property names */
    term must[MAX_MUST]; /* such pairs, of which one must come last */
    int n_must;
    uint32_t lo, hi;
    bool distinct; /* `lo` needs more than one unnamed pair */
};

static uint32_t property(struct schema *s, struct object_shape *o, const char *name,
                         const cJSON *at)
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

/* The schemas under a keyword, by name. NULL: none, or a list, whose items have no names. */
static const cJSON *named(struct schema *s, const cJSON *at, const char *keyword)
{
    const cJSON *v = json_get(at, keyword);
    if (!v || cJSON_IsObject(v))
        return v;
    schema_fail(s, v, "`%s` is not an object", keyword);
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
            out->t[k] = schema_pattern(s, kid->string, &e);
            if (out->t[k] == TERM_NONE)
                schema_fail(s, kid, "%.150s", e.msg);
            out->text[out->n++] = kid->string;
        }
    }
}

static void collect_names(struct schema *s, const struct conj *c, struct object_shape *o)
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
            schema_fail(s, required, "`required` is not an array");
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
}

/* Adds the schemas of `node` that apply to the value of a key. */
static bool add_own(struct schema *s, struct conj *out, const cJSON *node, const struct patterns *p,
                    const char *name, unsigned matches)
{
    const cJSON *properties = json_get(node, "properties");
    const cJSON *own = name ? cJSON_GetObjectItemCaseSensitive(properties, name) : NULL;
    const cJSON *by_pattern = json_get(node, "patternProperties");
    bool covered = own != NULL;
    if (own)
        conj_add(s, out, own);
    for (int k = 0; k < p->n; k++) {
        const cJSON *of = cJSON_GetObjectItemCaseSensitive(by_pattern, p->text[k]);
        if (of && matches >> k & 1) {
            conj_add(s, out, of);
            covered = true;
        }
    }
    return covered;
}

/* unevaluatedProperties of at[i]: applies to keys that no schema under it evaluates. */
static void add_unevaluated(struct schema *s, struct conj *out, const struct conj *c, int i,
                            uint64_t speak)
{
    const cJSON *rest = cJSON_GetObjectItemCaseSensitive(c->at[i], "unevaluatedProperties");
    for (int k = 0; rest && k < c->n; k++) {
        bool inside = c->under[k] >> i & 1 && !is_made(c->at[k]);
        if (inside && (speak >> k & 1 || json_get(c->at[k], "additionalProperties") ||
                       (k != i && json_get(c->at[k], "unevaluatedProperties"))))
            return;
    }
    conj_add(s, out, rest);
}

/* The conditions on the value of a key: schemas that name it, whose patterns match it (`matches`:
 * bit per pattern), or whose additionalProperties covers it. `name` NULL: a key that no keyword
 * names. */
static struct conj key_conj(struct schema *s, const struct conj *c, const struct patterns *p,
                            const char *name, unsigned matches)
{
    struct conj out = {.n = 0};
    uint64_t speak = 0;
    for (int i = 0; i < c->n; i++) {
        const cJSON *more = cJSON_GetObjectItemCaseSensitive(c->at[i], "additionalProperties");
        bool covered = add_own(s, &out, c->at[i], p, name, matches);
        speak |= (uint64_t)covered << i;
        if (!covered)
            conj_add(s, &out, more);
        /* closed schemas: listed properties exclude others unless stated otherwise */
        out.never |= s->closed && !is_made(c->at[i]) && !covered && !name && !more &&
                     (json_get(c->at[i], "properties") || json_get(c->at[i], "patternProperties"));
    }
    for (int i = 0; c->unevaluated && i < c->n; i++)
        add_unevaluated(s, &out, c, i, speak);
    return out;
}

static term pair_of(struct schema *s, term quoted, term value)
{
    term colon = term_cat(s->p, lit(s, ":"), s->colon_blank);
    return term_cat(s->p, quoted, term_cat(s->p, colon, value));
}

static term key_value(struct schema *s, term key, term value)
{
    return pair_of(s, schema_quoted(s, key), value);
}

/* A string that all propertyNames allow. */
static term key_names(struct schema *s, const struct conj *c)
{
    struct conj of = {.n = 0};
    for (int i = 0; i < c->n; i++)
        conj_add(s, &of, cJSON_GetObjectItemCaseSensitive(c->at[i], "propertyNames"));
    if (!of.n || s->failed)
        return of.never ? TERM_NONE : TERM_ALL;
    conj_add(s, &of, schema_made(s, MADE_STRING, s->root));
    return schema_value(s, &of);
}

static bool name_allowed(struct schema *s, const struct object_shape *o, const char *name)
{
    struct buf b = BUF_INIT;
    cJSON text = {.type = cJSON_String, .valuestring = (char *)(uintptr_t)name};
    if (o->names == TERM_ALL)
        return true;
    json_print_exact(&b, &text);
    if (b.oom)
        term_no_memory(s->p);
    bool yes = !b.oom && term_nullable(s->p, term_after_all(s->p, o->names, b.p, b.len));
    buf_free(&b);
    return yes;
}

static void name_pairs(struct schema *s, const struct conj *c, struct object_shape *o)
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
        o->pair[i] =
            name_allowed(s, o, o->name[i]) ? key_value(s, key, schema_value(s, &of)) : TERM_NONE;
    }
}

/* One of the other pairs satisfies `must`. The last of equal keys counts, so it must be the last
 * pair. */
static void must_pair(struct schema *s, struct object_shape *o, const cJSON *must, term free_key)
{
    struct conj key = {.n = 0}, value = {.n = 0};
    if (!must)
        return;
    if (o->n_must == MAX_MUST) { /* too many: omitted */
        o->must[0] = TERM_NONE;
        return;
    }
    conj_add(s, &key, schema_made(s, MADE_STRING, s->root));
    conj_add(s, &key, json_get(must, "key"));
    conj_add(s, &value, cJSON_GetObjectItemCaseSensitive(must, "value"));
    term quoted = term_and(s->p, free_key, schema_value(s, &key));
    term pair = pair_of(s, quoted, schema_value(s, &value));
    o->must[o->n_must++] = term_and(s->p, pair, o->others);
}

/* Pairs whose key no property names: one alternative per set of patterns that a key may match. Keys
 * have a single spelling, so none can equal a property's name. */
static void other_pairs(struct schema *s, const struct conj *c, struct object_shape *o)
{
    term *named = malloc((o->n + 1) * sizeof(*named));
    o->others = TERM_NONE;
    for (uint32_t i = 0; named && i < o->n; i++)
        named[i] = chars_json_text(s->p, o->name[i], strlen(o->name[i]));
    if (!named)
        term_no_memory(s->p);
    term names = named ? term_alt_n(s->p, named, o->n) : TERM_ALL;
    free(named);
    term free_key =
        term_and(s->p, term_repeat(s->p, s->char_once, 0, TERM_UNBOUNDED), term_not(s->p, names));
    for (unsigned matches = 0; matches < 1u << o->patterns.n && !s->failed; matches++) {
        struct conj of = key_conj(s, c, &o->patterns, NULL, matches);
        term key = free_key;
        for (int k = 0; k < o->patterns.n; k++) {
            term t = o->patterns.t[k];
            key = term_and(s->p, key, matches >> k & 1 ? t : term_not(s->p, t));
        }
        term value = schema_value(s, &of);
        term quoted = term_and(s->p, schema_quoted(s, key), o->names);
        o->others = term_alt(s->p, o->others, pair_of(s, quoted, value));
    }
    for (int i = 0; i < c->n && !s->failed; i++)
        must_pair(s, o, made_get(c->at[i], MADE_MUST), schema_quoted(s, free_key));
}

/* After the properties, with `have` of them written. */
static term trailing(struct schema *s, const struct object_shape *o, uint32_t have)
{
    uint32_t lo = o->lo > have ? o->lo - have : 0;
    uint32_t hi = o->hi == TERM_UNBOUNDED ? o->hi : o->hi < have ? 0 : o->hi - have;
    if (o->hi != TERM_UNBOUNDED && o->hi < have)
        return TERM_NONE;
    if (lo > 1 && !o->distinct) /* a repeated key would count once */
        return TERM_NONE;
    term t, must = TERM_ALL;
    if (lo > 1 && lo <= hi) {
        t = schema_distinct(s, o->others, lo);
        t = have ? term_cat(s->p, s->comma, t) : t;
        t = term_cat(s->p, t,
                     schema_list(s, o->others, false, 0, hi == TERM_UNBOUNDED ? hi : hi - lo));
    } else {
        t = schema_list(s, o->others, !have, lo, hi);
    }
    for (int i = 0; i < o->n_must; i++)
        must = term_and(s->p, must, o->must[i]);
    if (!o->n_must)
        return t;
    /* all but the last one */
    term last = have ? term_cat(s->p, s->comma, must) : must;
    term more = term_cat(s->p, schema_list(s, o->others, !have, 1, TERM_UNBOUNDED),
                         term_cat(s->p, s->comma, must));
    return term_and(s->p, term_alt(s->p, last, more), t);
}

enum { MAX_FREE = 5 };

/* Does one schema define the order of the names? Names that no instance may have are ignored. */
static bool ordered(const struct conj *c, const struct object_shape *o)
{
    uint32_t most = 0, possible = 0;
    for (uint32_t k = 0; k < o->n; k++)
        possible += o->pair[k] != TERM_NONE;
    for (int i = 0; i < c->n; i++) {
        const cJSON *of = is_made(c->at[i]) ? NULL : json_get(c->at[i], "properties");
        uint32_t own = 0;
        for (uint32_t k = 0; of && k < o->n; k++)
            own += o->pair[k] != TERM_NONE && cJSON_HasObjectItem(of, o->name[k]);
        most = own > most ? own : most;
    }
    return most == possible || possible > MAX_FREE;
}

/* Few properties in any order: the continuation depends on those already written. */
static term any_order(struct schema *s, const struct object_shape *o)
{
    uint32_t at[MAX_FREE], n = 0;
    unsigned needed = 0;
    term tail[1 << MAX_FREE];
    for (uint32_t i = 0; i < o->n; i++) {
        if (o->pair[i] == TERM_NONE && o->required[i])
            return TERM_NONE;
        if (o->pair[i] == TERM_NONE)
            continue;
        needed |= (unsigned)o->required[i] << n;
        at[n++] = i;
    }
    for (unsigned set = 1u << n; set-- > 0;) {
        tail[set] = (set & needed) == needed ? trailing(s, o, (uint32_t)__builtin_popcount(set))
                                             : TERM_NONE;
        for (uint32_t i = 0; i < n; i++) {
            if (set >> i & 1)
                continue;
            term pair = set ? term_cat(s->p, s->comma, o->pair[at[i]]) : o->pair[at[i]];
            tail[set] = term_alt(s->p, tail[set], term_cat(s->p, pair, tail[set | 1u << i]));
        }
    }
    return tail[0];
}

/* tail[h]: the continuation after property i if h of them were written (counts above `most` are
 * merged). From the last property to the first. */
static term inside_object(struct schema *s, struct object_shape *o)
{
    uint32_t most = o->lo > 1 ? o->lo : 1;
    if (o->hi != TERM_UNBOUNDED && o->hi + 1 > most)
        most = o->hi + 1;
    most = most < o->n + 1 ? most : o->n + 1;
    term *tail = malloc((most + 1) * sizeof(*tail)), t = TERM_NONE;
    if (!tail)
        return schema_nomem(s);
    for (uint32_t h = 0; h <= most; h++)
        tail[h] = trailing(s, o, h);
    for (uint32_t i = o->n; i-- > 0;)
        /* ascending: tail[h + 1] is still that of property i + 1 */
        for (uint32_t h = 0; h <= most; h++) {
            uint32_t then = h < most ? h + 1 : most;
            term pair = h ? term_cat(s->p, s->comma, o->pair[i]) : o->pair[i];
            term with = term_cat(s->p, pair, tail[then]);
            tail[h] = o->required[i] ? with : term_alt(s->p, with, tail[h]);
        }
    t = tail[0];
    free(tail);
    return t;
}

/* Two unnamed properties may be one, whose last value counts, so `minProperties` can require few of
 * them only, and does so where the named ones are too few. Refused if that is not enough. Negations
 * of `maxProperties` leave such alternatives out: a `oneOf` may have many. */
static void check_least(struct schema *s, const struct conj *c, struct object_shape *o)
{
    uint32_t named = 0;
    if (o->lo <= 1 || o->hi < o->lo || !term_possible(s->p, o->others))
        return;
    for (uint32_t i = 0; i < o->n; i++)
        named += o->pair[i] != TERM_NONE;
    for (int i = 0; i < c->n && !o->distinct && !s->failed; i++) {
        const cJSON *k = is_made(c->at[i]) ? NULL : json_get(c->at[i], "minProperties");
        o->distinct = k && k->valuedouble > named + 1;
        if (o->distinct && schema_distinct(s, o->others, o->lo - named) == TERM_NONE)
            schema_fail(s, k, "`minProperties` of so many unnamed properties");
    }
}

term schema_object(struct schema *s, const struct conj *c)
{
    struct object_shape *o = calloc(1, sizeof(*o));
    if (!o)
        return schema_nomem(s);
    schema_indent(s, +1);
    o->lo = conj_bound(s, c, "minProperties", true, 0);
    o->hi = conj_bound(s, c, "maxProperties", false, TERM_UNBOUNDED);
    o->names = key_names(s, c);
    collect_patterns(s, c, &o->patterns);
    collect_names(s, c, o);
    if (!s->failed)
        name_pairs(s, c, o);
    if (!s->failed)
        other_pairs(s, c, o);
    if (!s->failed)
        check_least(s, c, o);
    term inside = s->failed ? TERM_NONE : ordered(c, o) ? inside_object(s, o) : any_order(s, o);
    free(o);
    return schema_enclosed(s, "{", inside, "}");
}
