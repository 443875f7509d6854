/* split.h - tensor parallelism: which rows and columns of every matrix a rank owns.
 *
 * Megatron-LM's scheme (arXiv 1909.08053): q, k, v, gate and up by output rows (heads, ffn), o and
 * down by input columns followed by a sum over ranks, embedding and head by rows of the vocabulary.
 * Heads split evenly; ffn and vocabulary may leave ranks that differ by one. */
#ifndef MODEL_SERVER_MODEL_SPLIT_H
#define MODEL_SERVER_MODEL_SPLIT_H
#include "common/err.h"
#include "model-server/backend/slice.h"
#include "model-server/model/spec/decoder_spec.h"

struct split {
    int rank, world;
    struct slice heads, moe_ffn, shared_ffn, vocab;
    struct slice experts;             /* whole experts of this rank */
    struct slice mix_heads, mix_keys; /* of recurrent layers: value heads and key heads */
    struct slice channels;            /* of MIXER_CONV */
    uint32_t vocab_most;              /* rows of the largest vocabulary slice */
};

/* A layer's heads on this rank. */
static inline struct slice split_heads(const struct split *s, const struct decoder_spec *spec,
                                       uint32_t layer)
{
    return slice_of(spec_heads(spec, layer), s->rank, s->world);
}

/* A layer's key-value heads on this rank, which may be fewer than ranks, and its part of the
 * MLP. */
static inline struct slice split_kv_heads(const struct split *s, const struct decoder_spec *spec,
                                          uint32_t layer)
{
    const uint32_t n = spec_kv_heads(spec, layer), world = (uint32_t)s->world;
    return n % world == 0 ? slice_of(n, (uint32_t)s->rank, world)
                          : (struct slice){(uint32_t)s->rank / (world / n), 1};
}
static inline struct slice split_ffn(const struct split *s, const struct decoder_spec *spec,
                                     uint32_t layer)
{
    return slice_of(spec_ffn(spec, layer), (uint32_t)s->rank, (uint32_t)s->world);
}

/* ERR_VALIDATION with the numbers if `world` does not divide the heads. If there are fewer
 * key-value heads than ranks, world / n_kv_heads ranks each hold one; the same applies to key
 * heads of recurrent layers. */
int split_make(struct split *s, const struct decoder_spec *spec, int rank, int world,
               struct err *e);
/* Expert parallelism (GShard, arXiv 2006.16668): each rank has some whole experts, instead of a
 * part of each. Everything else stays as split by split_make(). ERR_VALIDATION: fewer experts
 * than ranks. */
int split_by_experts(struct split *s, const struct decoder_spec *spec, struct err *e);
#endif
