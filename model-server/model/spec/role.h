/* role.h - what a tensor of a checkpoint is for. Families map roles to names (arch.h); loaders ask
 * for tensors by role. */
#ifndef MODEL_SERVER_MODEL_ROLE_H
#define MODEL_SERVER_MODEL_ROLE_H

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
    W_BLEND_NORM, /* of decoder_spec.blend_product: the other vectors of W_BLEND, W_BLEND_FFN and
                     W_BLEND_LAST; GGUF files have the products alone */
    W_BLEND_FFN_NORM,
    W_BLEND_LAST_NORM,
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
    W_MOE_LATENT_NORM, /* of moe_spec.latent_norm, latent_norm_last and result_eps */
    W_MOE_RESULT_NORM,
    W_SELECT_BIAS,
    W_SIGHT_ROUTER, /* of moe_spec.sight_ffn; that of separate experts is a whole name */
    W_SIGHT_GATE_UP,
    W_SIGHT_DOWN,
    W_SIGHT_SELECT_BIAS,
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
#endif
