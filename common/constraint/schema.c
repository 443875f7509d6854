/* schema.c - one rule per conjunction, so that recursion terminates; the whole schema. */
#include "common/constraint/schema_impl.h"
#include "common/json/json.h"
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- rules */

/* c with its schemas sorted by address; `under` is permuted alike, and 0 if unused. */
static void sort(struct conj *to, const struct conj *c)
{
    int place[MAX_CONJ] = {0};
    *to = (struct conj){.n = 0, .never = c->never, .unevaluated = c->unevaluated};
    for (int i = 0; i < c->n; i++) {
        int k = to->n++;
        for (; k && (uintptr_t)to->at[k - 1] > (uintptr_t)c->at[i]; k--)
            to->at[k] = to->at[k - 1];
        to->at[k] = c->at[i];
    }
    for (int i = 0; i < c->n && c->unevaluated; i++)
        for (place[i] = 0; to->at[place[i]] != c->at[i];)
            place[i]++;
    for (int i = 0; i < c->n && c->unevaluated; i++)
        for (int k = 0; k < c->n; k++)
            to->under[place[i]] |= (c->under[i] >> k & 1) << place[k];
}

static struct rule *new_rule(struct schema *s, const struct conj *sorted)
{
    const size_t n = (size_t)sorted->n;
    if (s->n_rules == s->cap_rules) {
        size_t cap = s->cap_rules ? s->cap_rules * 2 : 64;
        struct rule *r = s->n_rules < MAX_RULES ? realloc(s->rules, cap * sizeof(*r)) : NULL;
        if (!r && s->n_rules < MAX_RULES)
            return schema_nomem(s), NULL;
        if (!r)
            return schema_fail(s, NULL, "too large"), NULL;
        s->rules = r, s->cap_rules = cap;
    }
    struct rule *r = &s->rules[s->n_rules];
    *r = (struct rule){.n = sorted->n, .level = s->level, .t = term_rule(s->p, false)};
    // NOLINTNEXTLINE(bugprone-sizeof-expression): of pointers, indeed
    r->at = malloc((n + 1) * (sizeof(*r->at) + sizeof(*r->under)));
    if (!r->at)
        return schema_nomem(s), NULL;
    r->under = (uint64_t *)(void *)(r->at + n);
    // NOLINTNEXTLINE(bugprone-sizeof-expression)
    memcpy(r->at, sorted->at, n * sizeof(*r->at));
    memcpy(r->under, sorted->under, n * sizeof(*r->under));
    s->n_rules++;
    return r;
}

term schema_value(struct schema *s, const struct conj *c)
{
    struct conj sorted;
    if (c->never || s->failed)
        return TERM_NONE;
    sort(&sorted, c);
    const size_t n = (size_t)c->n;
    for (size_t i = 0; i < s->n_rules; i++)
        if (s->rules[i].n == c->n && s->rules[i].level == s->level &&
            // NOLINTNEXTLINE(bugprone-sizeof-expression): of pointers, indeed
            !memcmp(s->rules[i].at, sorted.at, n * sizeof(*sorted.at)) &&
            !memcmp(s->rules[i].under, sorted.under, n * sizeof(*sorted.under)))
            return s->rules[i].t;
    term_work(s->p, s->n_rules / 16);
    if (s->depth > MAX_NESTING)
        return schema_fail(s, NULL, "nested too deeply");
    struct rule *r = new_rule(s, &sorted);
    if (!r)
        return TERM_NONE;
    term t = r->t;
    s->depth++;
    term_define(s->p, t, schema_choose(s, c));
    s->depth--;
    if (term_spent(s->p))
        schema_fail(s, c->n ? c->at[0] : s->root, "too complex");
    return t;
}

/* ---------------------------------------------------------------- the whole */

/* A line break and at most the indentation of the level. */
static term line(struct schema *s)
{
    struct byte_set blank = {{0}}, tab = {{0}}, any = {{0}};
    byte_set_add(&blank, ' ', ' ');
    byte_set_add(&tab, '\t', '\t');
    byte_set_add(&any, ' ', ' ');
    byte_set_add(&any, '\t', '\t');
    uint32_t n = (uint32_t)s->level;
    term in;
    if (n < SCHEMA_LEVELS)
        in = term_alt(s->p, term_repeat(s->p, term_set(s->p, &tab), 0, n),
                      term_repeat(s->p, term_set(s->p, &blank), 0, 4 * n));
    else
        in = term_repeat(s->p, term_set(s->p, &any), 0, 64);
    return term_cat(s->p, lit(s, "\n"), in);
}

void schema_indent(struct schema *s, int by)
{
    s->open += by;
    /* limits the number of rules: those of a large schema are not multiplied by levels */
    s->coarse |= s->n_rules > LEVEL_RULES;
    if (s->layout == JSON_COMPACT) {
        s->blank = TERM_EMPTY;
    } else {
        s->level = s->coarse || s->open > SCHEMA_LEVELS ? SCHEMA_LEVELS : s->open;
        s->blank = term_alt(s->p, s->colon_blank, line(s));
    }
    s->comma = term_cat(s->p, lit(s, ","), s->blank);
}

term schema_enclosed(struct schema *s, const char *open, term inside, const char *close)
{
    struct term_pool *p = s->p;
    bool may_be_empty = term_nullable(p, inside);
    term some = may_be_empty ? term_and(p, inside, term_not(p, TERM_EMPTY)) : inside;
    term in = s->blank;
    schema_indent(s, -1);
    some = term_cat(p, in, term_cat(p, some, s->blank));
    if (may_be_empty) /* white space only once */
        some = term_alt(p, some, s->blank);
    return term_cat(p, lit(s, open), term_cat(p, some, lit(s, close)));
}

static void fixed_terms(struct schema *s)
{
    /* escaped surrogates come in pairs */
    static const char spelled[] =
        "[^\"\\\\\\x00-\\x1f]|\\\\([\"\\\\/bfnrt]|u(?:[0-9A-Ca-cEFef][0-9A-Fa-f]{3}|"
        "[Dd][0-7][0-9A-Fa-f]{2}|[Dd][89ABab][0-9A-Fa-f]{2}\\\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}))";
    s->colon_blank = s->layout == JSON_COMPACT ? TERM_EMPTY : term_opt(s->p, lit(s, " "));
    schema_indent(s, 0);
    s->free_char =
        pattern_term(s->p, spelled, sizeof(spelled) - 1, PATTERN_WHOLE, SPELL_PLAIN, s->e);
    s->failed |= s->free_char == TERM_NONE;
    s->char_once = chars_any_term(s->p, SPELL_JSON);
    term_character(s->p, s->char_once);
}

term schema_term(struct term_pool *p, const cJSON *root, enum json_layout layout, struct err *e)
{
    struct schema s = {.p = p, .root = root, .layout = layout, .e = e, .draft = schema_draft(root)};
    struct conj c = {.n = 0};
    s.has_ids = schema_has_ids(root, s.draft);
    s.closed = cJSON_IsTrue(json_get(root, "x-closed"));
    fixed_terms(&s);
    conj_add(&s, &c, root);
    term t = schema_value(&s, &c);
    if (!s.failed)
        t = term_close(p, t);
    if (!s.failed && term_full(p))
        schema_fail(&s, NULL, "it needs too much memory");
    if (!s.failed && term_spent(p))
        schema_fail(&s, root, "too complex");
    if (!s.failed && t == TERM_NONE)
        schema_fail(&s, NULL, "no instance satisfies it");
    for (size_t i = 0; i < s.n_rules; i++)
        free(s.rules[i].at);
    free(s.rules);
    schema_made_free(&s);
    return s.failed ? TERM_NONE : t;
}
