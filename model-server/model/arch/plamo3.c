/* PLaMo 3 (Preferred Networks): norms before and after each sublayer, per-head QK norm, sliding
 * windows with their own RoPE in seven of eight layers. */
#include "model-server/model/arch.h"
#include <math.h>

static bool all_but_eighth(struct config *c, uint32_t layer)
{
    return config_all_but_nth(c, "sliding_window_pattern", 8, layer);
}

/* Yarn by keys of its own, without rounding the ends of its ramp. */
static void stretch(struct config *c, struct decoder_spec *s)
{
    const double factor = config_num_or(c, "rope_scaling_factor", 1);
    struct rope_spec *r = &s->rope[0];
    if (factor == 1)
        return;
    if (!(factor > 1))
        config_fail(c, "`rope_scaling_factor` must be at least 1");
    r->kind = ROPE_YARN;
    r->factor = factor;
    r->attention_factor = 0.1 * log(factor) + 1;
    r->beta_fast = 32;
    r->beta_slow = 1;
    r->original = config_u32(c, "initial_context_length", 1, 1u << 30);
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(c, s,
                   &(struct config_defaults){.head_dim = 128,
                                             .max_positions = 2048,
                                             .norm_eps = 1e-6,
                                             .rope_theta = 150000,
                                             .tied = true});
    s->act = ACT_SILU;
    s->qkv = QKV_STACKED;
    s->mlp = MLP_GATED_PACKED;
    s->norms = NORM_AROUND;
    s->qk_norm = QK_NORM_HEAD;
    s->norm.plus = 1;
    s->norm.post_plus[0] = 1 / 5.0f;
    s->norm.post_plus[1] = (float)pow(5, -1.5);
    if (config_bool_or(c, "scale_embedding", false))
        s->embed_scale = sqrtf((float)s->hidden);
    config_windows(c, s, config_u32_or(c, "window_size", 128, 1, 1u << 30), all_but_eighth);
    stretch(c, s);
    config_window_rope(c, s, config_num_or(c, "rope_local_theta", 10000));
}

const struct arch arch_plamo3 = {
    .types = (const char *const[]){"plamo3", NULL},
    .prefix = "model.",
    .names = {NAMES_PLAMO, [W_Q_NORM] = PLAMO_LAYER "mixer.q_norm",
              [W_K_NORM] = PLAMO_LAYER "mixer.k_norm"},
    .configure = configure,
};
