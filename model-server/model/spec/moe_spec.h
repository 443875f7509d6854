/* moe_spec.h - the experts of a model: how many, how they are chosen, how a checkpoint has them. */
#ifndef MODEL_SERVER_MODEL_MOE_SPEC_H
#define MODEL_SERVER_MODEL_MOE_SPEC_H
#include "model-server/backend/backend.h"

/* Layout of a layer's experts in the checkpoint. */
enum expert_layout {
    /* Each has its matrices gate, up and down. If the checkpoint has a tensor named
     * W_MOE_GATE_UP, all experts of a layer are in one tensor: [n_experts][2 * ffn][hidden], the
     * gates' rows first, and [n_experts][hidden][ffn], or both with the last two dimensions
     * swapped. */
    EXPERTS_SEPARATE,
    /* One tensor for all of a layer: [n_experts][hidden][2 * ffn], gate and up interleaved, and
     * [n_experts][ffn][hidden]. If stored quantised: each expert's matrix by rows of outputs. */
    EXPERTS_INTERLEAVED,
    /* One tensor for all gates of a layer, one for the ups, one for the downs, which is
     * transposed: [n_experts * ffn][hidden] each (DBRX; Nomic Embed 2 without gates). If each
     * expert has a matrix named W_MOE_UP, as EXPERTS_SEPARATE. */
    EXPERTS_STACKED,
    /* The same with downs that are not transposed, [n_experts][hidden][ffn] (Step 3.5). */
    EXPERTS_LISTED,
};

/* See struct moe in backend.h for fields without a comment. */
struct moe_spec {
    uint32_t n_experts, top_k, ffn;
    bool renormalise;
    bool bias; /* of the router, of gate and up, of down */
    /* with `plain` and EXPERTS_SEPARATE: each matrix of an expert has a bias of its own, the router
     * has none (NLLB-MoE) */
    bool each_bias;
    enum moe_score score;
    float jitter;
    bool scale_input;
    bool expert_scale; /* a stored factor per expert */
    /* Not 0: a matrix makes the experts' input, of this width, and another one the result of
     * theirs; the router and the shared expert read the layer's input (Nemotron 3 Super). */
    uint32_t latent;
    bool latent_norm; /* an RMS norm makes the experts' input of what that matrix makes */
    /* an RMS norm makes the other matrix's input of the sum of the experts' results (Kimi K3) */
    bool latent_norm_last;
    /* RMS norm of each expert's result times stored factors: epsilon; 0: none. Experts are not cut
     * into parts for ranks (Muse Spark). */
    float result_eps;
    float router_by;   /* not 0: factor of the logits */
    uint32_t n_zero;   /* experts without weights, after the others: see struct moe */
    bool zero_nothing; /* their result is 0, not their input */
    /* Not 0: an MLP is before the router's last matrix, of this width, at most that of the stream:
     * ffn/router.h */
    uint32_t router_width;
    /* Layers with experts also have the dense MLP, of the same input; the experts' result is added
     * to that of the next layer's feed-forward (LongCat-Flash, arXiv 2509.01322). */
    bool shortcut;
    bool early_router;  /* the router reads the stream before the mixer (SmallThinker) */
    bool beside;        /* layers with experts also have the dense MLP, each with norms (Gemma 4) */
    float scale;        /* of the selected experts' weights; 1: none */
    bool select_bias;   /* added to the scores for the selection */
    bool select_logits; /* the logits are for the selection, not the scores */
    bool bias_may_lack; /* files without select_bias have zeros */
    /* Not 0: tokens of pictures, and those with the ids sight_ids, have as many experts of their
     * own, of this width (ffn/sight.c); the shared expert is that of all tokens. Where each
     * expert has matrices of its own they are the experts after the others. Then routers are stored
     * [hidden, n_experts], and select_bias has a second row (ERNIE 4.5 VL). */
    uint32_t sight_ffn;
    uint32_t sight_ids[2];
    /* The last ones of n_experts and of top_k that every token uses: the router scores them with
     * the others, files have their matrices in tensors of their own, and select_bias lacks them
     * (Inkling). */
    uint32_t n_always;
    uint32_t n_groups, top_groups;
    bool group_pairs;
    /* Width of the shared expert, which every token uses (0: none). With `shared_gate` its result
     * is multiplied by the sigmoid of a product of the input (Qwen 2 MoE). */
    uint32_t shared_ffn;
    bool shared_gate;
    bool shared_packed; /* gate over up of that MLP in one matrix */
    bool plain;         /* MLPs without gates: down(act(up(x))) */
    bool sum_bias;      /* a vector is added to the sum of the experts' results */
    enum expert_layout layout;
};
#endif
