/* kv.h - what the cache of keys and values holds: its types, layers and blocks. Part of backend.h.
 *
 * A backend allocates the cache (backend_ops.kv_new) and lays it out. The engine knows only the
 * numbers of its blocks. */
#ifndef MODEL_SERVER_BACKEND_KV_H
#define MODEL_SERVER_BACKEND_KV_H
#include "model-server/backend/ragged.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Storage types of keys and values. int8, fp8 (e4m3) and int4 have one fp32 scale for each token
 * and head. In int8 and fp8 it maps the greatest magnitude to the type's greatest number. In int4
 * the numbers are rotated first (hadamard() in the CPU backend), and the greatest becomes -8. */
enum kv_dtype { KV_F32, KV_F16, KV_BF16, KV_I8, KV_FP8, KV_I4, KV_N };
static inline bool kv_dtype_scaled(enum kv_dtype t) { return t >= KV_I8; }
/* Bytes of n numbers; n must be even for int4. */
static inline size_t kv_dtype_bytes(enum kv_dtype t, size_t n)
{
    return t == KV_F32 ? 4 * n : t == KV_I4 ? n / 2 : kv_dtype_scaled(t) ? n : 2 * n;
}
/* "float32", "float16", "bfloat16", "int8", "fp8", "int4" */
const char *kv_dtype_name(enum kv_dtype t);
/* The values of --kv-cache-dtype, "auto" first, NULL last; the type of the value at `choice` (>
 * 0). */
extern const char *const kv_dtype_choices[];
enum kv_dtype kv_dtype_chosen(uint32_t choice);

/* What a layer caches for each token: `n_heads` keys of k_dim numbers and values of v_dim. */
struct kv_layer {
    uint32_t n_heads, k_dim, v_dim; /* n_heads 0: only index keys */
    bool latent; /* a value is the first v_dim numbers of its key (one head): see latent_kv() */
    uint32_t index_dim; /* width of one more key of each token, for select_keys(); 0: none */
    /* Not 0: positions of an entry (entries.h). A latent layer has one more key, which is also a
     * value, for this many consecutive positions. k_dim == v_dim. */
    uint32_t every;
};
/* Opaque: K and V of its layers, logically [n_layers][n_blocks][block_size][n_heads][dim], with
 * the heads and dimensions of each layer. One block table serves all of them. Sliding-window
 * layers may have a separate cache, whose blocks are reused when they are outside all windows. */
struct kv_cache;
struct kv_desc {
    uint32_t n_layers, n_blocks, block_size;
    enum kv_dtype dtype;
    struct kv_layer each;          /* of every layer, if `layers` is NULL */
    const struct kv_layer *layers; /* [n_layers]; only read by kv_new() and kv_block_bytes() */
    /* Attention may round q and its weights, also in ARITH_EXACT: to bfloat16, beside int4 to 8
     * bits. */
    bool rounds;
    bool windows; /* the places of tokens are in span.windows and ragged.window_slots */
};
/* The slots of a step's tokens in the cache. */
static inline const uint32_t *kv_slots(const struct kv_desc *k, const struct ragged *b)
{
    return k->windows ? b->window_slots : b->slots;
}
static inline const uint32_t *kv_blocks_of(const struct kv_desc *k, const struct span *s)
{
    return k->windows ? s->windows : s->blocks;
}
static inline const struct kv_layer *kv_layer(const struct kv_desc *k, uint32_t layer)
{
    return k->layers ? &k->layers[layer] : &k->each;
}
#endif
