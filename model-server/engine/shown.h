/* shown.h - keys and values of pictures, for layers that attend to pictures (MIXER_CROSS).
 *
 * They are a function of the pictures alone, so they are kept by what is shown, and sequences share
 * them. A run is what a token can see at once: pictures that stand side by side in a prompt, whose
 * rows lie one behind the other. Memory is a pool of blocks of MODEL_CROSS_BLOCK rows. A sequence
 * takes all of its runs or none and waits with none, so that those that have theirs can always end.
 * Runs that no sequence has stay until their blocks are needed, the longest unused leave first.
 * Every rank gets the same calls. One thread. */
#ifndef MODEL_SERVER_ENGINE_SHOWN_H
#define MODEL_SERVER_ENGINE_SHOWN_H
#include "model-server/model/model.h"

struct shown_run {
    uint64_t key;
    uint32_t rows, stored; /* of these so many have keys and values */
    uint32_t *blocks, n_blocks;
    uint32_t refs; /* sequences that have it */
    struct shown_run *newer, *older;
};
static inline bool shown_ready(const struct shown_run *r) { return r->stored == r->rows; }

struct shown {
    struct model *model;
    uint32_t n_blocks, n_free, *free; /* free[0 .. n_free) */
    struct shown_run *newest, *oldest;
};

/* Replaces the pool; no sequence has a run. n_blocks 0: frees it. */
int shown_resize(struct shown *p, uint32_t n_blocks, enum kv_dtype dtype, struct err *e);
/* The run of that key, or NULL; nobody gets it. */
struct shown_run *shown_find(const struct shown *p, uint64_t key);
/* Runs of these keys and numbers of rows, found or new: 1. 0: there is no room now, and nothing has
 * changed. -1: no memory. */
int shown_take(struct shown *p, const uint64_t *keys, const uint32_t *rows, uint32_t n,
               struct shown_run **out, struct err *e);
void shown_drop(struct shown *p, struct shown_run *r);
/* Keys and values of its next n rows [n][hidden]. */
int shown_store(struct shown *p, struct shown_run *r, const float *rows, uint32_t n, struct err *e);
uint32_t shown_blocks_of(uint32_t rows);
#endif
