/* HRM-Text (Sapient, arXiv 2506.21734): two stacks of Llama's layers that run in turn for several
 * cycles, with separate keys and values for each cycle; norms without weights, an output gate on
 * attention. Attention is causal: prefix_lm, with a bidirectional prefix, is not served. */
#include "model-server/model/arch.h"

/* Turns of the first stack, then one of the second, several times. */
static void turns(struct config *c, struct decoder_spec *s)
{
    const uint32_t n = config_u32_or(c, "num_layers_per_stack", s->n_layers, 1, SPEC_MAX_LAYERS);
    const uint32_t high = config_u32_or(c, "H_cycles", 2, 1, SPEC_MAX_LAYERS);
    const uint32_t low = config_u32_or(c, "L_cycles", 3, 1, SPEC_MAX_LAYERS);
    if (n == 0) /* the file does not say it */
        return;
    if ((uint64_t)n * high * (low + 1) > SPEC_MAX_LAYERS) {
        config_fail(c, "`H_cycles`: %u times %u turns of %u layers are more than %u", high, low + 1,
                    n, (uint32_t)SPEC_MAX_LAYERS);
        return;
    }
    s->n_layers = n * high * (low + 1);
    s->second_stack = n * low;
    s->two_stacks = true;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const uint32_t turn = i / n % (low + 1), first = turn == low ? s->second_stack : 0;
        s->layers[i] = s->layers[0];
        s->layers[i].same_as = i < n || i / n == low ? 0 : first + i % n + 1;
        s->layers[i].turn_ends = i % n == n - 1 && i + 1 < s->n_layers;
        s->layers[i].stack_ends = s->layers[i].turn_ends && turn + 1 >= low;
    }
}

static void configure(struct config *c, struct decoder_spec *s)
{
    config_decoder(
        c, s,
        &(struct config_defaults){
            .head_dim = 128, .max_positions = 2048, .norm_eps = 1e-6, .rope_theta = 10000});
    s->n_kv_heads = s->n_heads; /* whatever the file says */
    s->act = config_act(c, "hidden_act", "silu");
    s->mlp = MLP_GATED_PACKED;
    s->qkv = QKV_GATE_FIRST;
    s->attn_gate = ATTN_GATE_APART;
    s->norm.bare = true;
    config_only(c, "attention_bias", false);
    s->bias.mlp = config_bool_or(c, "mlp_bias", false);
    s->embed_scale =
        (float)config_num_or(c, "embedding_scale", 1 / config_num_or(c, "initializer_range", 0.02));
    turns(c, s);
}

/* The repository's files have q, k, v and the gate, and gate and up, in one matrix each. */
#define LAYER(stack)                                                                               \
    [W_Q] = stack "self_attn.q_proj", [W_K] = stack "self_attn.k_proj",                            \
    [W_V] = stack "self_attn.v_proj", [W_ATTN_GATE] = stack "self_attn.gate_proj",                 \
    [W_QKV] = stack "attn.gqkv_proj", [W_O] = stack "self_attn.o_proj|" stack "attn.o_proj",       \
    [W_GATE] = stack "mlp.gate_proj", [W_UP] = stack "mlp.up_proj",                                \
    [W_GATE_UP] = stack "mlp.gate_up_proj", [W_DOWN] = stack "mlp.down_proj"

static const struct arch second = {.prefix = "model.",
                                   .names = {LAYER("model.H_module.layers.*.")}};

const struct arch arch_hrm_text = {
    .types = (const char *const[]){"hrm_text", NULL},
    .prefix = "model.",
    .names = {[W_EMBED] = "model.embed_tokens",
              [W_HEAD] = "lm_head",
              [W_STACK_START] = "model.z_L_init",
              LAYER("model.L_module.layers.*.")},
    .second = &second,
    .configure = configure,
};
