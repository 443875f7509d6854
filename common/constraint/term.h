/* term.h - languages over bytes as terms, and what is left of them after a byte.
 *
 * A term is a regular expression with intersection, complement, counted repetition and calls of
 * rules (so that nesting can be described, too). Terms are hash-consed: equal terms have equal
 * numbers, and a number says everything about what may still come. The automaton is never built: a
 * term is its own state, and term_after() makes the next one from it (Brzozowski, "Derivatives of
 * regular expressions", 1964; Owens, Reppy, Turon, 2009). A call is entered only when its first
 * byte comes, so that the concatenations of a term are the stack of a pushdown automaton.
 *
 * Counts stay numbers ("at most 4000 characters" is one term), alternatives are kept as sorted sets
 * (which makes the derivatives of a regular term finitely many).
 *
 * A pool belongs to one thread at a time. It grows with what is asked of it; past its limit every
 * constructor answers TERM_NONE and term_full() says so. */
#ifndef COMMON_CONSTRAINT_TERM_H
#define COMMON_CONSTRAINT_TERM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t term;
enum { TERM_NONE, TERM_EMPTY, TERM_ALL }; /* no text at all; the text ""; every text */
#define TERM_UNBOUNDED UINT32_MAX

struct term_pool;
/* `max_bytes` bounds the memory. NULL: out of memory. */
struct term_pool *term_pool_new(size_t max_bytes);
void term_pool_free(struct term_pool *p);
bool term_full(const struct term_pool *p);
size_t term_bytes(const struct term_pool *p); /* memory in use */

/* Bounds the work from now on, in elementary steps (tens of nanoseconds each). When they are used
 * up term_spent() says so until the next call, and what derivatives answer means nothing. */
void term_budget(struct term_pool *p, uint64_t steps);
bool term_spent(const struct term_pool *p);
void term_work(struct term_pool *p, uint64_t steps); /* what a caller does besides */

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

term term_set(struct term_pool *p, const struct byte_set *s); /* one byte out of a set */
term term_bytes_of(struct term_pool *p, const void *text, size_t n);
term term_cat(struct term_pool *p, term a, term b);
term term_alt(struct term_pool *p, term a, term b);
term term_and(struct term_pool *p, term a, term b);
term term_not(struct term_pool *p, term a);
/* `lo` to `hi` times (TERM_UNBOUNDED: no end). */
term term_repeat(struct term_pool *p, term a, uint32_t lo, uint32_t hi);
static inline term term_opt(struct term_pool *p, term a) { return term_repeat(p, a, 0, 1); }
/* Any of n at once: what many term_alt() in a row would take quadratic time for. */
term term_alt_n(struct term_pool *p, const term *of, size_t n);

/* A rule is named first and defined once, so that it may call itself. `nullable` says whether its
 * text may be empty and must be true of the definition. */
term term_rule(struct term_pool *p, bool nullable);
void term_define(struct term_pool *p, term rule, term body);
/* When all rules are defined: rules without any finite text (each needs the other) become
 * TERM_NONE, and so does every alternative that needs one. Returns `root` as it is after that. */
term term_close(struct term_pool *p, term root);

bool term_nullable(const struct term_pool *p, term t); /* may the text end here? */
/* What may follow `byte`; TERM_NONE: nothing, the byte was wrong. An intersection or complement
 * that no text can finish is TERM_NONE as far as a bounded search finds out. */
term term_after(struct term_pool *p, term t, uint8_t byte);
/* The bytes, `byte` among them, behind which the same may follow: as many as are seen at a glance.
 */
struct byte_set term_alike(struct term_pool *p, term t, uint8_t byte);
term term_after_all(struct term_pool *p, term t, const void *text, size_t n);

/* false: no text at all satisfies t, seen by a bounded search. */
bool term_possible(struct term_pool *p, term t);

/* Two terms in the place of t that many terms share, since they differ in large counts only. As far
 * as the first `far` bytes of a text and whether it can be finished behind them go, what *under
 * allows t allows, and what t allows *over allows. Counts beyond `fine` are kept by their order of
 * magnitude or forgotten, and those beyond `far` always are where that changes nothing.
 * *under may be TERM_NONE. */
void term_coarse(struct term_pool *p, term t, uint32_t far, uint32_t fine, term *under, term *over);
#endif
