/* term_impl.h - the inside of a pool, for term.c, term_after.c and term_rewrite.c. */
#ifndef COMMON_CONSTRAINT_TERM_IMPL_H
#define COMMON_CONSTRAINT_TERM_IMPL_H
#include "common/constraint/term.h"

enum kind { NONE, EMPTY, SET, CAT, ALT, AND, NOT, REPEAT, RULE };

/* a, b: SET: index of the set; CAT: the two; ALT, AND: where in `kids`, how many; NOT, REPEAT: the
 * inner one; RULE: its body and its own number (no two rules are equal). */
struct node {
    uint8_t kind;
    bool nullable;
    bool checked;   /* this term, or one inside it, is an AND or a NOT */
    uint8_t living; /* of AND and NOT: can it be finished? */
    uint32_t a, b, lo, hi;
    uint32_t coarse[2]
                   [2]; /* [over][inside an AND or NOT] term_coarse() of it, + 1; 0: never asked */
    uint32_t seen;      /* the last search that came by */
    uint32_t listed;    /* the last list of first sets that came by */
};
enum { UNKNOWN, LIVES, DEAD };

struct derived { /* `to` is what derive() made of `from` and `byte`; `from` TERM_NONE: nothing */
    term from, to;
    uint8_t byte;
};
enum { DERIVED = 4096 }; /* a power of two */

struct words { /* a growing list of numbers */
    uint32_t *at;
    size_t n, cap;
};

struct term_pool {
    struct node *node;
    size_t n_nodes, cap_nodes;
    struct byte_set *set;
    size_t n_sets, cap_sets;
    struct words kids, scratch;
    uint32_t *slots; /* hash table of nodes: number + 1 */
    size_t n_slots;
    uint8_t *active;         /* [cap_nodes] rules being entered: see term_derive() */
    bool cut;                /* a rule that was being entered was met */
    bool derived_any;        /* `derived` is not empty */
    struct derived *derived; /* [DERIVED] what was found, by a hash; NULL: nothing yet */
    uint32_t far, fine;      /* what the nodes' `coarse` was asked with */
    uint32_t search;         /* number of the last search */
    uint32_t lists;          /* number of the last list of first sets */
    uint8_t lucky;           /* the byte that ended the last search */
    int factoring;           /* how deep in term_combine() */
    uint64_t left;           /* steps of the budget */
    size_t max_bytes;
    bool full;
};

static inline const struct node *node(const struct term_pool *p, term t) { return &p->node[t]; }

/* Rules are other ones now, and so are all derivatives. */
void term_forget_derived(struct term_pool *p);
bool term_push(struct term_pool *p, struct words *w, uint32_t v); /* false: the pool is full */
/* An ALT or AND of n parts without an array of them: `from = p->scratch.n`, then term_add_part()
 * for each, then term_combine(). */
void term_add_part(struct term_pool *p, enum kind kind, term t);
term term_combine(struct term_pool *p, enum kind kind, size_t from);
/* Can t, an AND or a NOT, be finished? A bounded search; "yes" where it comes to no end. */
bool term_lives(struct term_pool *p, term t);
#endif
