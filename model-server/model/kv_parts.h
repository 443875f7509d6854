/* kv_parts.h - which cached layers lie in which cache: all in one, or those that see no more than a
 * window in a cache of their own, whose blocks are used again when no token sees them. */
#ifndef MODEL_SERVER_MODEL_KV_PARTS_H
#define MODEL_SERVER_MODEL_KV_PARTS_H
#include "model-server/model/decoder.h"

enum kv_part { KV_ALL, KV_WITHOUT_WINDOWS, KV_WINDOWS };

/* What the layers keep, and which of it each of them reads: fills the kv_ fields of `d`, for one
 * cache of all layers. */
void kv_parts_plan(struct decoder *d, const struct sublayer_ops *const *mixers);
/* Numbers the layers of one cache, or of two (`apart`). */
void kv_parts_number(struct decoder *d, bool apart);
/* Of a block of the cache of these layers. A cache of no layers is small: positions are counted by
 * its blocks all the same. */
uint64_t kv_part_bytes(const struct decoder *d, enum kv_part part, uint32_t block_size,
                       enum kv_dtype dtype);
/* NULL with `e`; freed by kv_parts_free() as d->kv or d->windows. */
struct kv_cache *kv_part_new(struct decoder *d, enum kv_part part, uint32_t n_blocks,
                             uint32_t block_size, enum kv_dtype dtype, struct err *e);
void kv_parts_free(struct decoder *d);
#endif
