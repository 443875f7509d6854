/* kv_parts.h - assigns cached layers to caches: all to one, or sliding-window layers to a
 * separate one, whose blocks are reused when they are outside all windows. */
#ifndef MODEL_SERVER_MODEL_KV_PARTS_H
#define MODEL_SERVER_MODEL_KV_PARTS_H
#include "model-server/model/decoder.h"

enum kv_part { KV_ALL, KV_WITHOUT_WINDOWS, KV_WINDOWS };

/* Determines what the layers cache, and what each of them reads: fills the kv_ fields of `d`, for
 * one cache of all layers. */
void kv_parts_plan(struct decoder *d, const struct sublayer_ops *const *mixers);
/* Numbers the layers of one cache, or of two (`apart`). */
void kv_parts_number(struct decoder *d, bool apart);
/* Bytes of a block of the cache of these layers. A cache without layers is small, but positions
 * are still counted by its blocks. */
uint64_t kv_part_bytes(const struct decoder *d, enum kv_part part, uint32_t block_size,
                       enum kv_dtype dtype);
/* NULL with `e`; freed by kv_parts_free() as d->kv or d->windows. */
struct kv_cache *kv_part_new(struct decoder *d, enum kv_part part, uint32_t n_blocks,
                             uint32_t block_size, enum kv_dtype dtype, struct err *e);
void kv_parts_free(struct decoder *d);
#endif
