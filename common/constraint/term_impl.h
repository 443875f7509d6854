/* term_impl.h - private to term*.c: the layout of a pool. */
#ifndef COMMON_CONSTRAINT_TERM_IMPL_H
#define COMMON_CONSTRAINT_TERM_IMPL_H
#include "common/constraint/term.h"

/* Of a term: matches nothing, only the empty text, one byte of a set, parts one after the other,
 * any of its parts, all of them, what its operand does not match, its operand lo .. hi times, a
 * named rule. */
enum kind { NONE, EMPTY, SET, CAT, ALT, AND, NOT, REPEAT, RULE };

/* Numbers of characters in the texts of a term: term_length.c. */
enum { LENGTH_NOT_ASKED, LENGTH_KNOWN, LENGTH_UNKNOWN };
struct term_length {
    uint32_t least, most; /* both occur; TERM_UNBOUNDED: there is no most */
    uint8_t known;
    bool all; /* and so does each number between them */
};

/* a, b: SET: index of the set; CAT: both parts; ALT, AND: offset in `kids`, count; NOT, REPEAT: the
 * operand; RULE: its body and its number (rules are never equal). */
struct node {
    uint8_t kind;
    bool nullable;
    bool checked;   /* this term, or one inside it, is an AND or a NOT */
    uint8_t living; /* for AND and NOT: can it be completed? */
    uint32_t a, b, lo, hi;
    uint32_t depth; /* of the terms inside it, down to rules; the parts of a chain have one level */
    /* [over][inside an AND or NOT] 1 + its term_coarse(); 0: not computed */
    uint32_t coarse[2][2];
    struct term_length length;
    uint32_t seen;   /* the last search that visited it */
    uint32_t listed; /* the last list of first sets that visited it */
};
enum { UNKNOWN, LIVES, DEAD }; /* node.living: not searched yet, or not decided; yes; no */

struct derived { /* cache entry: derive() of `from` and `byte` is `to`; `from` TERM_NONE: empty */
    term from, to;
    uint8_t byte;
};
enum { DERIVED = 4096 }; /* a power of two */

/* The most levels of terms that a recursion visits, of which each takes 350 bytes of a thread's
 * stack. A constraint with more is too complex: `root ::= "a" root "b" | "a" root "c"` adds two
 * with each "a". */
enum { TERM_DEPTH = 8192 };

struct words { /* a growing array of numbers */
    uint32_t *at;
    size_t n, cap;
};

/* Terms are unique: equal ones have the same number, which is their index in `node`. */
struct term_pool {
    struct node *node;
    size_t n_nodes, cap_nodes;
    struct byte_set *set;
    size_t n_sets, cap_sets;
    struct words kids, scratch;
    uint32_t *slots; /* hash table of nodes: index + 1 */
    size_t n_slots;
    uint8_t *active;         /* [cap_nodes] rules being expanded: see term_derive() */
    bool cut;                /* a rule being expanded was reached again */
    bool derived_any;        /* `derived` is not empty */
    struct derived *derived; /* [DERIVED] cache of derivatives, by hash; NULL: none yet */
    term character;          /* see term_character() */
    uint32_t far, fine;      /* parameters of the cached `coarse` */
    uint32_t search;         /* number of the latest search */
    uint32_t lists;          /* number of the latest list of first sets */
    uint8_t last_byte;       /* the byte that ended the latest search */
    int factoring;           /* recursion depth of term_combine() */
    int deriving;            /* recursion depth of a derivative, through rules */
    uint64_t left;           /* remaining steps of the budget */
    size_t max_bytes;
    bool full, lost; /* lost: an allocation failed */
};

static inline const struct node *node(const struct term_pool *p, term t) { return &p->node[t]; }

/* Clears the cache of derivatives after rules changed. */
void term_clear_derived(struct term_pool *p);
bool term_push(struct term_pool *p, struct words *w, uint32_t v); /* false: the pool is full */
/* Builds an ALT or AND of n parts without a separate array: `from = p->scratch.n`, then
 * term_add_part() for each, then term_combine(). */
void term_add_part(struct term_pool *p, enum kind kind, term t);
term term_combine(struct term_pool *p, enum kind kind, size_t from);
/* LIVES or DEAD if t is an intersection of one other term with numbers of characters, and the
 * lengths of that term's texts tell; otherwise UNKNOWN. */
int term_lives_by_length(struct term_pool *p, term t);
/* Can t, an AND or a NOT, be completed? A bounded search; true if undecided. */
bool term_lives(struct term_pool *p, term t);
#endif
