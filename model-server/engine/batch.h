/* batch.h - the batches that a shard keeps between calls, by id.
 *
 * Pure bookkeeping, independent of the model. A batch owns its sequences. */
#ifndef MODEL_SERVER_ENGINE_BATCH_H
#define MODEL_SERVER_ENGINE_BATCH_H
#include "model-server/engine/seq.h"

struct batch {
    uint64_t id;
    struct seq **v;
    uint32_t n, cap;
    struct batch *next;
};
struct batch *batch_new(uint64_t id, struct err *e);
void batch_free(struct batch *b); /* and its sequences; NULL is allowed */
int batch_reserve(struct batch *b, uint32_t n, struct err *e);
void batch_add(struct batch *b, struct seq *s); /* after batch_reserve() */
/* Keeps the listed requests, in that order. ERR_VALIDATION, without any change: an id is unknown
 * or listed twice. */
int batch_filter(struct batch *b, const uint64_t *ids, size_t n, struct err *e);
struct seq *batch_find(const struct batch *b, uint64_t id); /* NULL: not there */
void batch_drop(struct batch *b, uint64_t id);              /* it is there */
/* Moves failed sequences to the end of `out`, which must have the capacity. */
void batch_drop_failed(struct batch *b, struct batch *out);
bool batch_over(const struct batch *b); /* no sequence has anything left to do */

/* CachedBatch.max_tokens and .current_tokens */
uint32_t batch_max_tokens(const struct batch *b, uint32_t block_size);
uint32_t batch_current_tokens(const struct batch *b);

struct batches { /* zero-initialise */
    struct batch *head;
};
struct batch *batches_find(const struct batches *a, uint64_t id);
/* Finds all of `ids`. -1 if one is missing or listed twice. */
int batches_find_all(const struct batches *a, const uint64_t *ids, size_t n, struct batch **out,
                     struct err *e);
struct batch *batches_take(struct batches *a, uint64_t id); /* NULL: not there */
void batches_put(struct batches *a, struct batch *b);       /* replaces a batch with the same id */
void batches_clear(struct batches *a);
#endif
