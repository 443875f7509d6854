/* arch.h - model families. A family is one file of arch/: it maps its config.json to a
 * decoder_spec, and roles to the names of weights in its checkpoints. Adding the file registers
 * it. */
#ifndef MODEL_SERVER_MODEL_ARCH_H
#define MODEL_SERVER_MODEL_ARCH_H
#include "model-server/model/config/config.h"
#include "model-server/model/spec/role.h"

struct arch {
    const char *const *types; /* its values of model_type, NULL-terminated */
    /* Prefix that checkpoints of the bare decoder lack ("transformer."), or NULL: names are also
     * tried without it. | separates those of kin with equal names; the first is in `names`. */
    const char *prefix;
    /* Tensor names without ".weight" and ".bias"; the first * is the layer, the second the
     * expert. < and > instead of the first are twice the layer's number, and that plus 1: of files
     * that count a layer's two sublayers. Whole names: W_SINKS, W_SELECT_BIAS, W_EXPERT_SCALE,
     * W_ROUTER_SCALE, W_LAYER_SCALE, W_ALTUP_SCALE, W_STREAM_*, W_INDEX_POOL_*, W_ENTRY_GATE,
     * W_ENTRY_BIAS, W_EXPERT_IDS, W_EMBED_INSIDE, W_ATTN_SCALE, W_MLP_SCALE, W_ATTN_TANH,
     * W_MLP_TANH, W_TILE_*_GATE, W_MIX_{RATE,DT,SKIP,NORM}, W_SHIFT_*, W_SPHERE_* and tensors with
     * all experts, whose biases end in
     * "_bias". | separates the names of one role in different files. */
    const char *names[W_ROLES];
    /* torch's parametrize was used: "x.weight" may be "x.parametrizations.weight.original". */
    bool parametrized;
    const char *other_weight; /* NULL, or "x.weight" may be "x" and this: ".scale" */
    /* Pairs {usual, own} of keys of config.json, {NULL, NULL} at the end, or NULL: see config.h. */
    const struct config_key *keys;
    /* with decoder_spec.second_stack or .paired: names of layers alone; or NULL */
    const struct arch *second;
    void (*configure)(struct config *c, struct decoder_spec *s); /* faults stay in `c` */
    /* NULL, or which arch this file is of: the decoder of a family whose registered arch is the
     * encoder alone. NULL after a fault, which stays in `c`. */
    const struct arch *(*choose)(struct config *c);
    const struct arch *encoder; /* of texts, to whose rows the decoder attends; or NULL */
};

/* The names of Llama and its many descendants. */
#define NAMES_LLAMA_OUTER                                                                          \
    [W_EMBED] = "model.embed_tokens", [W_FINAL_NORM] = "model.norm", [W_HEAD] = "lm_head",         \
    [W_ATTN_NORM] = "model.layers.*.input_layernorm"
#define NAMES_LLAMA_QKV                                                                            \
    [W_Q] = "model.layers.*.self_attn.q_proj", [W_K] = "model.layers.*.self_attn.k_proj",          \
    [W_V] = "model.layers.*.self_attn.v_proj"
#define NAMES_LLAMA_O [W_O] = "model.layers.*.self_attn.o_proj"
#define NAMES_GATED_MLP                                                                            \
    [W_GATE] = "model.layers.*.mlp.gate_proj", [W_UP] = "model.layers.*.mlp.up_proj",              \
    [W_DOWN] = "model.layers.*.mlp.down_proj"
#define NAMES_LLAMA_MLP [W_MLP_NORM] = "model.layers.*.post_attention_layernorm", NAMES_GATED_MLP
#define NAMES_LLAMA     NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_LLAMA_MLP

/* The same under the names of Cosmos 3's files. */
#define NAMES_COSMOS_ATTENTION                                                                     \
    [W_Q] = "model.layers.*.self_attn.to_q|model.layers.*.self_attn.q_proj",                       \
    [W_K] = "model.layers.*.self_attn.to_k|model.layers.*.self_attn.k_proj",                       \
    [W_V] = "model.layers.*.self_attn.to_v|model.layers.*.self_attn.v_proj",                       \
    [W_O] = "model.layers.*.self_attn.to_out|model.layers.*.self_attn.o_proj"

#define NAMES_QK_NORM                                                                              \
    [W_Q_NORM] = "model.layers.*.self_attn.q_norm", [W_K_NORM] = "model.layers.*.self_attn.k_norm"
/* Of NORM_AFTER. */
#define NAMES_NORMS_AFTER                                                                          \
    [W_POST_ATTN_NORM] = "model.layers.*.post_attention_layernorm",                                \
    [W_POST_MLP_NORM] = "model.layers.*.post_feedforward_layernorm"

/* Of NORM_AROUND, in Gemma's files. */
#define NAMES_NORMS_AROUND                                                                         \
    NAMES_NORMS_AFTER, [W_MLP_NORM] = "model.layers.*.pre_feedforward_layernorm"

#define NAMES_GPT2                                                                                 \
    [W_EMBED] = "transformer.wte", [W_POSITIONS] = "transformer.wpe",                              \
    [W_FINAL_NORM] = "transformer.ln_f", [W_HEAD] = "lm_head",                                     \
    [W_ATTN_NORM] = "transformer.h.*.ln_1", [W_QKV] = "transformer.h.*.attn.c_attn",               \
    [W_O] = "transformer.h.*.attn.c_proj", [W_MLP_NORM] = "transformer.h.*.ln_2",                  \
    [W_UP] = "transformer.h.*.mlp.c_fc", [W_DOWN] = "transformer.h.*.mlp.c_proj"
/* All but q, k and v. */
#define NAMES_GPTJ                                                                                 \
    [W_EMBED] = "transformer.wte", [W_FINAL_NORM] = "transformer.ln_f", [W_HEAD] = "lm_head",      \
    [W_ATTN_NORM] = "transformer.h.*.ln_1", [W_O] = "transformer.h.*.attn.out_proj",               \
    [W_UP] = "transformer.h.*.mlp.fc_in", [W_DOWN] = "transformer.h.*.mlp.fc_out"

/* CLIP's text model. */
#define CLIP_TEXT_LAYER "text_model.encoder.layers.*."
#define NAMES_CLIP_TEXT                                                                            \
    [W_EMBED] = "text_model.embeddings.token_embedding",                                           \
    [W_POSITIONS] = "text_model.embeddings.position_embedding",                                    \
    [W_FINAL_NORM] = "text_model.final_layer_norm", [W_ATTN_NORM] = CLIP_TEXT_LAYER "layer_norm1", \
    [W_Q] = CLIP_TEXT_LAYER "self_attn.q_proj", [W_K] = CLIP_TEXT_LAYER "self_attn.k_proj",        \
    [W_V] = CLIP_TEXT_LAYER "self_attn.v_proj", [W_O] = CLIP_TEXT_LAYER "self_attn.out_proj",      \
    [W_MLP_NORM] = CLIP_TEXT_LAYER "layer_norm2", [W_UP] = CLIP_TEXT_LAYER "mlp.fc1",              \
    [W_DOWN] = CLIP_TEXT_LAYER "mlp.fc2"
/* PLaMo 2 and 3; norms of q and k have names of their own. */
#define PLAMO_LAYER "model.layers.layers.*."
#define NAMES_PLAMO                                                                                \
    [W_EMBED] = "model.embed_tokens", [W_FINAL_NORM] = "model.norm", [W_HEAD] = "lm_head",         \
    [W_ATTN_NORM] = PLAMO_LAYER "pre_mixer_norm",                                                  \
    [W_POST_ATTN_NORM] = PLAMO_LAYER "post_mixer_norm", [W_MLP_NORM] = PLAMO_LAYER "pre_mlp_norm", \
    [W_POST_MLP_NORM] = PLAMO_LAYER "post_mlp_norm", [W_QKV] = PLAMO_LAYER "mixer.qkv_proj",       \
    [W_O] = PLAMO_LAYER "mixer.o_proj", [W_GATE_UP] = PLAMO_LAYER "mlp.gate_up_proj",              \
    [W_DOWN] = PLAMO_LAYER "mlp.down_proj"
/* Embeddings of each layer (Gemma 3n and 4). */
#define NAMES_LAYER_EMBED                                                                          \
    [W_LAYER_EMBED] = "model.embed_tokens_per_layer",                                              \
    [W_LAYER_EMBED_PROJ] = "model.per_layer_model_projection",                                     \
    [W_LAYER_EMBED_NORM] = "model.per_layer_projection_norm",                                      \
    [W_LAYER_EMBED_GATE] = "model.layers.*.per_layer_input_gate",                                  \
    [W_LAYER_EMBED_OUT] = "model.layers.*.per_layer_projection",                                   \
    [W_LAYER_EMBED_POST_NORM] = "model.layers.*.post_per_layer_input_norm"

/* Decoders from fairseq; `p`: the prefix of a layer. */
#define NAMES_FAIRSEQ(p)                                                                           \
    [W_ATTN_NORM] = p "self_attn_layer_norm", [W_Q] = p "self_attn.q_proj",                        \
    [W_K] = p "self_attn.k_proj", [W_V] = p "self_attn.v_proj", [W_O] = p "self_attn.out_proj",    \
    [W_MLP_NORM] = p "final_layer_norm", [W_UP] = p "fc1", [W_DOWN] = p "fc2"

/* BERT and its descendants, behind a prefix: tables, matrices, and with the norms of sums. */
#define NAMES_BERT_ROWS(p)                                                                         \
    [W_EMBED] = p "embeddings.word_embeddings",                                                    \
    [W_POSITIONS] = p "embeddings.position_embeddings",                                            \
    [W_TOKEN_TYPES] = p "embeddings.token_type_embeddings"
#define NAMES_BERT_TABLES(p) NAMES_BERT_ROWS(p), [W_EMBED_NORM] = p "embeddings.LayerNorm"
#define NAMES_BERT_ATTENTION(p)                                                                    \
    [W_Q] = p "encoder.layer.*.attention.self.query",                                              \
    [W_K] = p "encoder.layer.*.attention.self.key",                                                \
    [W_V] = p "encoder.layer.*.attention.self.value",                                              \
    [W_O] = p "encoder.layer.*.attention.output.dense"
#define NAMES_BERT_MATRICES(p)                                                                     \
    NAMES_BERT_ATTENTION(p), [W_UP] = p "encoder.layer.*.intermediate.dense",                      \
                             [W_DOWN] = p "encoder.layer.*.output.dense"
#define NAMES_BERT_LAYER(p)                                                                        \
    NAMES_BERT_MATRICES(p), [W_POST_ATTN_NORM] = p "encoder.layer.*.attention.output.LayerNorm",   \
                            [W_POST_MLP_NORM] = p "encoder.layer.*.output.LayerNorm"
#define NAMES_BERT(p) NAMES_BERT_TABLES(p), NAMES_BERT_LAYER(p)
/* Heads for masked tokens, see config_masked_head(): BERT's and RoBERTa's. */
#define NAMES_BERT_HEAD                                                                            \
    [W_HEAD_PROJECT] = "cls.predictions.transform.dense",                                          \
    [W_HEAD_NORM] = "cls.predictions.transform.LayerNorm", [W_HEAD] = "cls.predictions.decoder",   \
    [W_HEAD_BIAS] = "cls.predictions.decoder.bias|cls.predictions.bias"
#define NAMES_ROBERTA_HEAD                                                                         \
    [W_HEAD_PROJECT] = "lm_head.dense", [W_HEAD_NORM] = "lm_head.layer_norm|lm_head.norm",         \
    [W_HEAD] = "lm_head.decoder", [W_HEAD_BIAS] = "lm_head.decoder.bias|lm_head.bias"

/* Latent attention, and the indexer of sparse attention, with DeepSeek's names. */
#define NAMES_LATENT                                                                               \
    [W_Q] = "model.layers.*.self_attn.q_proj", [W_Q_A] = "model.layers.*.self_attn.q_a_proj",      \
    [W_Q_A_NORM] = "model.layers.*.self_attn.q_a_layernorm",                                       \
    [W_Q_B] = "model.layers.*.self_attn.q_b_proj",                                                 \
    [W_KV_A] = "model.layers.*.self_attn.kv_a_proj_with_mqa",                                      \
    [W_KV_A_NORM] = "model.layers.*.self_attn.kv_a_layernorm",                                     \
    [W_KV_B] = "model.layers.*.self_attn.kv_b_proj"
#define NAMES_INDEXER                                                                              \
    [W_INDEX_Q] = "model.layers.*.self_attn.indexer.wq_b",                                         \
    [W_INDEX_K] = "model.layers.*.self_attn.indexer.wk",                                           \
    [W_INDEX_K_NORM] = "model.layers.*.self_attn.indexer.k_norm",                                  \
    [W_INDEX_WEIGHTS] = "model.layers.*.self_attn.indexer.weights_proj"

/* Mixtures of experts with the names of Qwen and DeepSeek: a tensor for each, or one for all, as
 * transformers 5 keeps them. */
#define NAMES_EXPERTS                                                                              \
    [W_ROUTER] = "model.layers.*.mlp.gate",                                                        \
    [W_MOE_GATE] = "model.layers.*.mlp.experts.*.gate_proj",                                       \
    [W_MOE_UP] = "model.layers.*.mlp.experts.*.up_proj",                                           \
    [W_MOE_GATE_UP] = "model.layers.*.mlp.experts.gate_up_proj",                                   \
    [W_MOE_DOWN] = "model.layers.*.mlp.experts.down_proj|model.layers.*.mlp.experts.*.down_proj"
/* The same with the names of Mixtral, and those that transformers 5 has in memory. */
#define NAMES_BLOCK_SPARSE_EXPERTS                                                                 \
    [W_ROUTER] = "model.layers.*.mlp.gate|model.layers.*.mlp.router|"                              \
                 "model.layers.*.block_sparse_moe.gate",                                           \
    [W_MOE_GATE] = "model.layers.*.block_sparse_moe.experts.*.w1",                                 \
    [W_MOE_UP] = "model.layers.*.block_sparse_moe.experts.*.w3",                                   \
    [W_MOE_GATE_UP] = "model.layers.*.mlp.experts.gate_up_proj",                                   \
    [W_MOE_DOWN] = "model.layers.*.mlp.experts.down_proj|"                                         \
                   "model.layers.*.block_sparse_moe.experts.*.w2"
/* The same with the names of Granite. */
#define NAMES_GRANITE_EXPERTS                                                                      \
    [W_ROUTER] = "model.layers.*.block_sparse_moe.router|"                                         \
                 "model.layers.*.block_sparse_moe.router.layer",                                   \
    [W_MOE_GATE_UP] =                                                                              \
        "model.layers.*.block_sparse_moe.experts.gate_up_proj|"                                    \
        "model.layers.*.block_sparse_moe.input_linear.weight", /* in GGUF files each matrix is     \
                                                                  there alone */                   \
        [W_MOE_GATE] = "model.layers.*.block_sparse_moe.experts.*.gate_proj",                      \
    [W_MOE_UP] = "model.layers.*.block_sparse_moe.experts.*.up_proj",                              \
    [W_MOE_DOWN] = "model.layers.*.block_sparse_moe.experts.down_proj|"                            \
                   "model.layers.*.block_sparse_moe.experts.*.down_proj|"                          \
                   "model.layers.*.block_sparse_moe.output_linear.weight",                         \
    [W_SHARED_GATE] = "model.layers.*.shared_mlp.gate_proj",                                       \
    [W_SHARED_UP] = "model.layers.*.shared_mlp.up_proj",                                           \
    [W_SHARED_GATE_UP] = "model.layers.*.shared_mlp.input_linear",                                 \
    [W_SHARED_DOWN] = "model.layers.*.shared_mlp.output_linear"
/* gpt-oss. In GGUF files each matrix is there alone. */
#define NAMES_GPT_OSS_EXPERTS                                                                      \
    NAMES_LLAMA_OUTER, NAMES_LLAMA_QKV,                                                            \
        NAMES_LLAMA_O, [W_SINKS] = "model.layers.*.self_attn.sinks",                               \
                       [W_MLP_NORM] = "model.layers.*.post_attention_layernorm",                   \
                       [W_ROUTER] = "model.layers.*.mlp.router",                                   \
                       [W_MOE_GATE_UP] = "model.layers.*.mlp.experts.gate_up_proj",                \
                       [W_MOE_GATE] = "model.layers.*.mlp.experts.*.gate_proj",                    \
                       [W_MOE_UP] = "model.layers.*.mlp.experts.*.up_proj",                        \
                       [W_MOE_DOWN] = "model.layers.*.mlp.experts.*.down_proj|"                    \
                                      "model.layers.*.mlp.experts.down_proj"
#define NAMES_SHARED_EXPERTS                                                                       \
    [W_SHARED_GATE] = "model.layers.*.mlp.shared_experts.gate_proj",                               \
    [W_SHARED_UP] = "model.layers.*.mlp.shared_experts.up_proj",                                   \
    [W_SHARED_DOWN] = "model.layers.*.mlp.shared_experts.down_proj"

#define NAMES_QWEN_SHARED_EXPERT                                                                   \
    [W_SHARED_GATE] = "model.layers.*.mlp.shared_expert.gate_proj",                                \
    [W_SHARED_UP] = "model.layers.*.mlp.shared_expert.up_proj",                                    \
    [W_SHARED_DOWN] = "model.layers.*.mlp.shared_expert.down_proj",                                \
    [W_SHARED_GATE_OUT] = "model.layers.*.mlp.shared_expert_gate"

/* Recurrent layers. */
#define NAMES_MAMBA2(in)                                                                           \
    [W_MIX_IN] = in "in_proj", [W_MIX_CONV] = in "conv1d", [W_MIX_RATE] = in "A_log",              \
    [W_MIX_DT] = in "dt_bias", [W_MIX_SKIP] = in "D", [W_MIX_NORM] = in "norm.weight",             \
    [W_MIX_OUT] = in "out_proj"
#define NAMES_BAMBA                                                                                \
    NAMES_LLAMA_QKV, NAMES_LLAMA_O, NAMES_MAMBA2("model.layers.*.mamba."),                         \
        [W_EMBED] = "model.embed_tokens", [W_FINAL_NORM] = "model.final_layernorm",                \
        [W_HEAD] = "lm_head", [W_ATTN_NORM] = "model.layers.*.input_layernorm",                    \
        [W_MLP_NORM] = "model.layers.*.pre_ff_layernorm",                                          \
        [W_GATE] = "model.layers.*.feed_forward.gate_proj",                                        \
        [W_UP] = "model.layers.*.feed_forward.up_proj",                                            \
        [W_DOWN] = "model.layers.*.feed_forward.down_proj"
#define NAMES_MAMBA(in)                                                                            \
    [W_MIX_IN] = in "in_proj", [W_MIX_CONV] = in "conv1d", [W_MIX_STEP_KEYS] = in "x_proj",        \
    [W_MIX_STEP] = in "dt_proj", [W_MIX_RATE] = in "A_log", [W_MIX_SKIP] = in "D",                 \
    [W_MIX_OUT] = in "out_proj"
#define NAMES_DELTA_CONVS(in)                                                                      \
    [W_MIX_CONV_Q] = in "q_conv1d", [W_MIX_CONV_K] = in "k_conv1d", [W_MIX_CONV_V] = in "v_conv1d"
#define NAMES_DELTA                                                                                \
    [W_MIX_IN] = "model.layers.*.linear_attn.in_proj_qkvz|"                                        \
                 "model.layers.*.linear_attn.in_proj_qkv",                                         \
    [W_MIX_Z] = "model.layers.*.linear_attn.in_proj_z",                                            \
    [W_MIX_BETA] = "model.layers.*.linear_attn.in_proj_b",                                         \
    [W_MIX_DECAY] = "model.layers.*.linear_attn.in_proj_a",                                        \
    [W_MIX_BETA_DECAY] = "model.layers.*.linear_attn.in_proj_ba",                                  \
    [W_MIX_CONV] = "model.layers.*.linear_attn.conv1d",                                            \
    [W_MIX_RATE] = "model.layers.*.linear_attn.A_log",                                             \
    [W_MIX_DT] = "model.layers.*.linear_attn.dt_bias",                                             \
    [W_MIX_NORM] = "model.layers.*.linear_attn.norm.weight",                                       \
    [W_MIX_OUT] = "model.layers.*.linear_attn.out_proj"

/* The k-th of a->prefix, of *n letters. NULL after the last. */
const char *arch_prefix(const struct arch *a, int k, size_t *n);

/* Spellings of the tensor `name` in files; `name` starts like one of a->names. Returns spelling
 * `i` from 0 on, "" if that one does not exist, NULL after the last. Bare decoders lack
 * a->prefix, kin have another; files of vision models have a prefix before the text model. The
 * result is `name`, part of it, or `out` (truncated at `cap`). */
const char *arch_name_in_file(const struct arch *a, const char *name, int i, char *out, size_t cap);

/* Finds the role of a file's tensor by its name in any of those spellings, and its layer and
 * expert, -1 if the name has none. `suffix` is the rest of the name (".weight", ".bias", "").
 * False: the family has no role for it. */
struct arch_use {
    enum role role;
    int layer, expert;
    const char *suffix;
};
bool arch_use_of(const struct arch *a, const char *name, struct arch_use *u);

/* Reads a config.json. `path`: its path; `text`: its content if it shall not be read from the
 * file, or NULL; `rope_scaling` and `rope_factor` as in model_options. Fills `spec` and sets
 * *arch; `*type` is the arch's own copy of model_type. ERR_VALIDATION: one line that begins with
 * the path; for an unknown model_type it lists the known ones. */
int arch_configure(const char *path, const char *text, const char *rope_scaling, double rope_factor,
                   const struct arch **arch, const char **type, struct decoder_spec *spec,
                   struct err *e);
/* The same for the encoder beside the decoder, arch.encoder. *arch is NULL, without an error, if
 * the model has none. */
int arch_configure_encoder(const char *path, const struct arch **arch, struct decoder_spec *spec,
                           struct err *e);
#endif
