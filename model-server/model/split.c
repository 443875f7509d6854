#include "model-server/model/split.h"
#include <assert.h>

static int divides(uint32_t world, uint32_t n, const char *what, struct err *e)
{
    uint32_t fewer = world;
    if (n % world == 0)
        return 0;
    while (n % fewer)
        fewer--;
    return err_set(e, ERR_VALIDATION,
                   "`num_shard` %u does not divide the %u %s of this model; %u does", world, n,
                   what, fewer);
}

/* Heads that several ranks may share: see split_make(). */
static struct slice shared_heads(uint32_t n, uint32_t rank, uint32_t world)
{
    return n % world == 0 ? slice_of(n, rank, world) : (struct slice){rank / (world / n), 1};
}

/* Ranks that share a group of Mamba-2 normalise it together; rows have space for two groups. */
static bool too_many_groups(const struct decoder_spec *s, uint32_t world)
{
    bool mamba = false;
    for (uint32_t i = 0; i < s->n_layers; i++)
        mamba |= s->layers[i].mixer == MIXER_MAMBA2 || s->layers[i].mixer == MIXER_PAIR ||
                 s->layers[i].mixer == MIXER_SHARED;
    return mamba && s->recur.key_heads > 2 && s->recur.key_heads < world;
}

static int check_recur(const struct decoder_spec *s, uint32_t world, struct err *e)
{
    const struct recur_spec *r = &s->recur;
    if (!r->heads)
        return 0;
    if (too_many_groups(s, world))
        return err_set(e, ERR_VALIDATION, "`num_shard` %u is more than the %u groups of this model",
                       world, r->key_heads);
    if (divides(world, r->heads, "heads of the recurrent layers", e))
        return -1;
    return r->key_heads % world && world % r->key_heads
               ? divides(world, r->key_heads, "key heads of the recurrent layers", e)
               : 0;
}

/* Heads that a mixer does not separate: all of a key-value head, or of two. */
static int check_groups(const struct decoder_spec *s, uint32_t layer, uint32_t world, struct err *e)
{
    const enum mixer_kind m = s->layers[layer].mixer;
    const uint32_t kv = spec_kv_heads(s, layer);
    if (m == MIXER_DIFFERENCE)
        return divides(world, kv / 2, "pairs of key-value heads", e);
    return m == MIXER_CCA ? divides(world, kv, "key-value heads", e) : 0;
}

int split_make(struct split *s, const struct decoder_spec *spec, int rank, int world, struct err *e)
{
    const uint32_t w = (uint32_t)world, r = (uint32_t)rank;
    assert(rank >= 0 && rank < world);
    if (divides(w, spec->n_heads, "attention heads", e))
        return -1;
    for (uint32_t i = 0; i == 0 || i < spec->n_layers; i++) {
        const uint32_t kv = spec_kv_heads(spec, i);
        if (i < spec->n_layers && divides(w, spec_heads(spec, i), "attention heads", e))
            return -1;
        if (i < spec->n_layers && check_groups(spec, i, w, e))
            return -1;
        if (kv % w && w % kv)
            return divides(w, kv, "key-value heads", e);
    }
    if (check_recur(spec, w, e))
        return -1;
    if (spec->ffn < w || spec->vocab < w || (spec->moe.n_experts && spec->moe.ffn < w) ||
        (spec->moe.shared_ffn && spec->moe.shared_ffn < w) ||
        (spec->moe.sight_ffn && spec->moe.sight_ffn < w))
        return err_set(e, ERR_VALIDATION, "`num_shard` %u is more than this model can be cut into",
                       w);
    /* columns that share a scale in the checkpoint are not separated */
    const uint32_t unit = spec->moe.layout == EXPERTS_INTERLEAVED && spec->moe.ffn % 32 == 0 &&
                                  spec->moe.ffn / 32 >= w
                              ? 32
                              : 1;
    const struct slice units = slice_of(spec->moe.ffn / unit, r, w);
    *s = (struct split){
        .rank = rank,
        .world = world,
        .heads = slice_of(spec->n_heads, r, w),
        .shared_ffn = slice_of(spec->moe.shared_ffn, r, w),
        .moe_ffn = {units.first * unit, units.n * unit},
        .experts = {0, spec->moe.n_experts},
        .mix_heads = slice_of(spec->recur.heads, r, w),
        .channels = slice_of(spec->hidden, r, w),
        .vocab = slice_of(spec->vocab, r, w),
        .vocab_most = (spec->vocab + w - 1) / w,
    };
    if (spec->recur.heads)
        s->mix_keys = shared_heads(spec->recur.key_heads, r, w);
    return 0;
}

int split_by_experts(struct split *s, const struct decoder_spec *spec, struct err *e)
{
    const uint32_t n = spec->moe.n_experts;
    if (n < (uint32_t)s->world)
        return err_set(e, ERR_VALIDATION,
                       "--enable-expert-parallel: %u experts for %d ranks of a stage", n, s->world);
    s->experts = slice_of(n, (uint32_t)s->rank, (uint32_t)s->world);
    s->moe_ffn = (struct slice){0, spec->moe.ffn};
    return 0;
}
