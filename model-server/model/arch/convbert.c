/* ConvBERT (arXiv 2008.02496): ELECTRA with half of its heads replaced by span-based dynamic
 * convolutions. */
#include "model-server/model/arch.h"
#include "model-server/model/taps.h"

static void heads(struct config *c, struct decoder_spec *s)
{
    const uint32_t ratio = config_u32_or(c, "head_ratio", 2, 1, 1u << 16);
    const uint32_t n = s->n_heads / ratio ? s->n_heads / ratio : 1;
    if (s->hidden % (2 * n))
        config_fail(c, "`hidden_size` must be a multiple of 2 * `num_attention_heads` / "
                       "`head_ratio`");
    s->n_heads = s->n_kv_heads = n;
    s->head_dim = s->hidden / n / 2;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        s->layers[i].mixer = MIXER_SPAN_CONV;
        s->layers[i].attn_scale = spec_head_scale(s);
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    const uint32_t groups = config_u32_or(c, "num_groups", 1, 1, 1u << 16);
    config_encoder(c, s, 0);
    s->embed_dim = config_u32_or(c, "embedding_size", 768, 4, 1u << 22);
    if (s->embed_dim > s->hidden || s->embed_dim % 4)
        config_fail(c, "`embedding_size` must be a multiple of 4 up to `hidden_size`");
    if (s->embed_dim == s->hidden)
        s->embed_dim = 0;
    s->span_conv.taps = config_u32_or(c, "conv_kernel_size", 9, 1, TAPS_MOST);
    if (s->span_conv.taps % 2 == 0)
        config_fail(c, "`conv_kernel_size` must be odd");
    if (s->hidden % groups || s->ffn % groups)
        config_fail(c, "`num_groups` must divide `hidden_size` and `intermediate_size`");
    s->groups = (struct group_spec){.up = groups, .down = groups, .turned = true};
    heads(c, s);
}

#define SELF "convbert.encoder.layer.*.attention.self."
const struct arch arch_convbert = {
    .types = (const char *const[]){"convbert", NULL},
    .prefix = "convbert.",
    .names = {NAMES_BERT("convbert."), [W_EMBED_PROJECT] = "convbert.embeddings_project",
              [W_SPAN_DEPTH] = SELF "key_conv_attn_layer.depthwise",
              [W_SPAN_POINT] = SELF "key_conv_attn_layer.pointwise",
              [W_SPAN_BIAS] = SELF "key_conv_attn_layer.bias",
              [W_SPAN_KERNEL] = SELF "conv_kernel_layer", [W_SPAN_VALUE] = SELF "conv_out_layer"},
    .configure = configure,
};
