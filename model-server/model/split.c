#include "model-server/model/split.h"
#include <assert.h>

static int divides(uint32_t world, uint32_t n, const char *what, struct err *e)
{
    if (n % world == 0)
        return 0;
    return err_set(e, ERR_VALIDATION, "`num_shard` %u does not divide the %u %s of this model",
                   world, n, what);
}

int split_make(struct split *s, const struct decoder_spec *spec, int rank, int world, struct err *e)
{
    uint32_t w = (uint32_t)world, r = (uint32_t)rank, kv = spec->n_kv_heads;
    assert(rank >= 0 && rank < world);
    if (divides(w, spec->n_heads, "attention heads", e))
        return -1;
    if (kv % w && w % kv)
        return divides(w, kv, "key-value heads", e);
    if (spec->ffn < w || spec->vocab < w || (spec->moe.n_experts && spec->moe.ffn < w) ||
        (spec->moe.shared_ffn && spec->moe.shared_ffn < w))
        return err_set(e, ERR_VALIDATION, "`num_shard` %u is more than this model can be cut into",
                       w);
    /* groups of columns that share a scale in the checkpoint stay whole */
    const uint32_t unit = spec->moe.layout == EXPERTS_INTERLEAVED && spec->moe.ffn % 32 == 0 &&
                                  spec->moe.ffn / 32 >= w
                              ? 32
                              : 1;
    const struct slice units = slice_of(spec->moe.ffn / unit, rank, world);
    *s = (struct split){
        .rank = rank,
        .world = world,
        .heads = slice_of(spec->n_heads, rank, world),
        .kv_heads = kv % w == 0 ? slice_of(kv, rank, world) : (struct slice){r / (w / kv), 1},
        .ffn = slice_of(spec->ffn, rank, world),
        .shared_ffn = slice_of(spec->moe.shared_ffn, rank, world),
        .moe_ffn = {units.first * unit, units.n * unit},
        .vocab = slice_of(spec->vocab, rank, world),
        .vocab_most = (spec->vocab + w - 1) / w,
    };
    return 0;
}
