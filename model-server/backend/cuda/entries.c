/* entries.c - records rotations of parts of heads, and the writing of keys and entries: entries.cu.
 */
#include "model-server/backend/cuda/cuda.h"

void cuda_turn(struct device *d, float *x, const struct turn *p)
{
    const struct turn_args a = {.x = x,
                                .rope = p->rope,
                                .tokens = d->batch->n_tokens,
                                .n_heads = p->n_heads,
                                .dim = p->dim,
                                .at = p->at,
                                .rot_dim = p->rot_dim,
                                .interleaved = p->interleaved,
                                .back = p->back};
    RECORD(d, turn_launch, a);
}

void cuda_keep(struct device *d, struct kv_cache *cache, uint32_t layer, const float *x,
               bool entries)
{
    const uint32_t every = entries ? cache->places[layer].every : 0;
    const struct keep_args a = {.x = x,
                                .kv = every ? kv_entry_view(cache, layer, every)
                                            : kv_view(cache, layer),
                                .slots = kv_slots_of(d, cache),
                                .span_of = d->b.span_of,
                                .spans = d->b.spans,
                                .tokens = d->batch->n_tokens,
                                .dim = cache->places[layer].k_dim,
                                .every = every,
                                .block_size = cache->desc.block_size};
    RECORD(d, keep_launch, a);
}
