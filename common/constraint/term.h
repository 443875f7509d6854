/* term.h - formal languages over bytes as hash-consed terms, with derivatives.
 *
 * A term is a regular expression with intersection, complement, counted repetition and calls of
 * rules (for nesting). Terms are hash-consed: equal terms have equal numbers, so a number is a
 * state. The automaton is not built in advance: term_after() computes the next state by Brzozowski
 * derivatives ("Derivatives of regular expressions", 1964; Owens, Reppy, Turon, 2009). A rule is
 * expanded only at its first byte, so the concatenations of a term are the stack of a pushdown
 * automaton.
 *
 * Counts stay numbers ("at most 4000 characters" is one term), and alternatives are sorted sets,
 * which makes the derivatives of a regular term finitely many.
 *
 * A pool is used by one thread at a time. It grows on demand. Over its limit every constructor
 * returns TERM_NONE, and term_full() is true. */
#ifndef COMMON_CONSTRAINT_TERM_H
#define COMMON_CONSTRAINT_TERM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t term;
enum { TERM_NONE, TERM_EMPTY, TERM_ALL }; /* no text; the empty text; every text */
#define TERM_UNBOUNDED UINT32_MAX

struct term_pool;
/* `max_bytes` limits the memory. NULL: out of memory. */
struct term_pool *term_pool_new(size_t max_bytes);
void term_pool_free(struct term_pool *p);
bool term_full(const struct term_pool *p);
void term_fill(struct term_pool *p); /* as if its limit were reached */
/* The caller had no memory for a part: the pool counts as full. */
void term_no_memory(struct term_pool *p);
bool term_lost(const struct term_pool *p);    /* it is full for lack of memory, not by its limit */
size_t term_bytes(const struct term_pool *p); /* bytes allocated */

/* Limits the work from now on, in elementary steps of tens of nanoseconds. When they are used up,
 * term_spent() is true until the next call, and results of derivatives are invalid. */
void term_budget(struct term_pool *p, uint64_t steps);
bool term_spent(const struct term_pool *p);
void term_work(struct term_pool *p, uint64_t steps); /* charges work done by the caller */

struct byte_set {
    uint64_t bits[4];
};
static inline void byte_set_add(struct byte_set *s, unsigned first, unsigned last)
{
    for (unsigned b = first; b <= last; b++)
        s->bits[b / 64] |= UINT64_C(1) << b % 64;
}
static inline bool byte_set_has(const struct byte_set *s, uint8_t b)
{
    return s->bits[b / 64] >> b % 64 & 1;
}

term term_set(struct term_pool *p, const struct byte_set *s); /* one byte of a set */
term term_bytes_of(struct term_pool *p, const void *text, size_t n);
term term_cat(struct term_pool *p, term a, term b);
term term_alt(struct term_pool *p, term a, term b);
term term_and(struct term_pool *p, term a, term b);
term term_not(struct term_pool *p, term a);
/* `lo` to `hi` repetitions (TERM_UNBOUNDED: no limit). */
term term_repeat(struct term_pool *p, term a, uint32_t lo, uint32_t hi);
static inline term term_opt(struct term_pool *p, term a) { return term_repeat(p, a, 0, 1); }
/* The union of n terms; repeated term_alt() would take quadratic time. */
term term_alt_n(struct term_pool *p, const term *of, size_t n);

/* A rule is created first and defined once, so that it can be recursive. `nullable`: whether it
 * matches the empty text; must agree with the definition. */
term term_rule(struct term_pool *p, bool nullable);
void term_define(struct term_pool *p, term rule, term body);
/* Call when all rules are defined. Rules without any finite text (cyclic ones) become TERM_NONE,
 * and so do alternatives that need them. Returns the new `root`. */
term term_close(struct term_pool *p, term root);

/* Declares the term of one character (in one JSON spelling, or of one byte), whose repetitions
 * limit lengths. What is intersected with them must consist of such characters, in the same
 * spelling. */
void term_character(struct term_pool *p, term one);

bool term_nullable(const struct term_pool *p, term t); /* may the text end here? */
/* Contains an intersection or a complement, so that its derivatives may be empty unseen. */
bool term_checked(const struct term_pool *p, term t);
/* The derivative by `byte`; TERM_NONE: the byte is not allowed. An intersection or complement that
 * no text satisfies becomes TERM_NONE if a bounded search detects this. */
term term_after(struct term_pool *p, term t, uint8_t byte);
/* Bytes, including `byte`, with the same derivative, as far as is cheap to see. */
struct byte_set term_alike(struct term_pool *p, term t, uint8_t byte);
term term_after_all(struct term_pool *p, term t, const void *text, size_t n);

/* False: t is empty, as detected by a bounded search. */
bool term_possible(struct term_pool *p, term t);

/* Approximates t by two terms that many terms share, because they differ in large counts only. For
 * texts of up to `far` bytes and whether they can be completed: *under is a subset of t, and t is a
 * subset of *over. Counts above `fine` are rounded to an order of magnitude or dropped; those above
 * `far` always, if that changes nothing. *under may be TERM_NONE. */
void term_coarse(struct term_pool *p, term t, uint32_t far, uint32_t fine, term *under, term *over);
#endif
