/* decoder_spec.h - a transformer of one stack as data: a decoder, or an encoder of texts.
 *
 * A family fills one of these from its config.json (arch/<family>.c); decoder.c runs whatever it
 * says. A plain value: no pointers into the configuration, copied freely, whole-model sizes (not a
 * rank's). */
#ifndef MODEL_SERVER_MODEL_DECODER_SPEC_H
#define MODEL_SERVER_MODEL_DECODER_SPEC_H
#include "model-server/backend/backend.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { SPEC_MAX_LAYERS = 512, SPEC_MAX_ROPES = 3, ROPE_MAX_DIM = 1024 };
enum { SPEC_NO_ROPE = SPEC_MAX_ROPES - 1 }; /* always of kind ROPE_NONE */

/* ---------------------------------------------------------------- rotary positions */

enum rope_kind {
    ROPE_NONE,    /* learned positions or none */
    ROPE_DEFAULT, /* RoFormer, arXiv 2104.09864 */
    ROPE_LINEAR,  /* positions / factor, arXiv 2306.15595 */
    ROPE_DYNAMIC, /* the base grows with the length of the sequence (NTK) */
    ROPE_LLAMA3,  /* long wavelengths / factor, short ones kept, a ramp between */
    ROPE_YARN,    /* arXiv 2309.00071 */
    ROPE_PARTIAL, /* the first `turning` elements' frequencies; the others' are 0 (Gemma 4) */
    ROPE_GRID,    /* two runs of dim / 4 angles, of equal frequencies: a row's and a column's of a
                     picture (Qwen2-VL, arXiv 2409.12191) */
    ROPE_GRID_TURNS, /* the same, with the even frequencies of `dim`, then the odd ones (Pixtral,
                        arXiv 2410.07073) */
    ROPE_LONGROPE,   /* two lists of factors, by the length of the sequence, arXiv 2402.13753 */
};
struct rope_spec {
    enum rope_kind kind;
    bool interleaved;
    uint32_t dim;            /* rotated elements of a head, even */
    double theta;            /* base */
    double factor;           /* LINEAR, DYNAMIC, LLAMA3, YARN */
    uint32_t turning;        /* PARTIAL: of dim, even */
    double attention_factor; /* multiplies cos and sin */
    uint32_t original;       /* positions of the first training: DYNAMIC, LLAMA3, YARN, LONGROPE */
    double low_freq, high_freq;  /* LLAMA3 */
    double beta_fast, beta_slow; /* YARN */
    bool truncate;               /* YARN */
    /* Angle i turns with position axis[i] of ragged.axes: t, h or w; else all turn with pos. */
    bool has_axes;
    /* Each half of a head turns by itself, its first half with its second. The rows of q and k and
     * their norms are loaded so that the halves of the whole head are what turns. */
    bool halves;
    uint8_t axis[ROPE_MAX_DIM / 2];
    float short_factor[ROPE_MAX_DIM / 2], long_factor[ROPE_MAX_DIM / 2]; /* LONGROPE */
};

/* ---------------------------------------------------------------- layers */

/* How q, k and v lie in the checkpoint; g = heads that share one key-value head. */
enum qkv_layout {
    QKV_SEPARATE, /* three matrices */
    QKV_STACKED,  /* one: all q heads, all k heads, all v heads */
    QKV_GROUPED,  /* one: for each key-value head its g q heads, its k, its v */
    QKV_QUARTERS, /* one: four times a quarter of all q heads, of all v heads, of all k heads */
};
enum mlp_kind {
    MLP_PLAIN,        /* down(act(up(x))) */
    MLP_GATED,        /* down(act(gate(x)) * up(x)), two matrices */
    MLP_GATED_PACKED, /* the same, gate over up in one matrix */
    MLP_UP_PACKED,    /* the same, up over gate */
};

/* Where the norms of a layer stand: x + f(n(x)), x + n(f(n(x))) (Gemma 2, arXiv 2408.00118),
 * x + n(f(x)) (OLMo 2, arXiv 2501.00656) or n(x + f(x)) (the first transformers, BERT). */
enum norm_place { NORM_BEFORE, NORM_AROUND, NORM_AFTER, NORM_SUM };
/* The sublayers read the norm of x. */
static inline bool norm_place_before(enum norm_place p)
{
    return p == NORM_BEFORE || p == NORM_AROUND;
}

/* Norms of q and k before the rotation: RMS of each head, by the same weights; RMS of all heads
 * together; the kind of the other norms, of each head by weights of its own. */
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD,
    QK_NORM_ALL,
    QK_NORM_BY_HEAD,
    /* RMS of each head without weights, in layers that rotate (Llama 4, behind the rotation of
     * whole heads: it leaves lengths as they are, so before it is the same) */
    QK_NORM_PLAIN
};

struct norm_spec {
    enum norm_kind kind;
    float eps;
    float plus; /* added to the stored weights (Gemma: 1) */
    bool bare;  /* none are stored: they would be 1 */
};

/* What relates the tokens of a sequence in a layer; a row of the table in decoder_load.c each.
 * MIXER_NONE: the layer is a feed-forward alone. */
enum mixer_kind {
    MIXER_ATTENTION,
    MIXER_DELTA,  /* the gated delta rule (arXiv 2412.06464) */
    MIXER_MAMBA2, /* arXiv 2405.21060 */
    MIXER_MLA,    /* latent attention (arXiv 2405.04434) */
    MIXER_CONV,   /* a short convolution between two gates (LFM2, arXiv 2511.23404) */
    MIXER_PAIR,   /* attention and Mamba-2 beside each other (Falcon-H1, arXiv 2507.22448) */
    /* Attention to rows of pictures (Llama 3.2 Vision, arXiv 2407.21783): q is a token's, k and v
     * are made of the pictures' features. Tokens that see no picture pass the whole layer by. */
    MIXER_CROSS,
    MIXER_N,
    MIXER_NONE = MIXER_N
};

struct layer_spec {
    enum mixer_kind mixer;
    bool no_ffn;                        /* the layer is a mixer alone */
    uint32_t n_kv_heads, head_dim, ffn; /* 0: as in decoder_spec; see spec_head_dim() and others */
    uint32_t kv_of;  /* not 0: no keys and values of its own, it reads those of layer kv_of - 1 */
    uint32_t chunk;  /* a token sees those of its own run of so many; 0: all */
    bool q_grows;    /* q is multiplied by a factor that grows with the position: struct q_growth */
    uint32_t window; /* a token sees itself and window - 1 before it; 0: all */
    enum attn_mutual mutual;
    float attn_scale; /* multiplies q.k */
    bool k_is_v;      /* values are made by the keys' matrix, without norm and rotation of keys */
    uint8_t rope;     /* index into decoder_spec.rope */
    uint32_t same_as; /* not 0: its weights are those of layer same_as - 1, an earlier one */
    bool moe;         /* experts instead of the dense MLP */
    bool gated;       /* tanh of a stored number multiplies what each sublayer adds */
};

/* The norm behind Mamba-2's recurrence: of the gated result, none, or of the result before it is
 * gated. */
enum recur_norm { RECUR_NORM_GATED, RECUR_NORM_NONE, RECUR_NORM_FIRST };

/* What the matrix before Mamba-2's recurrence makes: z, x, B, C and the steps. */
enum { RECUR_PRODUCTS = 5 };

/* The layers that carry a state from token to token. Mixers with heads: a value head has value_dim
 * elements, and heads / key_heads of them share a key and a query of key_dim (Mamba-2: B and C of a
 * group). MIXER_CONV: `hidden` channels. */
struct recur_spec {
    uint32_t heads, key_heads, key_dim, value_dim;
    uint32_t conv;  /* tokens that the convolution before the recurrence looks at */
    bool grouped;   /* one matrix for all: each key head's q, k, v and z side by side, another
                       for beta and decay (Qwen3-Next) */
    bool conv_bias; /* of the convolution */
    bool proj_bias; /* of the matrices before and behind */
    float dt_min, dt_max;
    enum recur_norm norm; /* MIXER_MAMBA2, MIXER_PAIR */
    /* MIXER_PAIR: factors of the products before the recurrence, in the order in which they lie; of
     * its result, and of that of the attention beside it. has_factors: some product's is not 1. */
    bool has_factors;
    float factors[RECUR_PRODUCTS], out_scale, attn_out_scale;
};

/* How the experts of a layer lie in the checkpoint. */
enum expert_layout {
    /* Each has its matrices gate, up and down; or, where the checkpoint has the name of
     * W_MOE_GATE_UP, all of a layer are in one tensor: [n_experts][2 * ffn][hidden], the gates'
     * rows first, and [n_experts][hidden][ffn], or both with the last two dimensions swapped. */
    EXPERTS_SEPARATE,
    /* One tensor for all of a layer: [n_experts][hidden][2 * ffn], gate and up in turns, and
     * [n_experts][ffn][hidden]. Stored quantised: each expert's matrix by rows of outputs. */
    EXPERTS_INTERLEAVED,
    /* One tensor for all gates of a layer, one for the ups, one for the downs, which is turned:
     * [n_experts * ffn][hidden] each (DBRX). */
    EXPERTS_STACKED,
};

/* See struct moe in backend.h for what is not explained here. */
struct moe_spec {
    uint32_t n_experts, top_k, ffn;
    bool renormalise;
    bool bias; /* of the router, of gate and up, of down */
    enum moe_score score;
    float jitter;
    bool scale_input;
    bool expert_scale; /* a stored factor of each expert's weight */
    bool beside;       /* layers with experts have the dense MLP too, each with norms (Gemma 4) */
    float scale;       /* of the chosen experts' weights; 1: none */
    bool select_bias;  /* added to the scores for choosing */
    uint32_t n_groups, top_groups;
    bool group_pairs;
    /* One more MLP of this width that every token takes (0: none); its result is multiplied by the
     * sigmoid of a product of the input, where `shared_gate` (Qwen 2 MoE). */
    uint32_t shared_ffn;
    bool shared_gate;
    bool shared_packed; /* gate over up of that MLP in one matrix */
    bool plain;         /* MLPs without gates: down(act(up(x))) */
    enum expert_layout layout;
};

/* Latent attention (arXiv 2405.04434): sizes of what a head is made of. */
struct mla_spec {
    uint32_t q_rank;        /* of q's own low-rank pair; 0: one matrix */
    uint32_t kv_rank;       /* numbers of the latent that keys and values are made of */
    uint32_t nope, rope, v; /* of a head: not rotated and rotated of q and k; of v */
    float eps;              /* of the two norms */
};

enum alibi_order {
    ALIBI_NONE,
    ALIBI_PAPER, /* of a number of heads that is no power of two: the smaller power's slopes, then
                    every other one of the larger power's */
    ALIBI_MPT,   /* every other slope of the larger power, the second ones first */
};
struct alibi_spec {
    enum alibi_order order;
    float most; /* the exponent of the last slope: 8 */
    bool bf16;  /* slopes and their products with positions are rounded: see struct attn */
};

/* A learned number of each head is added to q.k, by the bucket of the key's distance from the query
 * (T5, arXiv 1910.10683): half of the buckets are for keys behind it, a quarter of each for one
 * distance each, the rest grow with the logarithm up to `most`, beyond which all are the last. */
struct near_spec {
    uint32_t buckets; /* a multiple of 4; 0: none */
    uint32_t most;
};

/* Disentangled attention (DeBERTa, arXiv 2006.03654): the key's and the query's matrix also project
 * learned vectors of distances, after their norm; q times the former and k times the latter are
 * added to q.k. Distances up to a quarter of the vectors have one each, further ones share some
 * by the logarithm up to `most`. */
struct apart_spec {
    uint32_t buckets; /* vectors, a multiple of 4; 0: none */
    uint32_t most;
};

/* q at position p is multiplied by 1 + beta * ln(1 + floor((p + after) / length)). */
struct q_growth {
    double beta, length;
    uint32_t after;
};

struct decoder_spec {
    uint32_t vocab, hidden, n_layers, n_heads, n_kv_heads, head_dim, ffn;
    uint32_t max_positions;  /* 0: unbounded */
    uint32_t n_draft_layers; /* behind n_layers, in `layers` too: a draft head's (draft/draft.h) */
    uint32_t second_stack;   /* not 0: layers from here on have the names of arch.second, from 0 */
    uint32_t more_embeds;    /* rows of the stored table of embeddings behind those of `vocab` */

    struct norm_spec norm;
    enum norm_place norms;
    enum qk_norm qk_norm;
    bool qk_norm_last; /* QK_NORM_HEAD: behind the rotation */
    /* Attention's result is multiplied by the sigmoid of a product of its input, whose rows follow
     * those of each head's q in one matrix. With QKV_SEPARATE. */
    bool attn_gate;
    /* q, k and v are made of twice as much: the embedding, then the stream, each normalised (draft
     * heads of EAGLE-3, arXiv 2503.01840). With QKV_SEPARATE. */
    bool attn_embedded;
    bool embed_norm; /* the embedding is normalised (BLOOM, arXiv 2211.05100), positions and all */
    /* Not 0: the embedding is this wide up to its norm; a matrix with a bias makes `hidden` of it.
     */
    uint32_t embed_dim;
    bool no_first_norm; /* the first mixer has no norm: the embedding's is one (ModernBERT) */
    bool no_final_norm;
    bool parallel;    /* x + attn(n(x)) + mlp(n(x)) instead of one after the other */
    bool shared_norm; /* parallel: one norm feeds both */

    enum qkv_layout qkv;
    enum mlp_kind mlp;
    enum act act;
    bool transposed; /* linear layers are stored [in, out] (Conv1D of GPT-2) */
    struct {
        bool norm, qkv, o, mlp, head;
        bool down; /* with `mlp` or without: of the last matrix alone */
    } bias;

    bool v_norm; /* each head of v is normalised by RMS, without weights */
    /* A vector multiplies what attention and the dense MLP give (LayerScale, arXiv 2103.17239):
     * rows of their last matrices, kept in fp32, are multiplied when they are loaded. */
    bool sub_scale;
    /* Inputs and results of the attention's and the dense MLP's matrices are clipped, each by
     * bounds in the checkpoint. All of it is on one rank. */
    bool clips;
    bool layer_scale;       /* a number of each layer multiplies the stream behind it (Gemma 4) */
    uint32_t per_layer;     /* width of the embeddings that each layer has of its own; 0: none */
    uint32_t given_id;      /* whose embeddings of each layer a token has whose row is given */
    uint32_t n_added;       /* rows that each given one brings along, for the first layers */
    bool learned_positions; /* a row per position is added to the embedding */
    uint32_t position_offset;
    /* Segments of a text have a row of their own, which is added as well (BERT; 0: none). Token i
     * of segment t stands at row i + t * spec_position_rows() of one table. */
    uint32_t token_types;
    bool first_type_only; /* texts with tokens of other types are refused */
    bool both_ways;       /* tokens see what comes after them: no text can be generated */
    bool no_head;         /* hidden states are all that it gives */
    bool tied;            /* the head is the embedding */
    float embed_scale, residual_scale, logit_scale; /* factors; 1: none */
    float gate_scale, down_scale;      /* of what gate and down of the dense MLP make; 0: none */
    float attn_softcap, logit_softcap; /* cap * tanh(x / cap); 0: none */
    float clip_qkv;                    /* 0: none; see struct rope_kv */
    struct q_growth q_growth;          /* of layers that say so */
    bool sinks;                        /* a learned logit a head, see struct attn */
    /* Scores fall with distance by a slope of each head (ALiBi, arXiv 2108.12409): alibi_slopes()
     * says which. */
    struct alibi_spec alibi;
    struct near_spec near;
    struct apart_spec apart; /* with QKV_SEPARATE, as many key-value heads as heads, no rotation */

    struct recur_spec recur;
    struct moe_spec moe;
    struct mla_spec mla;
    struct rope_spec rope[SPEC_MAX_ROPES];
    struct layer_spec layers[SPEC_MAX_LAYERS];
};

/* Rows of the positions of one segment. */
static inline uint32_t spec_position_rows(const struct decoder_spec *s)
{
    return s->max_positions + s->position_offset;
}
/* Positions of struct ragged are below this, where they are learned. */
static inline uint32_t spec_position_end(const struct decoder_spec *s)
{
    return s->max_positions + (s->token_types > 1 ? s->token_types - 1 : 0) * spec_position_rows(s);
}
/* Width of the embedding up to its norm. */
static inline uint32_t spec_embed_dim(const struct decoder_spec *s)
{
    return s->embed_dim ? s->embed_dim : s->hidden;
}
/* Layers that have weights and, perhaps, keys: the model's and a draft head's. */
static inline uint32_t spec_all_layers(const struct decoder_spec *s)
{
    return s->n_layers + s->n_draft_layers;
}
/* Sizes of a layer. */
static inline uint32_t spec_head_dim(const struct decoder_spec *s, uint32_t layer)
{
    return s->layers[layer].head_dim ? s->layers[layer].head_dim : s->head_dim;
}
static inline uint32_t spec_kv_heads(const struct decoder_spec *s, uint32_t layer)
{
    return s->layers[layer].n_kv_heads ? s->layers[layer].n_kv_heads : s->n_kv_heads;
}
static inline uint32_t spec_ffn(const struct decoder_spec *s, uint32_t layer)
{
    return s->layers[layer].ffn ? s->layers[layer].ffn : s->ffn;
}

/* Where the rows of a head of the gated delta rule lie in their matrix, and how many they are;
 * `head` is a key head's number for DELTA_Q and DELTA_K. W_MIX_IN has q, k and v, and z where heads
 * are grouped; beta and decay are side by side in one matrix there. */
enum delta_part { DELTA_Q, DELTA_K, DELTA_V, DELTA_Z, DELTA_BETA, DELTA_DECAY };
uint32_t spec_delta_row(const struct recur_spec *r, enum delta_part p, uint32_t head);
static inline uint32_t spec_delta_rows(const struct recur_spec *r, enum delta_part p)
{
    return p <= DELTA_K ? r->key_dim : p <= DELTA_Z ? r->value_dim : 1;
}

/* The usual factor of q.k. */
static inline float spec_head_scale(const struct decoder_spec *s)
{
    return 1 / sqrtf((float)s->head_dim);
}

/* Where head `head` of part `part` (0 q, 1 k, 2 v) begins in its matrix, in rows. */
static inline uint32_t spec_qkv_row(const struct decoder_spec *s, uint32_t layer, int part,
                                    uint32_t head)
{
    const uint32_t kv_heads = spec_kv_heads(s, layer);
    uint32_t g = s->n_heads / kv_heads, row = head;
    if (s->qkv == QKV_STACKED)
        row = head + (part > 0 ? s->n_heads : 0) + (part > 1 ? kv_heads : 0);
    else if (s->qkv == QKV_GROUPED)
        row = part == 0 ? head / g * (g + 2) + head % g : head * (g + 2) + g + (uint32_t)part - 1;
    else if (s->qkv == QKV_QUARTERS) {
        g = s->n_heads / 4;
        row = head / g * 3 * g + (part ? 3 - (uint32_t)part : 0) * g + head % g;
    }
    return row * spec_head_dim(s, layer) * (s->attn_gate && part == 0 ? 2 : 1);
}
#endif
