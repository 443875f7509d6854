/* arch.h - model families. A family is one file of arch/: it maps its config.json to a
 * decoder_spec, and roles to the names of weights in its checkpoints. Adding the file registers
 * it. */
#ifndef MODEL_SERVER_MODEL_ARCH_H
#define MODEL_SERVER_MODEL_ARCH_H
#include "model-server/model/config/config.h"

/* The role of a tensor. W_QKV, W_GATE_UP and W_MOE_GATE_UP contain several matrices. */
enum role {
    W_EMBED,
    W_EMBED_MORE,   /* rows after those of W_EMBED, where both have whole names */
    W_EMBED_INSIDE, /* of decoder_spec.inside: a whole name */
    W_EMBED_NORM,
    W_POSITIONS,
    W_TOKEN_TYPES,
    W_TOKEN_TASKS,   /* see decoder_spec.token_tasks */
    W_EMBED_PROJECT, /* see decoder_spec.embed_dim, narrow_head */
    W_HEAD_PROJECT,  /* also decoder_spec.head_dense, with a norm */
    W_HEAD_NORM,
    W_APART, /* [buckets, hidden] of all layers, and their norm: see struct apart_spec */
    W_APART_NORM,
    W_FIRST_CONV, /* of decoder_spec.first_conv: [hidden][hidden][width], and the norm of the sum */
    W_FIRST_CONV_NORM,
    W_APART_K, /* of apart_spec.own: matrices of a layer for these vectors */
    W_APART_Q,
    W_Q_BIAS, /* whole names: the only biases of W_QKV, whose k has none */
    W_V_BIAS,
    W_O_BIAS, /* a whole name, of bias.last_o */
    W_NEAR,   /* [buckets, heads]: see struct near_spec */
    W_FINAL_NORM,
    W_HEAD,
    W_VECTOR,    /* behind the final norm, of each row, where the model gives vectors */
    W_HEAD_MORE, /* of decoder_spec.head_more: [those columns, vocab] */
    W_HEAD_BIAS, /* whole name, may be absent; without a name: the head's ".bias" */
    W_ATTN_NORM,
    W_POST_ATTN_NORM,
    W_MLP_NORM,
    W_POST_MLP_NORM,
    W_ATTN_NORM_DOWN, /* of decoder_spec.norm_gate, after W_ATTN_NORM and W_MLP_NORM */
    W_ATTN_NORM_UP,
    W_MLP_NORM_DOWN,
    W_MLP_NORM_UP,
    W_QKV,
    W_Q,
    W_K,
    W_V,
    W_V_LATE, /* MIXER_CCA: values of the token before; factors of each head's keys, a whole name */
    W_K_SCALE,
    W_LAMBDA_Q, /* MIXER_DIFFERENCE, whole names: the number is exp(q.k) - exp(q.k) + a constant */
    W_LAMBDA_K,
    W_LAMBDA_Q_MINUS,
    W_LAMBDA_K_MINUS,
    W_O,
    W_NARROW_IN, /* MIXER_NARROW: matrices to the narrow stream and to q's and k's input, and back,
                    of feed-forwards but the last one, and after each the factors and summands */
    W_NARROW_IN_NORM,
    W_NARROW_QK,
    W_NARROW_QK_NORM,
    W_NARROW_UP,
    W_NARROW_DOWN,
    W_NARROW_NORM,
    W_NARROW_OUT,
    W_NARROW_OUT_NORM,
    W_RELATIVE, /* MIXER_RELATIVE, whole names, as those of W_Q, W_K, W_V and W_O then are: the
                   matrix of distances, summands of q with keys, with distances and with types, and
                   vectors of equal and of other types */
    W_RELATIVE_KEY_BIAS,
    W_RELATIVE_BIAS,
    W_RELATIVE_TYPE_BIAS,
    W_RELATIVE_TYPES,
    W_SPAN_DEPTH, /* MIXER_SPAN_CONV: a number of each channel and token, the matrix that follows
                     and its summands, a whole name; the matrix of kernels and that of values */
    W_SPAN_POINT,
    W_SPAN_BIAS,
    W_SPAN_KERNEL,
    W_SPAN_VALUE,
    W_VALUE_CONV, /* MIXER_VALUE_CONV: [heads, 1, taps, 1] */
    W_PROFILES, /* MIXER_PROFILES: the matrix of the numbers that mix, and the bank, a whole name */
    W_PROFILE_BANK,
    W_PROFILE_SCALE, /* of profile_spec.clip, whole names as W_Q_NORM is then: factors of these */
    W_STATIC_CONV_K, /* of layer_spec.apart_inputs, whole names: what no token makes, and the
                        matrices of what they make */
    W_STATIC_CONV_V,
    W_CONV_TAPS_K,
    W_CONV_TAPS_V,
    W_K_IN_NORM, /* beside W_ATTN_NORM, which is q's */
    W_V_IN_NORM,
    W_BLEND, /* of decoder_spec.blend_per, whole names: queries of the mixer; or those of the layer
                after; of the feed-forward; of the head */
    W_BLEND_NEXT,
    W_BLEND_FFN,
    W_BLEND_LAST,
    W_POST_ATTN_CONV, /* of decoder_spec.result_convs: [hidden][1][recur.conv] */
    W_POST_MLP_CONV,
    W_ATTN_GATE,      /* of ATTN_GATE_APART and ATTN_GATE_BY_HEAD, but not mla_spec.gate_beside */
    W_ATTN_GATE_BIAS, /* of decoder_spec.attn_gate_bias, a whole name */
    W_Q_A,            /* latent attention */
    W_Q_A_NORM,
    W_Q_B,
    W_KV_A,
    W_KV_A_NORM,
    W_KV_B,
    W_K_TURN_NORM, /* of mla_spec.turn_norm */
    W_INDEX_Q, /* of mla_spec.index and decoder_spec.blocks: its queries, its keys and their norms,
                  the weights of its heads. With block_spec.heads W_INDEX_Q has queries over keys */
    W_INDEX_Q_NORM,
    W_INDEX_K,
    W_INDEX_K_NORM,
    W_INDEX_WEIGHTS,
    W_INDEX_IN_NORM, /* of index_spec.own_norm */
    W_HEAD_SLOPE, /* of q_growth.by_head, whole names: numbers of the heads of q; of an indexer */
    W_HEAD_OFFSET,
    W_INDEX_SLOPE,
    W_INDEX_OFFSET,
    W_ROPE_LEARNED,    /* of rope_spec.learned, a whole name */
    W_INDEX_POOL_GATE, /* of index_spec.pool and MIXER_ENTRIES, whole names: a matrix, a vector for
                          each position */
    W_INDEX_POOL_BIAS,
    W_ENTRY, /* MIXER_ENTRIES: the matrix of entries and their norm; whole names as above; the first
                matrix of the result, of which W_O is the second */
    W_ENTRY_NORM,
    W_ENTRY_GATE,
    W_ENTRY_BIAS,
    W_O_A,
    W_Q_NORM,
    W_K_NORM,
    W_ATTN_SUB_NORM, /* of decoder_spec.sub_norms */
    W_MLP_SUB_NORM,
    W_GATE_UP,
    W_GATE,
    W_UP,
    W_DOWN,
    W_XIELU_ABOVE, /* of decoder_spec.xielu: whole names. softplus of it is a, and 1 / 2 less than b
                    */
    W_XIELU_BELOW,
    W_SINKS,
    W_ROUTER,
    W_ROUTER_IN,    /* of moe_spec.router_width: matrices before W_ROUTER and their norm */
    W_ROUTER_CARRY, /* a whole name */
    W_ROUTER_NORM,
    W_ROUTER_FIRST,
    W_ROUTER_SECOND,
    W_MOE_GATE_UP,
    W_MOE_GATE,
    W_MOE_UP,
    W_MOE_DOWN,
    W_MOE_LATENT_IN, /* of moe_spec.latent */
    W_MOE_LATENT_OUT,
    W_MOE_LATENT_NORM, /* of moe_spec.latent_norm and moe_spec.result_eps */
    W_MOE_RESULT_NORM,
    W_SELECT_BIAS,
    W_EXPERT_IDS, /* of layer_spec.by_id: a whole name */
    W_MOE_BIAS,   /* of moe_spec.sum_bias: a whole name */
    W_EXPERT_SCALE,
    W_ROUTER_SCALE, /* dense MLPs with experts: weights of the norm before the router, and the other
                       norms */
    W_MOE_NORM,
    W_POST_MOE_NORM,
    W_POST_DENSE_NORM,
    W_SHARED_GATE, /* gate, up and down of the shared expert, and its output gate */
    W_SHARED_UP,
    W_SHARED_DOWN,
    W_SHARED_GATE_OUT,
    W_SHARED_GATE_UP,
    W_GATE_UP_TURNS, /* rows of gate and up in turns, instead of W_GATE and W_UP: of the dense MLP,
                        and whole names of all experts, of those of moe_spec.n_always */
    W_MOE_TURNS,
    W_SHARED_TURNS,
    W_MIX_IN, /* recurrent mixers: the matrix before the convolution; in MIXER_DELTA the matrices of
                 the convolution's input, of z, of beta, of the decay, of the last two together */
    W_MIX_Z,
    W_MIX_BETA,
    W_MIX_BETA_BIAS, /* MIXER_GATED, a whole name, as W_MIX_BETA and W_MIX_DECAY are there */
    W_MIX_DECAY,
    W_MIX_BETA_DECAY,
    W_MIX_DECAY_DOWN, /* of recur_spec.gate_rank: pairs for the decays and for z */
    W_MIX_DECAY_UP,
    W_MIX_Z_DOWN,
    W_MIX_Z_UP,
    W_MIX_CONV_Q, /* of recur_spec.apart */
    W_MIX_CONV_K,
    W_MIX_CONV_V,
    W_MIX_CONV,
    W_MIX_CONV_HEADS, /* MIXER_CCA: the second convolution, of the channels of each head */
    W_MIX_RATE,       /* logarithms, see struct recur */
    W_MIX_DT,         /* bias of the steps */
    W_MIX_SKIP,
    W_MIX_NORM,
    W_MIX_OUT,
    W_MIX_STEP_KEYS, /* MIXER_MAMBA: the matrix that makes steps, keys and queries, that of all
                        channels' steps, the norms */
    W_MIX_STEP,
    W_MIX_STEP_NORM,
    W_MIX_K_NORM,
    W_MIX_Q_NORM,
    W_SHIFT_Q, /* MIXER_RWKV, whole names: what r, k, v, the decay, the rate and the gate read of
                  the token before, and the feed-forward */
    W_SHIFT_K,
    W_SHIFT_V,
    W_SHIFT_DECAY,
    W_SHIFT_RATE,
    W_SHIFT_GATE,
    W_SHIFT_FFN,
    W_SHIFT_ALL,     /* or the first six in one tensor: see rwkv.c */
    W_MIX_RATE_DOWN, /* the pairs of rwkv_spec without a name above, and struct rwkv's vectors,
                        whole names, with the bias of W_MIX_NORM */
    W_MIX_RATE_UP,
    W_MIX_BLEND_DOWN,
    W_MIX_BLEND_UP,
    W_MIX_ERASE,
    W_MIX_REPLACE,
    W_MIX_BONUS,
    W_MIX_NORM_BIAS,
    W_BLOCK_NORM, /* MIXER_SHARED: the norm of stream and embedding, and the matrix after the MLP;
                     in turns, the second * is the turn: the pairs of updates of q, k, v and of gate
                     over up */
    W_BLOCK_OUT,
    W_TURN_Q_DOWN,
    W_TURN_Q_UP,
    W_TURN_K_DOWN,
    W_TURN_K_UP,
    W_TURN_V_DOWN,
    W_TURN_V_UP,
    W_TURN_MLP_DOWN,
    W_TURN_MLP_UP,
    W_ATTN_TANH, /* of layer_spec.gated */
    W_MLP_TANH,
    W_ATTN_SCALE, /* of decoder_spec.sub_scale */
    W_MLP_SCALE,
    W_LAYER_SCALE,
    W_FFN_SCALE,   /* of decoder_spec.ffn_scale, a whole name */
    W_LAYER_EMBED, /* of all layers side by side: their embeddings; the projection of the main
                      embedding */
    W_LAYER_EMBED_PROJ,
    W_LAYER_EMBED_NORM,
    W_LAYER_EMBED_GATE, /* of one layer: gate, projection and norm of its own embeddings */
    W_LAYER_EMBED_OUT,
    W_LAYER_EMBED_POST_NORM,
    W_STACK_START, /* of decoder_spec.two_stacks, a whole name: the first stack's first state */
    W_ALTUP_IN,    /* of decoder_spec.altup: projections of stream 0 to the others, * is the stream
                      from 0 on; those back; of a layer the router, coefficients of prediction and of
                      correction, and a vector with a whole name */
    W_ALTUP_OUT,
    W_ALTUP_ROUTER,
    W_ALTUP_ROUTER_NORM,
    W_ALTUP_PREDICT,
    W_ALTUP_CORRECT,
    W_ALTUP_SCALE,
    W_STREAM_MIX, /* of decoder_spec.mix, whole names: the matrix of factors, their bases and
                     scales, of the mixer, of the feed-forward, and of the head */
    W_STREAM_MIX_FFN,
    W_STREAM_MIX_LAST,
    W_STREAM_BASE,
    W_STREAM_BASE_FFN,
    W_STREAM_BASE_LAST,
    W_STREAM_SCALE,
    W_STREAM_SCALE_FFN,
    W_STREAM_SCALE_LAST,
    W_HYPER_NORM, /* of mix_spec.rank: the weights of a norm of all streams, a pair of matrices, and
                     the matrix of factors, of the mixer, of the feed-forward, and of the head */
    W_HYPER_NORM_FFN,
    W_HYPER_NORM_LAST,
    W_HYPER_DOWN,
    W_HYPER_DOWN_FFN,
    W_HYPER_DOWN_LAST,
    W_HYPER_UP,
    W_HYPER_UP_FFN,
    W_HYPER_UP_LAST,
    W_HYPER_FACTORS,
    W_HYPER_FACTORS_FFN,
    W_NGRAM_ROWS, /* of decoder_spec.ngrams: the tables, a whole name, whose second number is that
                     of a part; matrices of keys and of the value, norms of keys, of streams and of
                     what the convolution reads, and its weights */
    W_NGRAM_KEY,
    W_NGRAM_VALUE,
    W_NGRAM_KEY_NORM,
    W_NGRAM_STREAM_NORM,
    W_NGRAM_CONV_NORM,
    W_NGRAM_CONV,
    W_STREAM_KEEP, /* of decoder_spec.affine, whole names: what multiplies the stream and what is
                      added to it before, the same of the mixer's result; those of the feed-forward;
                      those of the embedding */
    W_STREAM_KEEP_BIAS,
    W_STREAM_ADD,
    W_STREAM_ADD_BIAS,
    W_STREAM_KEEP_FFN,
    W_STREAM_KEEP_FFN_BIAS,
    W_STREAM_ADD_FFN,
    W_STREAM_ADD_FFN_BIAS,
    W_STREAM_KEEP_FIRST,
    W_STREAM_KEEP_FIRST_BIAS,
    W_SPHERE_RATE, /* of decoder_spec.sphere, whole names: rates of the mixer and of the
                      feed-forward; factors of q, of attention's gate, of the MLP's gates and ups,
                      of logits */
    W_SPHERE_RATE_FFN,
    W_SPHERE_Q,
    W_SPHERE_GATE,
    W_SPHERE_MLP_GATE,
    W_SPHERE_MLP_UP,
    W_SPHERE_HEAD,
    W_BALANCE, /* of decoder_spec.balance, whole names, of the mixer and of the feed-forward; and
                  the factors of the feed-forward's result before its norm */
    W_BALANCE_FFN,
    W_BALANCE_FFN_NORM,
    W_LAUREL_LEFT,
    W_LAUREL_RIGHT,
    W_LAUREL_NORM,
    W_SIGHT_EMBED, /* of decoder_spec.other: a table, the weights of a norm, a matrix; the same of
                      the second */
    W_SIGHT_NORM,
    W_SIGHT_PROJECT,
    W_SOUND_EMBED,
    W_SOUND_NORM,
    W_SOUND_PROJECT,
    W_DRAFT_IN, /* Draft heads, see draft/draft.h: the matrix before the layer, the norms before it
                   (of the embedding and of the hidden state), and the parts after the layer. */
    W_DRAFT_EMBED_NORM,
    W_DRAFT_HIDDEN_NORM,
    W_DRAFT_NORM,
    W_DRAFT_HEAD,
    W_PATCH, /* Vision towers, see encoder/encoder_spec.h. Whole names: the class token, the vector
                after rows of tiles, and matrices where documented. */
    W_PIXEL_NORM, /* of a patch's pixels */
    W_PATCH_NORM, /* of patches before their places */
    W_PATCH_POSITIONS,
    W_CLASS_TOKEN,
    W_TILE_BEFORE, /* of encoder_spec.joint: rows of tiles, and the numbers that multiply them */
    W_TILE_BEFORE_GATE,
    W_TILE_PLACE,
    W_TILE_PLACE_GATE,
    W_TILE_AFTER,
    W_TILE_AFTER_GATE,
    W_MIDDLE_NORM,
    W_PROJECT_NORM,
    W_PROJECT_JOINED,
    W_PROJECT_MIDDLE,
    W_PROJECT_GATE,
    W_PROJECT_IN,
    W_PROJECT_OUT,
    W_SAMPLE_LATENTS, /* of encoder_spec.resample; the first is a whole name */
    W_SAMPLE_LATENT_NORM,
    W_SAMPLE_CONTEXT_NORM,
    W_SAMPLE_Q,
    W_SAMPLE_K,
    W_SAMPLE_V,
    W_SAMPLE_O,
    W_SAMPLE_MLP_NORM,
    W_SAMPLE_GATE,
    W_SAMPLE_UP,
    W_SAMPLE_DOWN,
    W_SAMPLE_NORM,
    W_LEVEL_NORM,
    W_LEVEL_IN,
    W_LEVEL_OUT,
    W_ROW_END,
    W_IMAGE_END,
    W_IMAGE_BEGIN,
    W_AFTER_NORM,  /* of encoder_projection.after_role */
    W_QUERIES_FEW, /* of encoder_spec.queries */
    W_QUERIES_MANY,
    W_POOL_BIAS, /* subtracted from the means of patches, and their scale */
    W_POOL_SCALE,
    W_CLIP_Q, /* of decoder_spec.clips: names without ".input_min" and similar suffixes */
    W_CLIP_K,
    W_CLIP_V,
    W_CLIP_O,
    W_CLIP_GATE,
    W_CLIP_UP,
    W_CLIP_DOWN,
    W_ROLES
};

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
