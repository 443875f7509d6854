/* shown.h - the cache of images' keys and values, for cross-attention layers (MIXER_CROSS).
 *
 * Keys and values depend only on the images, so they are cached by the images' digests, and
 * sequences share them. A run is a sequence of adjacent images in a prompt, with consecutive rows:
 * a token attends to one run. Memory is a pool of blocks of MODEL_CROSS_BLOCK rows. A sequence gets
 * all its runs or none, and waits without any, so that a sequence that has its runs always
 * finishes. Unused runs stay until their blocks are needed; the least recently used is evicted
 * first. Every rank gets the same calls. Not thread-safe. */
#ifndef MODEL_SERVER_ENGINE_SHOWN_H
#define MODEL_SERVER_ENGINE_SHOWN_H
#include "model-server/model/model.h"

struct shown_run {
    uint64_t key;
    uint32_t rows, stored; /* number of rows; rows with keys and values */
    uint32_t *blocks, n_blocks;
    uint32_t refs; /* sequences that use it */
    struct shown_run *newer, *older;
};
static inline bool shown_ready(const struct shown_run *r) { return r->stored == r->rows; }

struct shown {
    struct model *model;
    uint32_t n_blocks, n_free, *free; /* free[0 .. n_free) */
    struct shown_run *newest, *oldest;
};

/* Replaces the pool. No run may be in use. n_blocks 0: frees it. */
int shown_resize(struct shown *p, uint32_t n_blocks, enum kv_dtype dtype, struct err *e);
/* Returns the run with that key, without a reference, or NULL. */
struct shown_run *shown_find(const struct shown *p, uint64_t key);
/* Takes a reference on a run for each key, and creates those that do not exist: returns 1. 0: the
 * pool has too few unused blocks; nothing has changed. -1: out of memory. */
int shown_take(struct shown *p, const uint64_t *keys, const uint32_t *rows, uint32_t n,
               struct shown_run **out, struct err *e);
void shown_drop(struct shown *p, struct shown_run *r); /* releases a reference */
/* Computes and stores keys and values of the run's next n rows [n][hidden], in host memory. */
int shown_store(struct shown *p, struct shown_run *r, const float *rows, uint32_t n, struct err *e);
uint32_t shown_blocks_of(uint32_t rows);
#endif
