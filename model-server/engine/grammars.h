/* grammars.h - a shard's compiled constraints, and the memory that they share.
 *
 * One thread calls these functions; any thread may use a constraint, and call grammars_next(). The
 * vocabulary is prepared at the first call. */
#ifndef MODEL_SERVER_ENGINE_GRAMMARS_H
#define MODEL_SERVER_ENGINE_GRAMMARS_H
#include "common/constraint/constraint.h"
#include "common/tokenizer/tokenizer.h"

/* What a request asks for. */
struct grammar_spec {
    const char *text; /* NULL: nothing */
    enum constraint_kind kind;
    struct constraint_front front;
};

struct grammars;
/* `vocab`: width of a row of logits; ids beyond the tokenizer's are never allowed. `budget`: bytes
 * that all constraints may take together. `eos` is copied, `tok` must outlive the result. NULL: out
 * of memory. */
struct grammars *grammars_new(const struct tokenizer *tok, uint32_t vocab, const uint32_t *eos,
                              uint32_t n_eos, size_t budget);
void grammars_free(struct grammars *g); /* NULL is fine; each constraint was put back */
/* Returns a constraint to use until grammars_put(). It may still be compiling on a separate thread:
 * see constraint_order(). NULL: out of memory. */
struct constraint *grammars_get(struct grammars *g, const struct grammar_spec *spec, struct err *e);
void grammars_put(struct grammars *g, struct constraint *c); /* stays for later users, if it fits */

/* To be called between steps: keeps all constraints within the budget, because they grow with the
 * texts that were generated. Does not wait for compilations. First those that nothing uses are
 * dropped, then masks and transitions of the others, in each case the least recently requested
 * first. If their states alone exceed the budget, the largest gets no more memory
 * (constraint_close()), and its requests fail. Depends only on the calls and texts before it, so
 * that all ranks do the same. */
void grammars_settle(struct grammars *g);
struct grammars_stats {
    uint64_t bytes;                    /* as of the last grammars_settle() */
    uint64_t dropped, trimmed, closed; /* constraints, since the start */
};
struct grammars_stats grammars_stats(const struct grammars *g);
/* For constraint_mask(); NULL before the first grammars_get(). */
const struct token_set *grammars_tokens(const struct grammars *g);
/* The state after a token; end tokens do not change it. */
constraint_state grammars_next(const struct grammars *g, struct constraint *c, constraint_state at,
                               uint32_t id);
#endif
