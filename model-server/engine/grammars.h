/* grammars.h - the constraints of a shard: compiled once, kept while they are asked for.
 *
 * One thread calls grammars_get(); what it returns may be used by any. The vocabulary is laid out
 * when the first constraint is asked for. */
#ifndef MODEL_SERVER_ENGINE_GRAMMARS_H
#define MODEL_SERVER_ENGINE_GRAMMARS_H
#include "common/constraint/constraint.h"
#include "common/tokenizer/tokenizer.h"

/* What a request asks for. */
struct grammar_spec {
    const char *text; /* NULL: nothing */
    enum constraint_kind kind;
    enum constraint_reasoning reasoning;
};

struct grammars;
/* `vocab`: width of a row of logits; ids past the tokenizer's are never allowed. `eos` is copied,
 * `tok` must outlive this. NULL: out of memory. */
struct grammars *grammars_new(const struct tokenizer *tok, uint32_t vocab, const uint32_t *eos,
                              uint32_t n_eos);
void grammars_free(struct grammars *g); /* NULL is fine */
/* A reference of the caller's own; it may still be compiling, on a thread of its own: see
 * constraint_order(). NULL: out of memory. */
struct constraint *grammars_get(struct grammars *g, const struct grammar_spec *spec, struct err *e);
/* For constraint_mask(); NULL before the first grammars_get(). */
const struct token_set *grammars_tokens(const struct grammars *g);
/* The state behind a token; end tokens change nothing. */
constraint_state grammars_next(const struct grammars *g, struct constraint *c, constraint_state at,
                               uint32_t id);
#endif
