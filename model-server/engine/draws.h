/* draws.h - what the sequences of a step ask of a device that chooses tokens itself (backend.h's
 * draw()), and what comes back for each. One thread. */
#ifndef MODEL_SERVER_ENGINE_DRAWS_H
#define MODEL_SERVER_ENGINE_DRAWS_H
#include "model-server/engine/seq.h"

struct draws { /* zero-initialise; one step's rows */
    struct draw *v;
    uint32_t n, cap;
    uint32_t *masks, n_masks, cap_masks;
    size_t mask_words;
    uint32_t *never; /* lists of tokens that may not come, of rows that have more than a stop rule's
                      */
    size_t n_never, cap_never;
    uint32_t n_top, n_fetched;
};
void draws_free(struct draws *d);
/* Forget what is there; room for what `rows` rows of `vocab` tokens may ask for, those of the n
 * sequences in v. */
int draws_begin(struct draws *d, struct seq *const *v, uint32_t n, uint32_t rows, uint32_t vocab,
                struct err *e);
/* What the rules of a sampling ask for, of a row that is like any other: without a position, a
 * context, bans or alternatives. Borrows p's lists. */
struct draw draws_rules(const struct sampling *p);
/* What `s` asks for, with `more` tokens behind those that are known: drafts, or one that a row of
 * the step before, `last` (else DRAW_KNOWN), is about to choose. Returns where its result will be.
 */
struct draw_place draws_add(struct draws *d, const struct seq *s, uint32_t more, uint32_t last);
/* Where that of its j-th draft is: they follow each other. */
struct draw_place draws_place(const struct draw_place *first, const struct seq *s, uint32_t j);
/* Is the device not asked for a token of `s` at all, but for its logits? */
bool draws_fetch(const struct seq *s);
/* The host needs this sequence's last token to say what the next one may be. */
bool draws_wait(const struct seq *s);
/* The result at `at` into *out, whose arrays have room; or the row of logits in *row. Returns why
 * there is no token, or NULL. */
const char *draws_take(const struct draw_results *r, const struct draw_place *at,
                       struct sampled *out, uint32_t vocab, float **row);
#endif
