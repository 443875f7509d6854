/* term_length.c - how many characters the texts of a term have, from its structure.
 *
 * Whether a pattern and a length together allow a text is asked at each new state. A search of
 * derivatives would visit as many states as the text has characters; lengths are sums. */
#include "common/constraint/term_impl.h"

enum { DEPTH = 100 };

/* What a reader of JSON spelling expects next. */
enum reads { READS_ANY, READS_ESCAPE, READS_HEX_1, READS_HEX_2, READS_HEX_3, READS_HEX_4 };

/* The sums of a chain, or of one term. */
struct extent {
    struct term_length n;
    enum reads end; /* what follows its texts */
};

static const struct extent unknown = {.n = {.known = LENGTH_UNKNOWN}};

static uint32_t sum(uint32_t a, uint32_t b)
{
    return a == TERM_UNBOUNDED || b >= TERM_UNBOUNDED - a ? TERM_UNBOUNDED : a + b;
}

static uint32_t product(uint32_t a, uint32_t times)
{
    const uint64_t v = (uint64_t)a * times;
    return !a || !times                                                            ? 0
           : a == TERM_UNBOUNDED || times == TERM_UNBOUNDED || v >= TERM_UNBOUNDED ? TERM_UNBOUNDED
                                                                                   : (uint32_t)v;
}

static struct extent exactly(uint32_t n, enum reads end)
{
    return (struct extent){{n, n, LENGTH_KNOWN, true}, end};
}

static bool within(const struct byte_set *s, unsigned first, unsigned last)
{
    struct byte_set rest = *s;
    for (unsigned b = first; b <= last; b++)
        rest.bits[b / 64] &= ~(UINT64_C(1) << b % 64);
    return !(rest.bits[0] | rest.bits[1] | rest.bits[2] | rest.bits[3]);
}

static bool any(const struct byte_set *s, unsigned first, unsigned last)
{
    for (unsigned b = first; b <= last; b++)
        if (byte_set_has(s, (uint8_t)b))
            return true;
    return false;
}

/* A character counts at its first byte. */
static struct extent of_byte(const struct byte_set *s, enum reads at)
{
    if (at >= READS_HEX_1)
        return exactly(0, at == READS_HEX_1 ? READS_ANY : at - 1);
    if (at == READS_ESCAPE)
        return within(s, 'u', 'u')             ? exactly(0, READS_HEX_4)
               : byte_set_has(s, (uint8_t)'u') ? unknown
                                               : exactly(0, READS_ANY);
    if (within(s, 0x80, 0xbf))
        return exactly(0, READS_ANY);
    if (within(s, '\\', '\\'))
        return exactly(1, READS_ESCAPE);
    return any(s, 0x80, 0xbf) || byte_set_has(s, '\\') ? unknown : exactly(1, READS_ANY);
}

static struct extent extent_of(struct term_pool *p, term t, enum reads at, int depth);

static struct extent behind(struct extent a, struct extent b)
{
    if (a.n.known != LENGTH_KNOWN || b.n.known != LENGTH_KNOWN)
        return unknown;
    return (struct extent){
        {sum(a.n.least, b.n.least), sum(a.n.most, b.n.most), LENGTH_KNOWN, a.n.all && b.n.all},
        b.end};
}

/* The tails of a chain are asked for by the next states, too: each is stored, from the last one. */
static struct extent of_chain(struct term_pool *p, term t, enum reads at, int depth)
{
    const size_t from = p->scratch.n;
    struct extent whole;
    for (;; t = node(p, t)->b) {
        const struct node *n = node(p, t);
        if (n->kind != CAT || (at == READS_ANY && n->length.known)) {
            whole = extent_of(p, t, at, depth + 1);
            break;
        }
        const struct extent head = extent_of(p, n->a, at, depth + 1);
        if (head.n.known != LENGTH_KNOWN || !term_push(p, &p->scratch, t) ||
            !term_push(p, &p->scratch, at)) {
            whole = unknown;
            break;
        }
        at = head.end;
    }
    while (p->scratch.n > from) {
        at = p->scratch.at[--p->scratch.n];
        t = p->scratch.at[--p->scratch.n];
        whole = behind(extent_of(p, node(p, t)->a, at, depth + 1), whole);
        if (at == READS_ANY && whole.end == READS_ANY && p->left)
            p->node[t].length = whole.n;
    }
    return whole;
}

/* All lengths between, if both have all and no gap is between them. */
static struct extent either(struct extent a, struct extent b)
{
    if (a.n.known != LENGTH_KNOWN || b.n.known != LENGTH_KNOWN || a.end != b.end)
        return unknown;
    const struct term_length x = a.n.least <= b.n.least ? a.n : b.n;
    const struct term_length y = a.n.least <= b.n.least ? b.n : a.n;
    return (struct extent){{x.least, x.most > y.most ? x.most : y.most, LENGTH_KNOWN,
                            x.all && y.all && y.least <= sum(x.most, 1)},
                           a.end};
}

static struct extent of_alternatives(struct term_pool *p, const struct node *n, enum reads at,
                                     int depth)
{
    struct extent e = extent_of(p, p->kids.at[n->a], at, depth + 1);
    for (uint32_t i = 1; i < n->b && e.n.known == LENGTH_KNOWN; i++)
        e = either(e, extent_of(p, p->kids.at[n->a + i], at, depth + 1));
    return e;
}

/* Between k and k + 1 times there is no gap if k * most + 1 reaches (k + 1) * least; the gap
 * narrows as k grows. */
static struct extent of_repetition(struct term_pool *p, const struct node *n, int depth)
{
    const struct extent one = extent_of(p, n->a, READS_ANY, depth + 1);
    if (one.n.known != LENGTH_KNOWN || one.end != READS_ANY)
        return unknown;
    const uint64_t reach = (uint64_t)product(one.n.most, n->lo) + 1;
    const bool joined = n->lo == n->hi || reach >= ((uint64_t)n->lo + 1) * one.n.least;
    return (struct extent){{product(one.n.least, n->lo), product(one.n.most, n->hi), LENGTH_KNOWN,
                            one.n.all && joined},
                           READS_ANY};
}

static struct extent measure(struct term_pool *p, const struct node *n, term t, enum reads at,
                             int depth)
{
    switch ((enum kind)n->kind) {
    case EMPTY:
        return exactly(0, at);
    case SET:
        return of_byte(&p->set[n->a], at);
    case CAT:
        return of_chain(p, t, at, depth);
    case ALT:
        return of_alternatives(p, n, at, depth);
    case REPEAT:
        return at == READS_ANY ? of_repetition(p, n, depth) : unknown;
    case NONE:
    case AND:
    case NOT:
    case RULE:
        break;
    }
    return unknown;
}

static struct extent extent_of(struct term_pool *p, term t, enum reads at, int depth)
{
    const struct node n = *node(p, t);
    if (at == READS_ANY && n.length.known)
        return (struct extent){n.length, READS_ANY};
    term_work(p, 1);
    if (depth > DEPTH || !p->left)
        return unknown;
    struct extent e = measure(p, &n, t, at, depth);
    /* what ends inside a character is only asked for within a chain */
    if (at == READS_ANY && (e.n.known == LENGTH_UNKNOWN || e.end == READS_ANY) && p->left)
        p->node[t].length = e.n;
    return e;
}

/* Repetitions of a character: their number. What begins with the rest of one, or with another term,
 * may be a pattern: `b.*`. */
static bool counts_characters(const struct term_pool *p, term t, uint32_t *lo, uint32_t *hi)
{
    const struct node *n = node(p, t);
    const bool one = t == p->character;
    *lo = one ? 1 : n->lo;
    *hi = one ? 1 : n->hi;
    return one || (n->kind == REPEAT && n->a == p->character);
}

int term_lives_by_length(struct term_pool *p, term t)
{
    const struct node n = *node(p, t);
    uint32_t lo = 0, hi = TERM_UNBOUNDED, low, high;
    term other = TERM_NONE;
    if (n.kind != AND || !p->character)
        return UNKNOWN;
    for (uint32_t i = 0; i < n.b; i++) {
        const term part = p->kids.at[n.a + i];
        if (counts_characters(p, part, &low, &high)) {
            lo = low > lo ? low : lo;
            hi = high < hi ? high : hi;
        } else if (other == TERM_NONE) {
            other = part;
        } else {
            return UNKNOWN;
        }
    }
    const struct extent e = other == TERM_NONE ? unknown : extent_of(p, other, READS_ANY, 0);
    if (lo > hi)
        return DEAD;
    if (e.n.known != LENGTH_KNOWN || e.end != READS_ANY || !p->left)
        return UNKNOWN;
    if (e.n.least > hi || e.n.most < lo)
        return DEAD;
    const bool ends_fit = e.n.least >= lo || e.n.most <= hi;
    return e.n.all || ends_fit ? LIVES : UNKNOWN;
}
