/* Nyströmformer (arXiv 2102.03902) with one landmark per token, as in its published checkpoints:
 * BERT with a depthwise convolution of each head's values added to attention. */
#include "common/json/json.h"
#include "model-server/model/arch.h"
#include "model-server/model/taps.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    const uint32_t landmarks = config_u32_or(c, "num_landmarks", 64, 1, 1u << 24);
    config_encoder(c, s, 0);
    s->act = config_act(c, "hidden_act", "gelu_new");
    config_masked_head(c, s, s->act);
    s->max_positions = config_u32_or(c, "max_position_embeddings", 510, 1, 1u << 30);
    s->norm.eps = (float)config_num_or(c, "layer_norm_eps", 1e-5);
    s->position_offset = 2; /* beside as many as there are: the table has two rows more */
    if (config_u32_or(c, "segment_means_seq_len", 64, 1, 1u << 24) != landmarks)
        config_fail(c, "`num_landmarks`: only `segment_means_seq_len` is supported");
    config_only(c, "inv_coeff_init_option", false);
    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(c->root, "conv_kernel_size")))
        config_fail(c, "`conv_kernel_size`: null is not supported");
    s->value_conv.taps = config_u32_or(c, "conv_kernel_size", 65, 1, TAPS_MOST);
    if (s->value_conv.taps % 2 == 0)
        config_fail(c, "`conv_kernel_size` must be odd");
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layers[i].mixer = MIXER_VALUE_CONV;
}

const struct arch arch_nystromformer = {
    .types = (const char *const[]){"nystromformer", NULL},
    .prefix = "nystromformer.",
    .names =
        {NAMES_BERT("nystromformer."),
         NAMES_BERT_HEAD, [W_VALUE_CONV] = "nystromformer.encoder.layer.*.attention.self.conv"},
    .configure = configure,
};
