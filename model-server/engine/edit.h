/* edit.h - what the router changes between two steps: whose recurrent state is kept, who leaves,
 * which KV blocks move to the host's swap region or come back, which requests get more blocks, how
 * much of their prompts those in prefill compute, and the drafts of what requests will go on with.
 *
 * In this order, all before the step: so a block that one sequence leaves may be swapped out,
 * filled from the region and given to another by one call. Every rank does the same. */
#ifndef MODEL_SERVER_ENGINE_EDIT_H
#define MODEL_SERVER_ENGINE_EDIT_H
#include "model-server/engine/batch.h"
#include "model-server/model/model.h"

struct kv_moves { /* n pairs */
    const uint32_t *blocks, *slots;
    size_t n_blocks, n_slots; /* must be equal */
};
struct kv_more { /* blocks from number `from` on; those the request has may be said again */
    uint64_t id;
    uint32_t from;
    const uint32_t *blocks;
    size_t n;
    uint32_t window_from; /* the same in the cache of windows */
    const uint32_t *windows;
    size_t n_windows;
};
struct draft_offer { /* see seq_offer(); one for an unknown request is passed over */
    uint64_t id;
    uint32_t at;
    const uint32_t *ids;
    size_t n;
};
struct state_save { /* the state of a request that has computed so many tokens, to a cell */
    uint64_t id;
    uint32_t cell, tokens;
};
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
    bool drafting;     /* the next step is not run ahead */
    bool names_chunks; /* prompts with more than one token left compute what is said here, or
                          nothing */
    struct chunks {
        const uint64_t *ids;
        const uint32_t *tokens;
        size_t n_ids, n_tokens; /* must be equal */
    } chunks;
    uint64_t encode_most; /* of pictures_encode(); 0: no limit. Only with names_chunks */
};
struct edit_limits {
    uint32_t n_blocks, n_slots; /* of the KV cache and the swap region */
    struct stepper *step;       /* for saves of recurrent state */
    uint32_t n_windows;         /* of the cache of windows; 0: there is none */
    struct state_cells *cells;  /* of recurrent state, or NULL */
    uint32_t vocab;             /* drafts end at an id that is not in it */
};

/* Change the sequences of `parts`. Everything is checked first: ERR_VALIDATION, and nothing has
 * changed. An error of the device (ERR_SYSTEM) leaves the sequences as they were as well. */
int edits_apply(const struct edits *x, struct model *m, const struct edit_limits *lim,
                struct batch *const *parts, size_t n_parts, struct err *e);
#endif
