/* grammars.h - cache of a shard's compiled constraints.
 *
 * One thread calls grammars_get(); any thread may use the result. The vocabulary is prepared at
 * the first call. */
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
/* `vocab`: width of a row of logits; ids beyond the tokenizer's are never allowed. `eos` is
 * copied, `tok` must outlive the result. NULL: out of memory. */
struct grammars *grammars_new(const struct tokenizer *tok, uint32_t vocab, const uint32_t *eos,
                              uint32_t n_eos);
void grammars_free(struct grammars *g); /* NULL is fine */
/* Returns a new reference. It may still be compiling on a separate thread: see
 * constraint_order(). NULL: out of memory. */
struct constraint *grammars_get(struct grammars *g, const struct grammar_spec *spec, struct err *e);
/* For constraint_mask(); NULL before the first grammars_get(). */
const struct token_set *grammars_tokens(const struct grammars *g);
/* The state after a token; end tokens do not change it. */
constraint_state grammars_next(const struct grammars *g, struct constraint *c, constraint_state at,
                               uint32_t id);
#endif
