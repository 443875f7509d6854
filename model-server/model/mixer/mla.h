/* mla.h - latent attention (mla.c): its weights and the sizes of its rows. */
#ifndef MODEL_SERVER_MODEL_MIXER_MLA_H
#define MODEL_SERVER_MODEL_MIXER_MLA_H
#include "model-server/model/decoder.h"
#include "model-server/model/loader/loader.h"

/* Two numbers of each head, of q_growth.by_head; NULL: none. */
struct head_growth {
    float *slope, *offset;
};

/* Queries [index.heads * dim, q_rank or hidden], keys [dim, hidden] and their norm, weights [heads,
 * hidden]. */
struct indexer {
    struct weight *q, *k, *weights;
    struct norm norm, in_norm; /* in_norm: [hidden] of index_spec.own_norm */
    struct head_growth growth;
    struct weight *pool_gate; /* [dim, hidden] with index.pool; else NULL */
    float *pool_bias;         /* [pool, dim] */
    uint64_t state;           /* the pool that is open, in a cell */
};

struct mla {
    struct indexer index;
    struct weight *q_a; /* [q_rank, hidden], or NULL */
    /* [heads * nope], [heads * rope] of hidden or q_rank; q_rope is NULL without rotation */
    struct weight *q_nope, *q_rope;
    struct weight *kv_a; /* [kv_rank + rope, hidden]; NULL: it reads another layer's latents */
    struct weight *gate; /* [heads] or [heads * v] of hidden, or NULL */
    struct weight *o;    /* [hidden, heads * v] */
    struct weight **k_up, **v_up; /* [heads] of [kv_rank, nope] and [v, kv_rank] */
    uint32_t heads;
    struct norm q_norm; /* [q_rank] */
    float *kv_norm;     /* [kv_rank] */
    float *turn_norm;   /* [rope], or NULL */
    float *sinks;       /* [heads], or NULL */
    struct head_growth growth;
};

/* Elements of a row of a layer on this rank. */
struct mla_shape {
    uint32_t heads, nope, rope, latent, key, q, v, gate;
};
struct mla_shape mla_shape_of(const struct decoder *d, uint32_t layer);
/* True if the layer selects positions itself. */
bool mla_has_indexer(const struct decoder *d, uint32_t layer);

/* struct sublayer_ops.load and .free (mla_load.c). */
void *mla_load(struct loader *l, uint32_t layer);
void mla_free(struct decoder *d, void *self);
#endif
