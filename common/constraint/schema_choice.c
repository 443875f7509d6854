/* schema_choice.c - alternatives: anyOf, oneOf. */
#include "common/constraint/schema_impl.h"
#include "common/json/json.h"
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- disjoint schemas */

/* Are two schemas disjoint, as far as can be detected? By different types, or a required property
 * with different values, or one that the other forbids. */
enum apart {
    OVERLAP,
    APART_OBJECTS, /* no object satisfies both, but another value may */
    APART
};
static enum apart disjoint_flat(struct schema *s, const struct conj *a, const struct conj *b,
                                int depth);

static enum apart disjoint(struct schema *s, const cJSON *a, const cJSON *b, int depth)
{
    struct conj ca = {.n = 0}, cb = {.n = 0};
    term_work(s->p, 16);
    conj_add(s, &ca, a);
    conj_add(s, &cb, b);
    return ca.never || cb.never ? APART : disjoint_flat(s, &ca, &cb, depth);
}

static bool requires(const struct conj *c, const char *name)
{
    for (int i = 0; i < c->n; i++) {
        const cJSON *kid;
        cJSON_ArrayForEach(kid, json_get(c->at[i], "required"))
        {
            const char *v = cJSON_GetStringValue(kid);
            if (v && !strcmp(v, name))
                return true;
        }
    }
    return false;
}

static bool forbids(const struct conj *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (cJSON_IsFalse(json_get(c->at[i], "additionalProperties")) &&
            !json_get(c->at[i], "patternProperties") &&
            !json_get(json_get(c->at[i], "properties"), name))
            return true;
    return false;
}

/* A property that a requires is forbidden by b, or has other values there. */
static bool separated(struct schema *s, const struct conj *a, const struct conj *b, int depth)
{
    for (int i = 0; i < a->n; i++) {
        const cJSON *kid;
        cJSON_ArrayForEach(kid, json_get(a->at[i], "required"))
        {
            const char *name = cJSON_GetStringValue(kid);
            if (!name)
                continue;
            if (forbids(b, name))
                return true;
            for (int x = 0; requires(b, name) && x < a->n; x++)
                for (int y = 0; y < b->n; y++) {
                    const cJSON *u = json_get(json_get(a->at[x], "properties"), name);
                    const cJSON *v = json_get(json_get(b->at[y], "properties"), name);
                    if (u && v && disjoint(s, u, v, depth + 1) == APART)
                        return true;
                }
        }
    }
    return false;
}

/* Both list their values, without a common one. */
static bool other_values(struct schema *s, const struct conj *a, const struct conj *b)
{
    for (int x = 0; x < a->n; x++)
        for (int y = 0; y < b->n; y++) {
            const cJSON *list = json_get(a->at[x], "enum"), *kid;
            const cJSON *one = cJSON_GetObjectItemCaseSensitive(a->at[x], "const");
            bool common = one && value_allowed(s, b->at[y], one, NULL);
            if (!has_values(a->at[x]) || !has_values(b->at[y]))
                continue;
            cJSON_ArrayForEach(kid, list) common |= !one && value_allowed(s, b->at[y], kid, NULL);
            if (!common)
                return true;
        }
    return false;
}

static enum apart disjoint_flat(struct schema *s, const struct conj *a, const struct conj *b,
                                int depth)
{
    unsigned x = conj_types(s, a), y = conj_types(s, b);
    if (depth > 8)
        return OVERLAP;
    if (!(x & y) || other_values(s, a, b))
        return APART;
    if (x & y & T_OBJECT && (separated(s, a, b, depth) || separated(s, b, a, depth)))
        return (x & y) == T_OBJECT ? APART : APART_OBJECTS;
    return OVERLAP;
}

/* ---------------------------------------------------------------- tagged schemas */

/* The only text that property `name` of `kid` must have; NULL: optional, or not a single text. */
static const char *tag_of(struct schema *s, const cJSON *kid, const char *name)
{
    struct conj c = {.n = 0};
    conj_add(s, &c, kid);
    for (int i = 0; i < c.n && requires(&c, name); i++) {
        const cJSON *at = json_get(json_get(c.at[i], "properties"), name);
        const cJSON *of = json_get(at, "enum");
        const char *one = json_str(at, "const", NULL);
        if (one || (cJSON_IsArray(of) && cJSON_GetArraySize(of) == 1))
            return one ? one : cJSON_GetStringValue(of->child);
    }
    return NULL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool differ(struct schema *s, const cJSON *of, const char *name, const char **tag)
{
    const cJSON *kid;
    size_t n = 0;
    cJSON_ArrayForEach(kid, of) if (!(tag[n++] = tag_of(s, kid, name))) return false;
    qsort(tag, n, sizeof(*tag), by_text);
    for (size_t i = 1; i < n; i++)
        if (!strcmp(tag[i - 1], tag[i]))
            return false;
    return true;
}

/* All schemas of the list require one property with distinct texts: the usual tagged union, for
 * which pairs need not be compared. */
static bool tagged(struct schema *s, const cJSON *of)
{
    const char **tag = malloc((size_t)cJSON_GetArraySize(of) * sizeof(*tag));
    struct conj first = {.n = 0};
    bool found = false;
    conj_add(s, &first, of->child);
    for (int i = 0; tag && i < first.n; i++) {
        const cJSON *name;
        cJSON_ArrayForEach(name, json_get(first.at[i], "required"))
        {
            found = found || (cJSON_IsString(name) && differ(s, of, name->valuestring, tag));
        }
    }
    free(tag);
    return found;
}

/* ---------------------------------------------------------------- combinations */

static bool refers_to(struct schema *s, const cJSON *from, const cJSON *to)
{
    for (int i = 0; from && from != to && i < 32; i++) {
        const cJSON *ref = json_get(from, "$ref");
        from = ref ? schema_resolve(s, ref) : NULL;
    }
    return from == to;
}

/* `more` is c with one schema `kid` of a `oneOf`, and with all others excluded. */
static void exclude_others(struct schema *s, struct conj *more, const cJSON *of, const cJSON *kid,
                           bool tags)
{
    bool objects = tags;
    const cJSON *other;
    for (other = of->child; !tags && other && !s->failed; other = other->next) {
        enum apart apart = other == kid ? APART : disjoint(s, kid, other, 0);
        objects |= apart == APART_OBJECTS;
        if (apart == OVERLAP && cJSON_IsTrue(other))
            more->never = true;
        else if (apart == OVERLAP && cJSON_IsObject(other))
            conj_add(s, more, schema_made(s, MADE_NOT, other));
    }
    if (objects) /* other values may satisfy several of them */
        conj_add(s, more, schema_made(s, MADE_OBJECT, s->root));
}

static term choose_from(struct schema *s, const struct conj *c, int from);

/* The language of any schema in the list `of` together with c; `owner` has the list, `one`: as its
 * oneOf. */
static term one_of_list(struct schema *s, const struct conj *c, const cJSON *of, int owner,
                        bool one, int then)
{
    const cJSON *kid;
    const bool tags = one && tagged(s, of);
    size_t n = 0;
    term *part = malloc((size_t)cJSON_GetArraySize(of) * sizeof(*part)), t = TERM_NONE;
    if (!part)
        return schema_nomem(s);
    cJSON_ArrayForEach(kid, of)
    {
        struct conj more = *c;
        if (refers_to(s, kid, c->at[owner]))
            schema_fail(s, kid, "a schema that is an alternative to itself");
        conj_add_under(s, &more, kid, c->under[owner]);
        if (one && !s->failed)
            exclude_others(s, &more, of, kid, tags);
        if (s->failed)
            break;
        if (!more.never)
            part[n++] = choose_from(s, &more, then);
    }
    if (!s->failed)
        t = term_alt_n(s->p, part, n);
    free(part);
    return t;
}

enum { MOST_SUBSETS = 4 };

/* All matching schemas of an anyOf evaluate properties: one alternative per set of them. */
static term any_sets(struct schema *s, const struct conj *c, const cJSON *of, int owner, int then)
{
    const int n = cJSON_GetArraySize(of);
    term part[1 << MOST_SUBSETS];
    size_t parts = 0;
    for (int set = 1; set < 1 << n && !s->failed; set++) {
        struct conj more = *c;
        const cJSON *kid = of->child;
        for (int k = 0; k < n; k++, kid = kid->next)
            if (set >> k & 1)
                conj_add_under(s, &more, kid, c->under[owner]);
        if (!more.never && !s->failed)
            part[parts++] = choose_from(s, &more, then);
    }
    return s->failed ? TERM_NONE : term_alt_n(s->p, part, parts);
}

/* Chooses from the remaining alternatives, from number `from` on: 2 i is the anyOf of c->at[i], 2 i
 * + 1 its oneOf. */
static term choose_from(struct schema *s, const struct conj *c, int from)
{
    static const char *const keys[] = {"anyOf", "oneOf"};
    if (!conj_types(s, c))
        return TERM_NONE;
    for (int i = from / 2; i < c->n; i++)
        for (int k = i == from / 2 ? from % 2 : 0; k < 2; k++) {
            const cJSON *of = json_get(c->at[i], keys[k]);
            if (!of)
                continue;
            if (!cJSON_IsArray(of) || !cJSON_GetArraySize(of))
                return schema_fail(s, of, "`%s` is not a list of schemas", keys[k]);
            if (s->depth > MAX_NESTING)
                return schema_fail(s, of, "nested too deeply");
            s->depth++;
            bool sets = !k && c->unevaluated && !is_made(c->at[i]) &&
                        cJSON_GetArraySize(of) <= MOST_SUBSETS;
            term t = sets ? any_sets(s, c, of, i, i * 2 + k + 1)
                          : one_of_list(s, c, of, i, k == 1, i * 2 + k + 1);
            s->depth--;
            return t;
        }
    return schema_flat(s, c);
}

term schema_choose(struct schema *s, const struct conj *c) { return choose_from(s, c, 0); }
