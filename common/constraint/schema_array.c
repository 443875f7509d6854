/* schema_array.c - arrays, built from the end, like objects. */
#include "common/constraint/schema_impl.h"
#include "common/json/exact.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_PREFIX = 1000 };

term schema_list(struct schema *s, term of, bool first, uint32_t lo, uint32_t hi)
{
    term next = term_cat(s->p, s->comma, of);
    if (lo > hi)
        return TERM_NONE;
    if (!first)
        return term_repeat(s->p, next, lo, hi);
    if (!hi || of == TERM_NONE)
        return lo ? TERM_NONE : TERM_EMPTY;
    uint32_t less = lo ? lo - 1 : 0, rest = hi == TERM_UNBOUNDED ? hi : hi - 1;
    term some = term_cat(s->p, of, term_repeat(s->p, next, less, rest));
    return lo ? some : term_opt(s->p, some);
}

static const cJSON *prefix_items(const cJSON *node)
{
    const cJSON *prefix = json_get(node, "prefixItems"), *items = json_get(node, "items");
    return prefix ? prefix : cJSON_IsArray(items) ? items : NULL; /* drafts before 2020 */
}

/* Adds the schemas of `node` for element i; *covered: there are some. */
static void add_item(struct schema *s, struct conj *of, const cJSON *node, int i, bool *covered)
{
    const cJSON *prefix = prefix_items(node);
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(node, "items");
    const bool own = prefix && i < cJSON_GetArraySize(prefix);
    if (!own && cJSON_IsArray(items))
        items = cJSON_GetObjectItemCaseSensitive(node, "additionalItems");
    const cJSON *one = own ? cJSON_GetArrayItem(prefix, i) : items;
    *covered = one != NULL;
    conj_add(s, of, one);
}

/* Does unevaluatedItems of at[i] apply to an element that the schemas of `speak` evaluate? */
static bool left_over(const struct conj *c, int i, uint64_t speak)
{
    if (!cJSON_GetObjectItemCaseSensitive(c->at[i], "unevaluatedItems"))
        return false;
    for (int k = 0; k < c->n; k++)
        if (c->under[k] >> i & 1 && !is_made(c->at[k]) &&
            (speak >> k & 1 || (k != i && json_get(c->at[k], "unevaluatedItems"))))
            return false;
    return true;
}

/* An element that satisfies `of`, and unevaluatedItems of at[from] and the following. `contains` of
 * a schema under it evaluates the elements that satisfy it (not in draft 2019-09), so these are
 * alternatives. */
static term unevaluated(struct schema *s, const struct conj *c, const struct conj *of, int from,
                        uint64_t speak)
{
    while (from < c->n && !left_over(c, from, speak))
        from++;
    if (from >= c->n || s->failed)
        return schema_value(s, of);
    struct conj more = *of;
    conj_add(s, &more, cJSON_GetObjectItemCaseSensitive(c->at[from], "unevaluatedItems"));
    term t = unevaluated(s, c, &more, from + 1, speak);
    for (int k = 0; s->draft > 2019 && k < c->n; k++) {
        const cJSON *contains = cJSON_GetObjectItemCaseSensitive(c->at[k], "contains");
        if (!contains || is_made(c->at[k]) || !(c->under[k] >> from & 1))
            continue;
        more = *of;
        conj_add(s, &more, contains);
        t = term_alt(s->p, t, unevaluated(s, c, &more, from + 1, speak));
    }
    return t;
}

/* Element i; for i past all prefixes: every further one. `also`: an additional schema. */
static term element(struct schema *s, const struct conj *c, int i, const cJSON *also)
{
    struct conj of = {.n = 0};
    uint64_t speak = 0;
    for (int k = 0; k < c->n; k++) {
        bool covered;
        add_item(s, &of, c->at[k], i, &covered);
        speak |= (uint64_t)covered << k;
    }
    conj_add(s, &of, also);
    return c->unevaluated ? unevaluated(s, c, &of, 0, speak) : schema_value(s, &of);
}

static term any_value(struct schema *s, const cJSON *also)
{
    struct conj of = {.n = 0};
    conj_add(s, &of, also);
    return schema_value(s, &of);
}

/* One `contains`, for lists whose elements satisfy c (`plain`), or any lists. */
static term containing(struct schema *s, const struct conj *c, const cJSON *node, bool plain)
{
    const cJSON *of = cJSON_GetObjectItemCaseSensitive(node, "contains");
    const cJSON *from = made_get(node, MADE_FROM);
    struct conj own = {.at = {node}, .n = 1};
    uint32_t lo = json_get(node, "minContains") ? conj_bound(s, &own, "minContains", true, 0) : 1;
    uint32_t hi = conj_bound(s, &own, "maxContains", false, TERM_UNBOUNDED);
    const cJSON *no = hi == TERM_UNBOUNDED || s->failed ? NULL
                      : cJSON_IsObject(of)              ? schema_made(s, MADE_NOT, of)
                                                        : NULL;
    const bool all = cJSON_IsTrue(of), none = cJSON_IsFalse(of);
    if (s->failed || lo > hi || (none && lo))
        return TERM_NONE;
    term other = all && hi != TERM_UNBOUNDED ? TERM_NONE
                 : plain                     ? element(s, c, 0, no)
                                             : any_value(s, no);
    term found = none ? TERM_NONE : plain ? element(s, c, 0, of) : any_value(s, of);
    term comma_other = term_repeat(s->p, term_cat(s->p, s->comma, other), 0, TERM_UNBOUNDED);
    term comma_found = term_cat(s->p, term_cat(s->p, s->comma, found), comma_other);
    term rest = term_cat(s->p, comma_other, term_repeat(s->p, comma_found, lo, hi));
    uint32_t skip = from ? (uint32_t)from->valuedouble : 0;
    if (skip)
        return term_cat(s->p, schema_list(s, any_value(s, NULL), true, skip, skip), rest);
    term t = lo ? TERM_NONE : TERM_EMPTY;
    t = term_alt(s->p, t, term_cat(s->p, other, rest));
    if (hi) {
        uint32_t less = lo ? lo - 1 : 0, most = hi == TERM_UNBOUNDED ? hi : hi - 1;
        term then = term_cat(s->p, comma_other, term_repeat(s->p, comma_found, less, most));
        t = term_alt(s->p, t, term_cat(s->p, found, then));
    }
    return t;
}

/* ---------------------------------------------------------------- uniqueItems */

enum { MAX_UNIQUE = 8, MAX_CANDIDATES = 64 };

struct unique {
    const cJSON *value[MAX_UNIQUE];
    term text[MAX_UNIQUE];
    int n;
};

/* Adds a value an element may have. False: too many. */
static bool add_value(struct schema *s, struct unique *u, term allowed, const cJSON *v)
{
    struct buf b = BUF_INIT;
    bool known = false;
    json_print_exact(&b, v);
    for (int k = 0; k < u->n; k++)
        known |= json_same(u->value[k], v);
    if (b.oom)
        term_no_memory(s->p);
    const bool may =
        !b.oom && !known && term_nullable(s->p, term_after_all(s->p, allowed, b.p, b.len));
    if (may && u->n < MAX_UNIQUE) {
        u->text[u->n] = term_bytes_of(s->p, b.p, b.len);
        u->value[u->n] = v;
    }
    buf_free(&b);
    u->n += may;
    return u->n <= MAX_UNIQUE;
}

/* Do all types of the schema have few values? */
static bool few_values(const cJSON *type)
{
    const cJSON *kid;
    if (cJSON_IsString(type))
        return !strcmp(type->valuestring, "boolean") || !strcmp(type->valuestring, "null");
    cJSON_ArrayForEach(kid, type) if (!few_values(kid)) return false;
    return cJSON_IsArray(type) && type->child;
}

/* Adds the values element i may have to u, if `enum`, `const` or its type leaves few. */
static bool listed(struct schema *s, const struct conj *c, int i, struct unique *u)
{
    static const cJSON few[] = {{.type = cJSON_False}, {.type = cJSON_True}, {.type = cJSON_NULL}};
    struct conj of = {.n = 0};
    bool covered, fits = true;
    for (int k = 0; k < c->n; k++)
        add_item(s, &of, c->at[k], i, &covered);
    const cJSON *list = NULL, *one = NULL, *kid;
    bool typed = false;
    for (int k = 0; k < of.n; k++) {
        list = list ? list : json_get(of.at[k], "enum");
        one = one ? one : json_get(of.at[k], "const");
        typed |= few_values(json_get(of.at[k], "type"));
    }
    const term allowed = schema_value(s, &of);
    if (s->failed || (list && cJSON_GetArraySize(list) > MAX_CANDIDATES))
        return false;
    if (allowed == TERM_NONE) /* no such element exists */
        return true;
    if (one)
        return add_value(s, u, allowed, one);
    cJSON_ArrayForEach(kid, list) fits = fits && add_value(s, u, allowed, kid);
    for (size_t k = 0; !list && typed && k < sizeof(few) / sizeof(few[0]); k++)
        fits = fits && add_value(s, u, allowed, &few[k]);
    return fits && (list || typed);
}

/* Lists of distinct values from a small set: the continuation depends on those already used. */
static term permutations(struct schema *s, const struct unique *u)
{
    term tail[1 << MAX_UNIQUE] = {0};
    for (unsigned set = (1u << u->n); set-- > 0;) {
        tail[set] = TERM_EMPTY;
        for (int i = 0; i < u->n; i++) {
            if (set >> i & 1)
                continue;
            term one = set ? term_cat(s->p, s->comma, u->text[i]) : u->text[i];
            tail[set] = term_alt(s->p, tail[set], term_cat(s->p, one, tail[set | 1u << i]));
        }
    }
    return tail[0];
}

static bool unique_items(const struct conj *c, const cJSON **at)
{
    for (int i = 0; i < c->n; i++)
        if (cJSON_IsTrue(*at = json_get(c->at[i], "uniqueItems")))
            return true;
    return false;
}

/* `inside` without lists that repeat an element. Elements of `prefix` have values of their own:
 * `inside` determines where each may occur. */
static term unique(struct schema *s, const struct conj *c, uint32_t prefix, uint32_t hi,
                   term inside)
{
    struct unique u = {.n = 0};
    const cJSON *at;
    bool few = true;
    if (!unique_items(c, &at) || s->failed)
        return inside;
    for (uint32_t i = 0; few && i <= prefix && i < hi; i++)
        few = listed(s, c, (int)i, &u);
    if (!few)
        return schema_fail(s, at, "`uniqueItems` of items that are not %d listed values at most",
                           MAX_UNIQUE);
    return term_and(s->p, inside, permutations(s, &u));
}

/* Adds `contains` and `uniqueItems` to lists whose items and lengths are checked. */
static term also_lists(struct schema *s, const struct conj *c, term inside, uint32_t lo,
                       uint32_t hi, uint32_t n)
{
    bool plain = !n && !lo && hi == TERM_UNBOUNDED;
    for (int i = 0; i < c->n && !s->failed; i++) {
        const cJSON *of = cJSON_GetObjectItemCaseSensitive(c->at[i], "contains");
        if (!of)
            continue;
        term own = containing(s, c, c->at[i], !n);
        /* lists that contain the element also have valid elements */
        inside = plain && !made_get(c->at[i], MADE_FROM) ? own : term_and(s->p, inside, own);
        plain = false;
    }
    return hi <= 1 ? inside : unique(s, c, n, hi, inside);
}

term schema_array(struct schema *s, const struct conj *c)
{
    uint32_t lo = conj_bound(s, c, "minItems", true, 0);
    uint32_t hi = conj_bound(s, c, "maxItems", false, TERM_UNBOUNDED), n = 0;
    for (int k = 0; k < c->n; k++) {
        const cJSON *prefix = prefix_items(c->at[k]);
        if (prefix && !cJSON_IsArray(prefix))
            return schema_fail(s, prefix, "`prefixItems` is not an array");
        uint32_t own = (uint32_t)cJSON_GetArraySize(prefix);
        if (own > MAX_PREFIX)
            return schema_fail(s, prefix, "more than %d items", MAX_PREFIX);
        n = own > n ? own : n;
    }
    term inside = TERM_NONE;
    schema_indent(s, +1);
    if (lo <= hi && hi >= n)
        inside = schema_list(s, element(s, c, (int)n, NULL), !n, lo > n ? lo - n : 0,
                             hi == TERM_UNBOUNDED ? hi : hi - n);
    else
        n = hi; /* the prefix ends early */
    if (hi == n && inside == TERM_NONE && lo <= hi)
        inside = TERM_EMPTY;
    for (uint32_t i = n; i-- > 0 && !s->failed;) {
        term one = term_cat(s->p,
                            i ? term_cat(s->p, s->comma, element(s, c, (int)i, NULL))
                              : element(s, c, (int)i, NULL),
                            inside);
        inside = i >= lo ? term_alt(s->p, one, TERM_EMPTY) : one;
    }
    inside = also_lists(s, c, inside, lo, hi, n);
    return schema_enclosed(s, "[", inside, "]");
}
