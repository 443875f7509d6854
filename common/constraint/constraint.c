/* constraint.c - terms as states of a lazily built, cached automaton. */
#include "common/constraint/calls.h"
#include "common/constraint/channels.h"
#include "common/constraint/constraint_impl.h"
#include "common/constraint/grammar.h"
#include "common/constraint/pattern.h"
#include "common/constraint/schema.h"
#include "common/json/exact.h"
#include "common/json/json.h"
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { UNKNOWN = STATE_UNKNOWN };

static void drop_transitions(struct constraint *c)
{
    for (size_t i = 0; i < c->cap; i++) {
        free(c->next[i]);
        free(c->by_class[i]);
        c->next[i] = c->by_class[i] = NULL;
    }
    c->table_bytes = 0;
}

/* ---------------------------------------------------------------- life */

static const char *const kind_names[CONSTRAINT_KINDS] = {"regex", "json",  "compact json", "gbnf",
                                                         "lark",  "calls", "calls or"};

const char *constraint_kind_name(enum constraint_kind kind) { return kind_names[kind]; }

static term compile(struct constraint *c, enum constraint_reasoning reasoning,
                    enum constraint_kind kind, const char *text, size_t n, struct err *e);

static term compile_calls_or(struct constraint *c, enum constraint_reasoning reasoning,
                             const cJSON *spec, struct err *e)
{
    const cJSON *answer = json_get(spec, "answer");
    const char *text = json_str(answer, "text", NULL), *name = json_str(answer, "kind", "");
    int kind = 0;
    while (kind < CONSTRAINT_CALLS && strcmp(name, kind_names[kind]) != 0)
        kind++;
    if (!text || kind == CONSTRAINT_CALLS)
        return err_set(e, ERR_VALIDATION, "an answer has `kind` and `text`"), TERM_NONE;
    const term t =
        compile(c, CONSTRAINT_NO_REASONING, (enum constraint_kind)kind, text, strlen(text), e);
    if (t == TERM_NONE)
        return TERM_NONE;
    if (reasoning != CONSTRAINT_CHANNEL_CALLS)
        return calls_or(c->pool, t, json_get(spec, "ways"), JSON_INDENTED, e);
    const term calls = channel_calls(c->pool, json_get(spec, "schema"), JSON_INDENTED, e);
    return calls == TERM_NONE ? TERM_NONE : term_alt(c->pool, channel_final(c->pool, t), calls);
}

static term compile(struct constraint *c, enum constraint_reasoning reasoning,
                    enum constraint_kind kind, const char *text, size_t n, struct err *e)
{
    if (kind == CONSTRAINT_REGEX)
        return pattern_term(c->pool, text, n, PATTERN_WHOLE, SPELL_PLAIN, e);
    if (kind == CONSTRAINT_GBNF || kind == CONSTRAINT_LARK)
        return grammar_term(c->pool, text, n, kind == CONSTRAINT_GBNF ? GRAMMAR_GBNF : GRAMMAR_LARK,
                            e);
    enum json_layout layout = kind == CONSTRAINT_JSON_COMPACT ? JSON_COMPACT : JSON_INDENTED;
    cJSON *schema = json_parse_exact(text, n, e);
    if (!schema)
        return err_wrap(e, "JSON schema"), TERM_NONE;
    term t = kind == CONSTRAINT_CALLS_OR             ? compile_calls_or(c, reasoning, schema, e)
             : kind == CONSTRAINT_CALLS              ? calls_term(c->pool, schema, layout, e)
             : reasoning == CONSTRAINT_CHANNEL_CALLS ? channel_calls(c->pool, schema, layout, e)
                                                     : schema_term(c->pool, schema, layout, e);
    cJSON_Delete(schema);
    return t;
}

/* t, with or without this text before it; NULL: none. */
static term behind_lead(struct term_pool *p, const char *lead, term t)
{
    return lead ? term_alt(p, t, term_cat(p, term_bytes_of(p, lead, strlen(lead)), t)) : t;
}

/* Any text up to the first closing marker, blanks, the answer's header, then t. */
static term behind(struct term_pool *p, struct constraint_front front, term t)
{
    const char *open = thought_open(front.marks), *close = thought_close(front.marks);
    const enum constraint_reasoning reasoning = front.reasoning;
    struct byte_set blank = {0};
    if (reasoning == CONSTRAINT_NO_REASONING || t == TERM_NONE)
        return t;
    if (reasoning == CONSTRAINT_CHANNELS || reasoning == CONSTRAINT_CHANNEL_CALLS)
        return channel_thoughts(p, reasoning == CONSTRAINT_CHANNELS ? channel_final(p, t) : t);
    byte_set_add(&blank, ' ', ' ');
    byte_set_add(&blank, '\t', '\n');
    byte_set_add(&blank, '\r', '\r');
    term blanks = term_repeat(p, term_set(p, &blank), 0, 4);
    term end = term_bytes_of(p, close, strlen(close));
    term free_text = term_not(p, term_cat(p, TERM_ALL, term_cat(p, end, TERM_ALL)));
    term answer = t;
    for (int i = THOUGHT_LEADS; i--;)
        answer = behind_lead(p, thought_lead(front.marks, i), answer);
    term inside = term_cat(p, free_text, term_cat(p, end, term_cat(p, blanks, answer)));
    if (reasoning == CONSTRAINT_REASONS)
        return inside;
    term begin = term_cat(p, blanks, term_bytes_of(p, open, strlen(open)));
    return term_alt(p, t, term_cat(p, begin, inside));
}

struct constraint *constraint_new(enum constraint_kind kind, const char *text, size_t n,
                                  struct err *e)
{
    return constraint_new_behind((struct constraint_front){0}, kind, text, n, e);
}

static struct constraint *empty(struct err *e)
{
    struct constraint *c = calloc(1, sizeof(*c));
    if (!c || !(c->pool = term_pool_new(POOL_BYTES))) {
        free(c);
        return err_nomem(e), NULL;
    }
    byte_classes_fill(&c->classes);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->compiled, NULL);
    atomic_init(&c->refs, 1);
    return c;
}

/* The start state; TERM_NONE with `e` set: failed. */
static term begin(struct constraint *c, struct constraint_front front, enum constraint_kind kind,
                  const char *text, size_t n, struct err *e)
{
    term_budget(c->pool, COMPILE_STEPS +
                             COMPILE_STEPS_BYTE * (uint32_t)(n < COMPILE_LONG ? n : COMPILE_LONG));
    term t = behind(c->pool, front, compile(c, front.reasoning, kind, text, n, e));
    bool possible = t != TERM_NONE && term_possible(c->pool, t);
    if (term_lost(c->pool)) /* whatever the error says: it is not the client's */
        return err_nomem(e), TERM_NONE;
    if (t != TERM_NONE && term_spent(c->pool))
        return err_set(e, ERR_VALIDATION, "the constraint is too complex"), TERM_NONE;
    if (t != TERM_NONE && !possible)
        return err_set(e, ERR_VALIDATION, "no text satisfies the constraint"), TERM_NONE;
    return t;
}

struct constraint *constraint_new_behind(struct constraint_front front, enum constraint_kind kind,
                                         const char *text, size_t n, struct err *e)
{
    struct constraint *c = empty(e);
    if (c && !(c->start = begin(c, front, kind, text, n, e))) {
        constraint_unref(c);
        return NULL;
    }
    return c;
}

struct order {
    struct constraint *c;
    struct constraint_front front;
    enum constraint_kind kind;
    size_t n;
    char text[];
};

static void *carry_out(void *arg)
{
    struct order *o = arg;
    struct constraint *c = o->c;
    struct err why = ERR_INIT;
    /* no other thread has a reference yet */
    term t = begin(c, o->front, o->kind, o->text, o->n, &why);
    pthread_mutex_lock(&c->lock);
    c->start = t;
    c->why = why;
    c->compiling = false;
    pthread_cond_broadcast(&c->compiled);
    pthread_mutex_unlock(&c->lock);
    constraint_unref(c);
    free(o);
    return NULL;
}

struct constraint *constraint_order(struct constraint_front front, enum constraint_kind kind,
                                    const char *text, size_t n, struct err *e)
{
    struct order *o = malloc(sizeof(*o) + n + 1);
    struct constraint *c = o ? empty(e) : NULL;
    pthread_t thread;
    if (!c) {
        free(o);
        return o ? NULL : (err_nomem(e), NULL);
    }
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    *o = (struct order){c, front, kind, n};
    memcpy(o->text, text, n);
    o->text[n] = '\0';
    c->compiling = true;
    if (pthread_create(&thread, NULL, carry_out, o) == 0)
        pthread_detach(thread);
    else
        carry_out(o); /* no thread: compile here */
    return c;
}

void constraint_unref(struct constraint *c)
{
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
        return;
    drop_transitions(c);
    constraint_drop_masks(c);
    free(c->next);
    free(c->by_class);
    free(c->mask);
    free(c->path);
    term_pool_free(c->pool);
    pthread_cond_destroy(&c->compiled);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

term constraint_enter(struct constraint *c, constraint_state at)
{
    pthread_mutex_lock(&c->lock);
    while (c->compiling)
        pthread_cond_wait(&c->compiled, &c->lock);
    c->begun = true;
    return at == CONSTRAINT_START ? c->start : at;
}

/* ---------------------------------------------------------------- transitions */

/* Grows `table` to `cap` pointers. */
static bool widen(struct constraint *c, void *table, size_t cap)
{
    void **more = realloc(*(void **)table, cap * sizeof(*more));
    if (!more) {
        term_no_memory(c->pool);
        return false;
    }
    memset(more + c->cap, 0, (cap - c->cap) * sizeof(*more));
    *(void ***)table = more;
    return true;
}

bool constraint_room(struct constraint *c, term t)
{
    size_t cap = c->cap ? c->cap : 256;
    while (cap <= t)
        cap *= 2;
    if (cap == c->cap)
        return true;
    if (!widen(c, &c->next, cap) || !widen(c, &c->by_class, cap) || !widen(c, &c->mask, cap))
        return false;
    c->cap = cap;
    return true;
}

/* The row of t in `table`, possibly new; NULL: out of memory, which term_lost() reports, because
 * the bytes of an unknown row are not dead. Drops all rows if over the limit. */
static uint32_t *row_of(struct constraint *c, uint32_t ***table, term t, size_t n)
{
    const size_t bytes = n * sizeof(uint32_t);
    if (!constraint_room(c, t))
        return NULL;
    if ((*table)[t])
        return (*table)[t];
    if (c->table_bytes > TABLE_BYTES)
        drop_transitions(c);
    uint32_t *row = (*table)[t] = malloc(bytes);
    if (!row) {
        term_no_memory(c->pool);
        return NULL;
    }
    memset(row, 0xff, bytes);
    c->table_bytes += bytes;
    return row;
}

/* The derivative by `byte`, and the other bytes with the same one. */
static term leave(struct constraint *c, term t, uint8_t byte, struct byte_set *alike)
{
    term to = term_after(c->pool, t, byte);
    if (!term_spent(c->pool))
        *alike = term_alike(c->pool, t, byte);
    return to;
}

static bool within(const struct byte_set *a, const struct byte_set *b)
{
    return !((a->bits[0] & ~b->bits[0]) | (a->bits[1] & ~b->bits[1]) | (a->bits[2] & ~b->bits[2]) |
             (a->bits[3] & ~b->bits[3]));
}

static term step_byte(struct constraint *c, term t, uint8_t byte)
{
    struct byte_set alike = {{0}};
    uint32_t *row = row_of(c, &c->next, t, 256);
    if (!row || row[byte] != UNKNOWN)
        return row ? row[byte] : TERM_NONE;
    term to = leave(c, t, byte, &alike);
    for (unsigned w = 0; w < 4 && !term_spent(c->pool); w++)
        for (uint64_t left = alike.bits[w]; left; left &= left - 1)
            row[w * 64 + (unsigned)__builtin_ctzll(left)] = to;
    return to;
}

/* The common next state for the bytes of a class, tested one by one: different sets may lead to the
 * same state. */
static term step_each(struct constraint *c, term t, const struct byte_set *class)
{
    term to = UNKNOWN;
    for (unsigned w = 0; w < 4; w++)
        for (uint64_t left = class->bits[w]; left; left &= left - 1) {
            term one = step_byte(c, t, (uint8_t)(w * 64 + (unsigned)__builtin_ctzll(left)));
            if (term_spent(c->pool))
                return TERM_NONE;
            if (to != UNKNOWN && one != to)
                return STATES_DIFFER;
            to = one;
        }
    return to;
}

static unsigned first_of(const struct byte_set *s)
{
    unsigned w = 0;
    while (!s->bits[w])
        w++;
    return w * 64 + (unsigned)__builtin_ctzll(s->bits[w]);
}

term constraint_step_class(struct constraint *c, term t, uint8_t class_of)
{
    const struct byte_set *class = &c->classes.member[class_of];
    struct byte_set alike = {{0}};
    uint32_t *row = t == TERM_NONE ? NULL : row_of(c, &c->by_class, t, BYTE_CLASSES);
    if (!row || row[class_of] != UNKNOWN)
        return row ? row[class_of] : TERM_NONE;
    term to = leave(c, t, (uint8_t)first_of(class), &alike);
    if (term_spent(c->pool))
        return to;
    if (within(class, &alike)) {
        for (unsigned k = 0; k < c->classes.n; k++)
            if (within(&c->classes.member[k], &alike))
                row[k] = to;
        return to;
    }
    to = step_each(c, t, class); /* this may drop all rows */
    row = term_spent(c->pool) ? NULL : row_of(c, &c->by_class, t, BYTE_CLASSES);
    return row ? row[class_of] = to : TERM_NONE;
}

term constraint_step(struct constraint *c, term t, uint8_t byte)
{
    term to = constraint_step_class(c, t, c->classes.of[byte]);
    return to == STATES_DIFFER ? step_byte(c, t, byte) : to;
}

constraint_state constraint_next(struct constraint *c, constraint_state at, const void *bytes,
                                 size_t n)
{
    if (at == CONSTRAINT_SPENT)
        return at;
    at = constraint_enter(c, at);
    term_budget(c->pool, MASK_STEPS);
    for (size_t i = 0; i < n && at != CONSTRAINT_DEAD; i++) {
        at = constraint_step(c, at, ((const uint8_t *)bytes)[i]);
        if (term_spent(c->pool) || (at == CONSTRAINT_DEAD && term_full(c->pool)))
            at = CONSTRAINT_SPENT;
        if (at == CONSTRAINT_SPENT)
            break;
    }
    pthread_mutex_unlock(&c->lock);
    return at;
}

bool constraint_full(struct constraint *c)
{
    pthread_mutex_lock(&c->lock);
    const bool full = !c->compiling && !c->why.kind && term_full(c->pool);
    pthread_mutex_unlock(&c->lock);
    return full;
}

bool constraint_begun(struct constraint *c)
{
    pthread_mutex_lock(&c->lock);
    const bool begun = c->begun;
    pthread_mutex_unlock(&c->lock);
    return begun;
}

static size_t bytes_of(const struct constraint *c)
{
    const size_t tables = 3 * c->cap * sizeof(void *); /* next, by_class, mask */
    const size_t path = c->tokens ? (c->tokens->longest + (size_t)1) * sizeof(*c->path) : 0;
    const size_t n = sizeof(*c) + term_bytes(c->pool) + tables + path;
    return n + c->table_bytes + c->mask_bytes;
}

size_t constraint_bytes(struct constraint *c)
{
    pthread_mutex_lock(&c->lock);
    const size_t n = c->compiling ? 0 : bytes_of(c);
    pthread_mutex_unlock(&c->lock);
    return n;
}

void constraint_trim(struct constraint *c)
{
    pthread_mutex_lock(&c->lock);
    assert(!c->compiling);
    drop_transitions(c);
    constraint_drop_masks(c);
    pthread_mutex_unlock(&c->lock);
}

void constraint_close(struct constraint *c)
{
    pthread_mutex_lock(&c->lock);
    assert(!c->compiling);
    term_fill(c->pool);
    pthread_mutex_unlock(&c->lock);
}

bool constraint_may_end(struct constraint *c, constraint_state at)
{
    if (at == CONSTRAINT_SPENT)
        return false;
    bool end = term_nullable(c->pool, constraint_enter(c, at));
    pthread_mutex_unlock(&c->lock);
    return end;
}
