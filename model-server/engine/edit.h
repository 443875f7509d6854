/* edit.h - changes by the router between two steps, in this order: saves of recurrent state,
 * requests that leave, KV blocks moved to or from the host's swap region, more blocks for
 * requests, prompt chunks, and drafts.
 *
 * All changes precede the step. So one call can swap out a block of a leaving sequence, fill it
 * from the swap region and assign it to another sequence. Every rank makes the same changes. */
#ifndef MODEL_SERVER_ENGINE_EDIT_H
#define MODEL_SERVER_ENGINE_EDIT_H
#include "model-server/engine/batch.h"
#include "model-server/model/model.h"

/* Pairs of a block of the KV cache and a slot of the host's swap region. */
struct kv_moves {
    const uint32_t *blocks, *slots;
    size_t n_blocks, n_slots; /* must be equal */
};
struct kv_more { /* blocks from number `from` on; may repeat blocks that the request already has */
    uint64_t id;
    uint32_t from;
    const uint32_t *blocks;
    size_t n;
    uint32_t window_from; /* the same for the sliding-window cache */
    const uint32_t *windows;
    size_t n_windows;
};
struct draft_offer { /* see seq_offer(); an unknown request is ignored */
    uint64_t id;
    uint32_t at;
    const uint32_t *ids;
    size_t n;
};
struct state_save { /* saves a request's state after this many tokens to a cell */
    uint64_t id;
    uint32_t cell, tokens;
};
/* All changes of a call; lists with n elements, owned by the caller. */
struct edits {
    const struct state_save *saves;
    size_t n_saves;
    const uint64_t *leave;
    size_t n_leave;
    struct kv_moves out, in;
    const struct kv_more *more;
    size_t n_more;
    const struct draft_offer *offers;
    size_t n_offers;
    bool drafting;     /* no run-ahead after this step */
    bool names_chunks; /* prompts with more than one token left compute the chunk given here, or
                          nothing */
    struct chunks {
        const uint64_t *ids;
        const uint32_t *tokens;
        size_t n_ids, n_tokens; /* must be equal */
    } chunks;
    uint64_t encode_most; /* budget of pictures_encode(); 0: no limit. Only with names_chunks */
};
/* What numbers of blocks, slots, cells and tokens are checked against. */
struct edit_limits {
    uint32_t n_blocks, n_slots; /* of the KV cache and the swap region */
    struct stepper *step;       /* used to save recurrent state */
    uint32_t n_windows;         /* of the sliding-window cache; 0: there is none */
    struct state_cells *cells;  /* recurrent state, or NULL */
    uint32_t vocab;             /* drafts end at an id outside the vocabulary */
};

/* Applies the changes to the sequences of `parts`. Everything is checked first; after
 * ERR_VALIDATION nothing has changed. An error of the device (ERR_SYSTEM) does not change the
 * sequences either. */
int edits_apply(const struct edits *x, struct model *m, const struct edit_limits *lim,
                struct batch *const *parts, size_t n_parts, struct err *e);
#endif
