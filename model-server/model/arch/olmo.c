/* OLMo (arXiv 2402.00838): Llama with layer norms without weights and biases, and optional clipping
 * of q, k and v. */
#include "common/json/json.h"
#include "model-server/model/arch.h"

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s, &(struct config_defaults){.max_positions = 2048, .rope_theta = 10000});
    s->norm = (struct norm_spec){.kind = NORM_LAYER, .eps = 1e-5f, .bare = true};
    s->act = config_act(c, "hidden_act", "silu");
    s->bias.qkv = s->bias.o = config_bool_or(c, "attention_bias", false);
    if (json_get(c->root, "clip_qkv"))
        s->clip_qkv = (float)config_num_or(c, "clip_qkv", 0);
}

const struct arch arch_olmo = {
    .types = (const char *const[]){"olmo", NULL},
    .prefix = "model.",
    .names = {NAMES_LLAMA},
    .configure = configure,
};
