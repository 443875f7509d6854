/* attention.h - the weights and sizes of softmax attention, for attention.c and attention_load.c,
 * and what other mixers take of it. */
#ifndef MODEL_SERVER_MODEL_MIXER_ATTENTION_H
#define MODEL_SERVER_MODEL_MIXER_ATTENTION_H
#include "model-server/model/loader/loader.h"
#include "model-server/model/mixer/apart.h"
#include "model-server/model/mixer/blocks.h"

struct attention {
    struct weight *qkv;          /* [q, k and v of this rank's heads, hidden] */
    struct weight *qkv_embedded; /* the same of the embedding, or NULL */
    struct weight *o;            /* [hidden, heads * v_dim] */
    struct weight *gate;         /* [heads * v_dim, hidden], or NULL */
    float *qkv_bias, *o_bias, *gate_bias, *gate_factors;
    float *gate_norm;                 /* [heads * v_dim] ones, with decoder_spec.attn_gate_norm */
    float *q_norm, *k_norm;           /* [head_dim], or of all this rank's heads */
    float *q_norm_bias, *k_norm_bias; /* [head_dim] with QK_NORM_LAYER */
    float *v_norm;                    /* [v_dim] ones */
    float *sub_norm;                  /* before `o`: of this rank's heads, or NULL */
    float *sinks, *alibi;             /* [heads] */
    float *near;                      /* [heads][2 * most + 1] */
    struct apart *apart;              /* or NULL */
    struct block_index *index;        /* or NULL */
    struct clip qkv_clip, o_clip;
};

/* Sizes of a layer on this rank. */
struct attention_shape {
    uint32_t dim, v_dim, heads, kv_heads;
    /* elements of a row: of q, k, v; of the weighted sums of values; of the product, which has no k
     * and v if another layer's are read */
    uint32_t q, k, v, sums, qkv;
    uint32_t new_kv_heads; /* heads of k, and of v, that the product computes */
};
struct attention_shape attention_shape(const struct decoder *d, uint32_t layer);

/* sublayer_ops.kv of a mixer with these heads. */
bool attention_keeps(const struct decoder *d, uint32_t layer, struct kv_layer *out);
/* att [tokens][sums] of qkv [tokens][qkv], which stores k and v: softmax attention alone, without
 * rotation, norms and biases. For mixers that have more beside it. */
void attention_plain(struct decoder *d, const struct sub_step *t, float *att, float *qkv);

/* Multiplies att [tokens][sums] by the gate of the layer's input. */
void attention_gate(struct decoder *d, const struct attention *a, struct sub_step *t, float *att);

/* struct sublayer_ops of layer.h: a struct attention, NULL after an error that the loader
 * records. */
void *attention_load(struct loader *l, uint32_t layer);
void attention_free(struct decoder *d, void *self);
#endif
