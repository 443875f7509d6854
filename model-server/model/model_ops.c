/* model_ops.c - what a model needs of its backend. */
#include "model-server/model/model_impl.h"

/* The first feature of mixers and feed-forwards for which the backend has no op; NULL: none. */
static const char *missing_of_sublayers(const struct decoder *d)
{
    if (d->spec.moe.n_experts && !d->ops->moe)
        return "mixtures of experts";
    if (d->spec.learned_positions && !d->ops->embed_pos)
        return "learned positions";
    if (d->spec.qk_norm == QK_NORM_ALL && !d->ops->row_squares)
        return "norms over all heads";
    if (d->spec.moe.shared_gate && !d->ops->gate_rows)
        return "shared experts with a gate";
    if (d->spec.attn_gate && !(d->ops->gate_norm && d->ops->gate_rows))
        return "attention with a gate";
    if ((d->spec.recur.conv || d->spec.recur.heads) &&
        !(d->ops->conv && d->ops->recur && d->ops->gate_norm))
        return "recurrent layers";
    if (d->spec.mla.kv_rank && (!d->ops->latent_kv || !d->ops->linear_heads))
        return "latent attention";
    if ((d->spec.mla.index.top || d->spec.blocks.top) && !d->ops->select_keys)
        return "attention to selected positions";
    if (d->spec.q_growth.by_head && !d->ops->scale_heads)
        return "factors of heads that grow with the position";
    if ((d->spec.mla.index.pool || d->spec.blocks.heads) && !(d->ops->pool_keys && d->ops->turn))
        return "attention to selected pools";
    if (d->spec.entries.q_rank && !(d->ops->turn && d->ops->keep && d->ops->pool_keys &&
                                    d->ops->select_keys && d->ops->linear_heads))
        return "attention to entries";
    if (d->spec.apart.buckets && !d->ops->linear_heads)
        return "attention to distances";
    if (d->spec.xielu && !d->ops->xielu)
        return "xIELU";
    if (d->spec.per_layer && !d->ops->act_by)
        return "embeddings of each layer";
    if (d->spec.shared.blocks && !d->ops->beside)
        return "blocks that layers share";
    if (d->spec.cca.first && !(d->ops->linear_heads && d->ops->conv && d->ops->beside))
        return "compressed convolutional attention";
    return NULL;
}

/* The same of embeddings and the residual stream. */
static const char *missing_of_streams(const struct decoder *d)
{
    if ((d->spec.result_convs || d->spec.profiles.dim) &&
        !(d->ops->conv && d->ops->beside && d->ops->scale_heads))
        return "convolutions of sublayers' results, or biases that queries mix";
    if ((d->spec.blend_per || d->spec.profiles.clip > 0) && !(d->ops->blend && d->ops->shorten))
        return "streams that are blended, or heads of limited length";
    if ((d->spec.moe.router_width || d->spec.affine || d->spec.sphere.rate != 0) &&
        !d->ops->gate_norm)
        return "products of rows with vectors";
    if (d->spec.skip_share != 0 && !d->ops->beside)
        return "layers that read the stream of earlier ones";
    if (d->spec.moe.early_router && !d->ops->beside)
        return "routers that read the stream before attention";
    if (d->spec.altup.n && !(d->ops->altup && d->ops->match_rows))
        return "parallel residual streams";
    if (d->spec.mix.n && !d->ops->mix)
        return "mixed residual streams";
    if (d->spec.mix.rank && !(d->ops->beside && d->ops->gate_norm))
        return "residual streams joined by gates";
    if (d->spec.ngrams.most &&
        !(d->ops->embed_ngrams && d->ops->root_dots && d->ops->gate_rows && d->ops->conv))
        return "embeddings of n-grams";
    return NULL;
}

/* The same of single layers. */
static const char *missing_of_layers(const struct decoder *d)
{
    for (uint32_t i = 0; i < d->spec.n_layers; i++) {
        if (d->spec.layers[i].merged && !d->ops->merge_attention)
            return "attention to two sources in one softmax";
        if (d->spec.layers[i].mixer == MIXER_FOURIER && !d->ops->fourier)
            return "Fourier transforms of texts";
        if (d->spec.layers[i].sparse && !(d->ops->row_moments && d->ops->sparsify))
            return "activations cut off by their deviation";
    }
    return NULL;
}

int model_check_ops(const struct decoder *d, struct err *e)
{
    const char *missing = missing_of_sublayers(d);
    missing = missing ? missing : missing_of_streams(d);
    missing = missing ? missing : missing_of_layers(d);
    if (!missing)
        return 0;
    return err_set(e, ERR_VALIDATION, "the %s backend has no %s", d->ops->name, missing);
}
