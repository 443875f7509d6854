/* term.c - the pool of terms, and constructors. */
#include "common/constraint/term_impl.h"
#include "common/hash.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- memory */

size_t term_bytes(const struct term_pool *p)
{
    return p->cap_nodes * (sizeof(*p->node) + 1) + p->cap_sets * sizeof(*p->set) +
           (p->kids.cap + p->scratch.cap + p->n_slots) * sizeof(uint32_t) +
           (p->derived ? DERIVED * sizeof(*p->derived) : 0);
}

bool term_full(const struct term_pool *p) { return p->full; }
void term_fill(struct term_pool *p) { p->full = true; }
void term_no_memory(struct term_pool *p) { p->full = p->lost = true; }
bool term_lost(const struct term_pool *p) { return p->lost; }
void term_budget(struct term_pool *p, uint64_t steps) { p->left = steps; }
bool term_spent(const struct term_pool *p) { return !p->left; }

void term_work(struct term_pool *p, uint64_t steps)
{
    p->left -= steps < p->left ? steps : p->left;
}

static bool grow(struct term_pool *p, void *at, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return true;
    size_t now = *cap ? *cap * 2 : 256;
    now = now < need ? need : now;
    p->full |= term_bytes(p) + (now - *cap) * size > p->max_bytes;
    if (p->full)
        return false;
    void *more = realloc(*(void **)at, now * size);
    if (!more) {
        term_no_memory(p);
        return false;
    }
    *(void **)at = more;
    *cap = now;
    return true;
}

bool term_push(struct term_pool *p, struct words *w, uint32_t v)
{
    if (!grow(p, &w->at, &w->cap, w->n + 1, sizeof(*w->at)))
        return false;
    w->at[w->n++] = v;
    return true;
}

/* ---------------------------------------------------------------- hash-consing */

static bool same_node(const struct term_pool *p, const struct node *n, const struct node *m)
{
    if (n->kind != m->kind || n->lo != m->lo || n->hi != m->hi)
        return false;
    if (n->kind == SET)
        return !memcmp(&p->set[n->a], &p->set[m->a], sizeof(*p->set));
    if (n->kind != ALT && n->kind != AND)
        return n->a == m->a && n->b == m->b;
    return n->b == m->b && !memcmp(p->kids.at + n->a, p->kids.at + m->a, n->b * sizeof(uint32_t));
}

static uint64_t hash_node(const struct term_pool *p, const struct node *n)
{
    uint64_t h = hash_mix(n->kind * UINT64_C(0x9e3779b97f4a7c15) + n->lo + ((uint64_t)n->hi << 32));
    if (n->kind == SET)
        return hash_bytes(h, &p->set[n->a], sizeof(*p->set));
    if (n->kind == ALT || n->kind == AND)
        return hash_bytes(h, p->kids.at + n->a, n->b * sizeof(uint32_t));
    return hash_mix(h ^ (n->a + ((uint64_t)n->b << 32)));
}

static bool rehash(struct term_pool *p)
{
    size_t n = p->n_slots ? p->n_slots * 2 : 1024;
    p->full |= term_bytes(p) + n * sizeof(*p->slots) > p->max_bytes;
    if (p->full)
        return false;
    uint32_t *slots = calloc(n, sizeof(*slots));
    if (!slots) {
        term_no_memory(p);
        return false;
    }
    for (size_t i = 0; i < p->n_nodes; i++) {
        size_t at = hash_node(p, &p->node[i]) & (n - 1);
        while (slots[at])
            at = (at + 1) & (n - 1);
        slots[at] = (uint32_t)i + 1;
    }
    free(p->slots);
    p->slots = slots, p->n_slots = n;
    return true;
}

static uint32_t depth_of(const struct term_pool *p, const struct node *n)
{
    uint32_t most = 0;
    switch ((enum kind)n->kind) {
    case NONE:
    case EMPTY:
    case SET:
    case RULE:
        return 0;
    case CAT: {
        const uint32_t head = node(p, n->a)->depth + 1, tail = node(p, n->b)->depth;
        return head > tail ? head : tail;
    }
    case NOT:
    case REPEAT:
        return node(p, n->a)->depth + 1;
    case ALT:
    case AND:
        break;
    }
    for (uint32_t i = 0; i < n->b; i++) {
        const uint32_t depth = node(p, p->kids.at[n->a + i])->depth;
        most = depth > most ? depth : most;
    }
    return most + 1;
}

/* The index of a node equal to `n`. If it exists, `kids` and sets added for `n` are removed. */
static term intern(struct term_pool *p, const struct node *n)
{
    p->left -= p->left > 0;
    if (p->n_nodes * 2 >= p->n_slots && !rehash(p))
        return TERM_NONE;
    size_t at = hash_node(p, n) & (p->n_slots - 1);
    for (; p->slots[at]; at = (at + 1) & (p->n_slots - 1))
        if (same_node(p, &p->node[p->slots[at] - 1], n)) {
            if (n->kind == ALT || n->kind == AND)
                p->kids.n = n->a;
            else if (n->kind == SET)
                p->n_sets = n->a;
            return p->slots[at] - 1;
        }
    const uint32_t depth = p->n_nodes ? depth_of(p, n) : 0;
    if (depth > TERM_DEPTH) {
        p->left = 0;
        return TERM_NONE;
    }
    size_t cap = p->cap_nodes;
    if (!grow(p, &p->node, &p->cap_nodes, p->n_nodes + 1, sizeof(*n)))
        return TERM_NONE;
    if (cap != p->cap_nodes) {
        uint8_t *active = realloc(p->active, p->cap_nodes);
        if (!active) {
            term_no_memory(p);
            return TERM_NONE;
        }
        memset(active + cap, 0, p->cap_nodes - cap);
        p->active = active;
    }
    p->node[p->n_nodes] = *n;
    p->node[p->n_nodes].depth = depth;
    p->slots[at] = (uint32_t)++p->n_nodes;
    return (term)p->n_nodes - 1;
}

struct term_pool *term_pool_new(size_t max_bytes)
{
    struct term_pool *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->max_bytes = max_bytes;
    p->left = UINT64_MAX;
    term none = intern(p, &(struct node){.kind = NONE});
    term empty = intern(p, &(struct node){.kind = EMPTY, .nullable = true});
    term all = intern(p, &(struct node){.kind = NOT, .nullable = true, .a = TERM_NONE});
    if (p->full) {
        term_pool_free(p);
        return NULL;
    }
    p->node[all].living = LIVES; /* TERM_ALL is not `checked`: nothing to decide */
    assert(none == TERM_NONE && empty == TERM_EMPTY && all == TERM_ALL);
    (void)none, (void)empty;
    return p;
}

void term_pool_free(struct term_pool *p)
{
    if (!p)
        return;
    free(p->node);
    free(p->set);
    free(p->kids.at);
    free(p->scratch.at);
    free(p->slots);
    free(p->active);
    free(p->derived);
    free(p);
}

/* ---------------------------------------------------------------- constructors */

term term_set(struct term_pool *p, const struct byte_set *s)
{
    if (!(s->bits[0] | s->bits[1] | s->bits[2] | s->bits[3]) ||
        !grow(p, &p->set, &p->cap_sets, p->n_sets + 1, sizeof(*s)))
        return TERM_NONE;
    p->set[p->n_sets] = *s;
    return intern(p, &(struct node){.kind = SET, .a = (uint32_t)p->n_sets++});
}

/* x* x* = x*. The rule e = e "+" e is "e0 ("+" e)*": without this, each operator would add an equal
 * repetition to the state. */
static bool absorbs(const struct term_pool *p, const struct node *x, term b)
{
    const struct node *y = node(p, node(p, b)->kind == CAT ? node(p, b)->a : b);
    return x->kind == REPEAT && y->kind == REPEAT && x->a == y->a && !x->lo &&
           x->hi == TERM_UNBOUNDED && y->hi == TERM_UNBOUNDED;
}

static term cat_pair(struct term_pool *p, term a, term b)
{
    struct node x = *node(p, a), y = *node(p, b);
    if (absorbs(p, &x, b))
        return b;
    return intern(p, &(struct node){.kind = CAT,
                                    .nullable = x.nullable && y.nullable,
                                    .checked = x.checked || y.checked,
                                    .a = a,
                                    .b = b});
}

/* Right-associative, so that the head is accessible. `a` may be a chain of 100,000 bytes, too many
 * for a recursion. */
term term_cat(struct term_pool *p, term a, term b)
{
    const size_t from = p->scratch.n;
    if (a == TERM_NONE || b == TERM_NONE)
        return TERM_NONE;
    if (a == TERM_EMPTY || b == TERM_EMPTY)
        return a == TERM_EMPTY ? b : a;
    for (; node(p, a)->kind == CAT; a = node(p, a)->b)
        if (!p->left || !term_push(p, &p->scratch, node(p, a)->a)) {
            p->scratch.n = from;
            return TERM_NONE;
        }
    b = cat_pair(p, a, b);
    while (p->scratch.n > from && b != TERM_NONE)
        b = cat_pair(p, p->scratch.at[--p->scratch.n], b);
    p->scratch.n = from;
    return b;
}

term term_bytes_of(struct term_pool *p, const void *text, size_t n)
{
    term t = TERM_EMPTY;
    for (size_t i = n; i-- > 0;) {
        struct byte_set one = {{0}};
        byte_set_add(&one, ((const uint8_t *)text)[i], ((const uint8_t *)text)[i]);
        t = term_cat(p, term_set(p, &one), t);
    }
    return t;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void term_add_part(struct term_pool *p, enum kind kind, term t)
{
    const struct node *n = node(p, t);
    if (n->kind != kind) {
        term_push(p, &p->scratch, t);
        return;
    }
    term_work(p, n->b / 8);
    for (uint32_t i = 0; i < n->b; i++)
        term_push(p, &p->scratch, p->kids.at[n->a + i]);
}

/* As measured: a comparison takes an eighth of a step, and so does copying an element in or out. */
static void charge_sort(struct term_pool *p, size_t n)
{
    const uint64_t rounds = n ? 64 - (uint64_t)__builtin_clzll(n) : 0; /* 1 + log2(n) */
    term_work(p, n * (2 + rounds) / 8);
}

/* Joins the byte sets in scratch[from ..]; *any: there were some. */
static struct byte_set join_sets(struct term_pool *p, size_t from, bool both, bool *any)
{
    struct byte_set s = {{0}};
    size_t to = from;
    *any = false;
    for (size_t i = from; i < p->scratch.n; i++) {
        const struct node *n = node(p, p->scratch.at[i]);
        if (n->kind != SET) {
            p->scratch.at[to++] = p->scratch.at[i];
            continue;
        }
        for (int w = 0; w < 4; w++) {
            uint64_t bits = p->set[n->a].bits[w];
            s.bits[w] = !*any ? bits : both ? s.bits[w] & bits : s.bits[w] | bits;
        }
        *any = true;
    }
    p->scratch.n = to;
    return s;
}

/* ---------------------------------------------------------------- common heads */

enum { FACTOR = 8, FACTOR_DEPTH = 64 };

/* The head of t that other terms may share; otherwise t. Counted repetitions are no heads:
 * splitting them would create ever new terms. */
static term head_of(const struct term_pool *p, term t)
{
    if (node(p, t)->kind != CAT)
        return t;
    const struct node *head = node(p, node(p, t)->a);
    bool shared = head->kind == SET || head->kind == ALT || head->kind == RULE ||
                  (head->kind == REPEAT && head->hi == 1);
    return shared ? node(p, t)->a : t;
}

struct headed {
    term head, part;
};

static int by_head(const void *a, const void *b)
{
    const struct headed *x = a, *y = b;
    return x->head != y->head ? (x->head > y->head) - (x->head < y->head)
                              : (x->part > y->part) - (x->part < y->part);
}

/* Factors `ax | ay` among the alternatives scratch[from ..] into `a(x | y)`: a thousand words are
 * then distinguished by their first letters, not one by one. */
static void join_heads(struct term_pool *p, size_t from)
{
    const size_t n = p->scratch.n - from;
    charge_sort(p, n < FACTOR ? 0 : n);
    const bool skip = n < FACTOR || p->factoring == FACTOR_DEPTH || !p->left;
    struct headed *v = skip ? NULL : malloc(n * sizeof(*v));
    if (!v)
        return;
    for (size_t i = 0; i < n; i++)
        v[i] = (struct headed){head_of(p, p->scratch.at[from + i]), p->scratch.at[from + i]};
    qsort(v, n, sizeof(*v), by_head);
    p->factoring++;
    p->scratch.n = from;
    for (size_t i = 0, k; i < n; i = k) {
        size_t tails = p->scratch.n;
        for (k = i + 1; k < n && v[k].head == v[i].head; k++) {
        }
        term t = v[i].part;
        if (v[i].part != v[k - 1].part) { /* skips duplicates */
            for (size_t m = i; m < k; m++)
                term_add_part(p, ALT, v[m].part == v[m].head ? TERM_EMPTY : node(p, v[m].part)->b);
            t = term_combine(p, ALT, tails);
            t = term_cat(p, v[i].head, t);
        }
        term_push(p, &p->scratch, t);
    }
    p->factoring--;
    free(v);
}

/* ---------------------------------------------------------------- alternatives within others */

/* The first elements of a chain. Chains of one shape differ in the bounds of counts only. */
enum { ELEMENTS = 8 };
struct shape {
    uint64_t hash;
    uint32_t last, first; /* the upper bounds of the last and of the first count; 0: none */
    term part;
};

static struct shape shape_of(const struct term_pool *p, term t)
{
    struct shape s = {.part = t};
    for (int i = 0; i < ELEMENTS && t != TERM_EMPTY; i++) {
        const struct node *n = node(p, t);
        const bool chain = n->kind == CAT;
        const term head = chain ? n->a : t;
        const struct node *x = node(p, head);
        const bool counted = x->kind == REPEAT;
        if (counted) {
            s.last = x->hi;
            s.first = s.first ? s.first : x->hi;
        }
        s.hash =
            hash_mix(s.hash * 31 + (counted ? ((uint64_t)x->a << 1 | 1) : (uint64_t)head << 1));
        t = chain ? n->b : TERM_EMPTY;
    }
    s.hash = hash_mix(s.hash * 31 + t);
    return s;
}

/* Each count of `b` lies within that of `a`, and all else is equal: b's texts are a's, too. */
static bool contains(const struct term_pool *p, term a, term b)
{
    for (int i = 0; i < ELEMENTS && a != b; i++) {
        const struct node *x = node(p, a), *y = node(p, b);
        const bool chain = x->kind == CAT;
        if (chain != (y->kind == CAT))
            return false;
        const term c = chain ? x->a : a, d = chain ? y->a : b;
        const struct node *v = node(p, c), *w = node(p, d);
        if (c != d && (v->kind != REPEAT || w->kind != REPEAT || v->a != w->a || v->lo > w->lo ||
                       v->hi < w->hi))
            return false;
        if (!chain)
            return true;
        a = x->b, b = y->b;
    }
    return a == b;
}

static int by_shape(const void *a, const void *b)
{
    const struct shape *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    if (x->last != y->last)
        return x->last > y->last ? -1 : 1;
    if (x->first != y->first)
        return x->first > y->first ? -1 : 1;
    return (x->part > y->part) - (x->part < y->part);
}

/* Drops those of the alternatives scratch[from ..] that the one before them contains, once they are
 * sorted by their last count. In nested counts, `(a{0,99}b{0,99}){0,99}`, each byte may begin a new
 * repetition: without this, the alternatives grow with the square of the text. */
static void drop_contained(struct term_pool *p, size_t from)
{
    const size_t n = p->scratch.n - from;
    if (n < FACTOR || !p->left)
        return;
    charge_sort(p, n);
    term_work(p, n);
    struct shape *v = malloc(n * sizeof(*v));
    if (!v)
        return;
    for (size_t i = 0; i < n; i++)
        v[i] = shape_of(p, p->scratch.at[from + i]);
    qsort(v, n, sizeof(*v), by_shape);
    p->scratch.n = from;
    for (size_t i = 0, kept = 0; i < n; i++) {
        if (i && v[i].hash == v[kept].hash && contains(p, v[kept].part, v[i].part))
            continue;
        kept = i;
        p->scratch.at[p->scratch.n++] = v[i].part;
    }
    free(v);
}

/* Normalises the parts scratch[from ..]: sorted, without duplicates and neutral elements. */
term term_combine(struct term_pool *p, enum kind kind, size_t from)
{
    /* x | all = all, x & none = none */
    const term zero = kind == ALT ? TERM_ALL : TERM_NONE;
    const term one = kind == ALT ? TERM_NONE : TERM_ALL;
    bool sets, nullable = kind == AND, checked = kind == AND, empty = false;
    if (kind == ALT) {
        join_heads(p, from);
        drop_contained(p, from);
    }
    struct byte_set s = join_sets(p, from, kind == AND, &sets);
    if (sets) {
        term t = term_set(p, &s);
        term_push(p, &p->scratch, t);
    }
    size_t n = p->scratch.n - from, to = from;
    charge_sort(p, n);
    if (!n) /* and possibly no array yet */
        return p->full ? TERM_NONE : one;
    qsort(p->scratch.at + from, n, sizeof(uint32_t), by_number);
    for (size_t i = from; i < from + n; i++) {
        term t = p->scratch.at[i];
        if (t == zero) {
            p->scratch.n = from;
            return zero;
        }
        if (t == one || (to > from && p->scratch.at[to - 1] == t))
            continue;
        empty |= t == TERM_EMPTY;
        nullable =
            kind == ALT ? nullable || node(p, t)->nullable : nullable && node(p, t)->nullable;
        checked |= node(p, t)->checked;
        p->scratch.at[to++] = t;
    }
    n = to - from;
    p->scratch.n = from;
    if (p->full || !n)
        return p->full ? TERM_NONE : one;
    if (n == 1)
        return p->scratch.at[from];
    if (kind == AND && empty)
        return nullable ? TERM_EMPTY : TERM_NONE;
    if (!grow(p, &p->kids.at, &p->kids.cap, p->kids.n + n, sizeof(uint32_t)))
        return TERM_NONE;
    struct node made = {.kind = (uint8_t)kind,
                        .nullable = nullable,
                        .checked = checked,
                        .a = (uint32_t)p->kids.n,
                        .b = (uint32_t)n};
    memcpy(p->kids.at + p->kids.n, p->scratch.at + from, n * sizeof(uint32_t));
    p->kids.n += n;
    return intern(p, &made);
}

static term join(struct term_pool *p, enum kind kind, const term *of, size_t n)
{
    size_t from = p->scratch.n;
    for (size_t i = 0; i < n; i++)
        term_add_part(p, kind, of[i]);
    return term_combine(p, kind, from);
}

term term_alt(struct term_pool *p, term a, term b)
{
    return a == b || b == TERM_NONE ? a : a == TERM_NONE ? b : join(p, ALT, (term[]){a, b}, 2);
}

term term_alt_n(struct term_pool *p, const term *of, size_t n) { return join(p, ALT, of, n); }

term term_and(struct term_pool *p, term a, term b)
{
    return a == b || b == TERM_ALL ? a : a == TERM_ALL ? b : join(p, AND, (term[]){a, b}, 2);
}

term term_not(struct term_pool *p, term a)
{
    if (a == TERM_NONE)
        return TERM_ALL;
    struct node x = *node(p, a);
    if (x.kind == NOT)
        return x.a;
    return intern(p, &(struct node){.kind = NOT, .nullable = !x.nullable, .checked = true, .a = a});
}

term term_repeat(struct term_pool *p, term a, uint32_t lo, uint32_t hi)
{
    if (lo > hi)
        return TERM_NONE;
    if (a == TERM_EMPTY || !hi || (a == TERM_NONE && !lo))
        return TERM_EMPTY;
    if (a == TERM_NONE || (lo == 1 && hi == 1))
        return a;
    struct node x = *node(p, a);
    if (x.nullable)
        lo = 0; /* of a nullable term the lower bound is 0 */
    if (x.kind == REPEAT && !x.lo && x.hi == TERM_UNBOUNDED)
        return a;
    return intern(
        p, &(struct node){
               .kind = REPEAT, .nullable = !lo, .checked = x.checked, .a = a, .lo = lo, .hi = hi});
}

/* ---------------------------------------------------------------- rules */

term term_rule(struct term_pool *p, bool nullable)
{
    struct node n = {.kind = RULE, .nullable = nullable, .a = TERM_NONE};
    n.b = (uint32_t)p->n_nodes;
    return intern(p, &n);
}

void term_define(struct term_pool *p, term rule, term body)
{
    if (p->full)
        return;
    assert(node(p, rule)->kind == RULE && node(p, rule)->a == TERM_NONE);
    assert(body == TERM_NONE || node(p, rule)->nullable == node(p, body)->nullable);
    term_clear_derived(p);
    p->node[rule].a = body; /* rules are not looked up by hash, so the node may change */
}

void term_character(struct term_pool *p, term one) { p->character = one; }

bool term_nullable(const struct term_pool *p, term t) { return node(p, t)->nullable; }

bool term_checked(const struct term_pool *p, term t) { return node(p, t)->checked; }
