/* draws.h - requests of a step to a device that samples tokens itself (backend.h's draw()), and
 * its results. One thread. */
#ifndef MODEL_SERVER_ENGINE_DRAWS_H
#define MODEL_SERVER_ENGINE_DRAWS_H
#include "model-server/engine/seq.h"

struct draws { /* rows of one step; zero-initialise */
    struct draw *v;
    uint32_t n, cap;
    uint32_t *masks, n_masks, cap_masks;
    size_t mask_words;
    uint32_t *never; /* forbidden tokens of rows that have more than those of a stop rule */
    size_t n_never, cap_never;
    uint32_t n_top, n_fetched;
};
void draws_free(struct draws *d);
/* Clears the list and allocates memory for `rows` rows of `vocab` tokens, for the n sequences in
 * v. */
int draws_begin(struct draws *d, struct seq *const *v, uint32_t n, uint32_t rows, uint32_t vocab,
                struct err *e);
/* The sampling parameters of an ordinary row, without position, context, bans or alternatives.
 * Borrows p's lists. */
struct draw draws_rules(const struct sampling *p);
/* Adds the request for `s` with `more` tokens after the known ones. These are drafts, or one
 * token that row `last` of the previous step will yield (else DRAW_KNOWN). Returns the place of
 * its result. */
struct draw_place draws_add(struct draws *d, const struct seq *s, uint32_t more, uint32_t last);
/* The place of the result for its j-th draft; results of drafts are consecutive. */
struct draw_place draws_place(const struct draw_place *first, const struct seq *s, uint32_t j);
/* True if the next token of `s` can only be sampled after the host has its last token. */
bool draws_wait(const struct seq *s);
/* Reads the result at `at` into *out, whose arrays must have the capacity; or the row of logits
 * into *row. Returns NULL, or why there is no token. */
const char *draws_take(const struct draw_results *r, const struct draw_place *at,
                       struct sampled *out, uint32_t vocab, float **row);
#endif
