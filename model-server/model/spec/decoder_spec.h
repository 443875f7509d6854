/* decoder_spec.h - a transformer of one stack as data: a decoder, or an encoder of texts.
 *
 * A family fills it from its config.json (arch/<family>.c); decoder.c executes it. A plain value
 * without pointers into the configuration, which may be copied; sizes are those of the whole
 * model, not of a rank. */
#ifndef MODEL_SERVER_MODEL_DECODER_SPEC_H
#define MODEL_SERVER_MODEL_DECODER_SPEC_H
#include "model-server/backend/backend.h"
#include "model-server/model/spec/layer_spec.h"
#include "model-server/model/spec/mixer_spec.h"
#include "model-server/model/spec/moe_spec.h"
#include "model-server/model/spec/rope_spec.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum alibi_order {
    ALIBI_NONE,
    ALIBI_PAPER, /* if the number of heads is no power of two: the smaller power's slopes, then
                    every other one of the larger power's */
    ALIBI_MPT,   /* every other slope of the larger power, the second ones first */
};
struct alibi_spec {
    enum alibi_order order;
    float most; /* the exponent of the last slope: 8 */
    bool bf16;  /* slopes and their products with positions are rounded: see struct attn */
};

/* Relative position bias: a learned number per head, selected by the bucket of the distance
 * between key and query, is added to q.k (T5, arXiv 1910.10683). With both_ways half of the buckets
 * are for keys after the query; else all are for keys before it. Of each such part, half of the
 * buckets are for one distance each. The rest grow logarithmically up to `most`; larger distances
 * use the last one. */
enum near_of {
    NEAR_OF_ALL,   /* one table for all layers; its name has no layer */
    NEAR_OF_FIRST, /* the first layer has the table of all (T5) */
    NEAR_OF_EACH,  /* each layer has its own (UMT5, arXiv 2304.09151) */
    /* nothing learned: ALiBi to both sides, minus a slope of decoder_spec.alibi times the distance
     * (JinaBERT, arXiv 2310.19923) */
    NEAR_OF_SLOPES,
};
struct near_spec {
    uint32_t buckets; /* a multiple of 4; 0: none */
    uint32_t most;
    enum near_of of;
};

/* Disentangled attention (DeBERTa, arXiv 2006.03654): the key's and the query's matrix also
 * project learned vectors of distances, after their norm; q times the former and k times the
 * latter are added to q.k. Distances up to a quarter of the vectors have one each; larger ones
 * share vectors logarithmically up to `most`. */
struct apart_spec {
    uint32_t buckets; /* vectors, a multiple of 4; 0: none */
    uint32_t most;
    bool each; /* each distance below `most` has a vector: there are 2 * most */
    /* matrices of their own project the vectors, which have no norm; that of keys has no bias */
    bool own;
};

/* Parallel residual streams (AltUp, arXiv 2301.13310): a layer computes stream `active`. Before it,
 * each stream is predicted from all by coefficients that depend on the token; after it, each is
 * corrected by the difference to the prediction. */
struct altup_spec {
    uint32_t n; /* streams, up to ALTUP_MOST; 0: one residual stream */
    uint32_t active;
    bool scaled; /* a vector multiplies the active stream, as input of the layer's embeddings */
};

/* Mixed residual streams (hyper-connections, arXiv 2409.19606): see struct mix. A norm of a
 * sublayer's input follows the weighted sum; the final norm follows the last one, or the mean. */
struct mix_spec {
    uint32_t n; /* streams, up to MIX_MOST; 0: one residual stream */
    /* not 0: gates of this rank join the streams, see residual/gated.c; nothing below is used, and
     * with NORM_NONE and no_final_norm */
    uint32_t rank;
    uint32_t rounds; /* of Sinkhorn's scaling; 0: streams are not added to each other */
    float floor, magnitude, result_floor;
    bool mean_last; /* the head reads the mean of the streams */
};

/* Embeddings of the n-grams that end at a token, in layers that say so: ngrams.h. With mix.rank. */
struct ngram_spec {
    uint32_t most;     /* ids of the longest n-gram, up to NGRAM_IDS; 0: none */
    uint32_t each;     /* tables of each length from 2 on */
    uint32_t dim;      /* numbers of all tables' rows of a token */
    uint32_t least;    /* the tables' sizes are the primes from here on, layer by layer */
    uint32_t multiple; /* to which the rows of a layer's tables are filled up in the checkpoint */
    uint32_t taps;     /* width of the convolution, whose dilation is `most` */
    uint32_t seed, end;
};

/* The stream has length 1. Each sublayer moves it towards its result, of length 1 too, by a rate of
 * each number (nGPT, arXiv 2410.01131): residual/sphere.c. Norms have no weights and divide by the
 * length, not by the root of the mean square; heads of q and k and the inputs of the last matrices
 * have such norms, too. Stored vectors are multiplied by these numbers; those of q and of
 * attention's gate are squared then. */
struct sphere_spec {
    float rate; /* 0: none of this */
    float q, gate, mlp, head;
    /* Not 0: layers that end a turn add what this many layers made of the embedding, both
     * normalised. */
    uint32_t before_turns;
};

/* Ids [first, first + n) whose embeddings are from another table [rows, width], from its row `skip`
 * on: an RMS norm, a matrix [hidden, width], and an RMS norm without weights. `bare`: the rows as
 * they are, of `hidden` numbers; `vector`: the only row, a tensor with a whole name. */
struct other_embeds {
    uint32_t first, n, rows, width, skip;
    float eps;
    bool bare, vector;
};

/* Matrices of groups: rows of the i-th group read the i-th part of the input alone (SqueezeBERT,
 * arXiv 2006.11316). They are loaded as whole matrices, which are 0 elsewhere; a backend may leave
 * these zeros out. 0 or 1: no groups. */
struct group_spec {
    uint32_t q, k, v, o, up, down;
    /* Tensors are [groups, inputs of a group, outputs of a group], not [outputs, inputs of a
     * group, 1], which matrices without groups are, too. */
    bool turned;
};

/* The factor of q at position p is 1 + beta * ln(1 + floor((p + after) / length)), or with `power`
 * (1 + (p + after) / length) to the power of beta. With `beyond` it is 1 + beta * ln((p + after) /
 * length), from where that is above 1. */
struct q_growth {
    double beta, length;
    uint32_t after;
    bool power, beyond;
    /* MIXER_MLA: the factor of a head of q is slope * ln(1 + p) + offset, with two stored numbers
     * of the head; the same applies to the heads of an indexer. `length` is 1. */
    bool by_head;
};

struct decoder_spec {
    uint32_t vocab, hidden, n_layers, n_heads, n_kv_heads, head_dim, ffn;
    uint32_t v_dim;          /* of a head of v, with QKV_SEPARATE or QKV_TURNS; 0: as of q and k */
    uint32_t max_positions;  /* 0: unbounded */
    uint32_t n_draft_layers; /* after n_layers, included in `layers`: those of a draft head
                                (draft/draft.h) */
    uint32_t named_from;     /* number of layer 0 in the names of the checkpoint */
    uint32_t second_stack;   /* not 0: layers from here on have the names of arch.second, from 0 */
    /* Layers 2i and 2i + 1 are layer i of the checkpoint: odd ones have the names of arch.second */
    bool paired;
    char word[SPEC_WORD]; /* what stands for @ in names of the checkpoint (X-MOD: a language) */
    /* Consecutive ids (Gemma 3n, Ovis 2), in ascending order. */
    struct other_embeds other[2];
    uint32_t n_other;
    uint32_t more_embeds; /* rows of the stored table of embeddings after those of `vocab` */

    /* The last elements of each head, which are 0 and not stored. Without norms of q and k, gates
     * and q, k and v in other orders than stacked. */
    uint32_t head_pad;

    struct norm_spec norm;
    enum norm_place norms;
    enum qk_norm qk_norm;
    float qk_norm_eps;  /* not 0: of these norms, instead of norm.eps */
    bool qk_norm_last;  /* QK_NORM_HEAD, QK_NORM_PLAIN: after the rotation */
    bool qk_norm_still; /* QK_NORM_PLAIN: in layers that do not rotate, too */
    enum attn_gate attn_gate;
    bool attn_gate_bias; /* ATTN_GATE_APART: a stored number of each head is added */
    bool attn_gate_norm; /* ATTN_GATE_APART: each head's result is RMS-normalised before */
    /* The n-th addition to the stream, n from 2 on, is x sqrt((n - 1) / n) + f sqrt(1 / n) (Beam).
     * Here the stream is sqrt(n) times as large and the addition a usual one: only the epsilons of
     * the norms that read the stream differ. */
    bool stream_mean;
    /* The input of q, k and v is twice as wide: the embedding, then the stream, each normalised
     * (draft heads of EAGLE-3, arXiv 2503.01840). With QKV_SEPARATE. */
    bool attn_embedded;
    /* the embedding is normalised (BLOOM, arXiv 2211.05100), including positions, or before they
     * are added */
    bool embed_norm, embed_norm_first;
    /* Not 0: width of the embedding up to its norm; a matrix with a bias projects it to
     * `hidden`. */
    uint32_t embed_dim;
    /* With embed_dim: that matrix has no bias, positions are added after it, and another matrix
     * projects the stream to the head's input, as wide as the embedding (OPT 350M). */
    bool narrow_head;
    /* With embed_dim: that matrix reads the embeddings of the next token, of the token and of the
     * one before, side by side; outside of the text they are 0. Positions are added after it.
     * W_EMBED_NORM then has factors and summands of the sum, and no norm (MobileBERT). */
    bool embed_trigram;
    uint32_t head_more; /* the last columns of the head that are a tensor of their own, turned */
    /* A matrix, an activation and a norm come between the final norm and the head (ModernBERT's
     * decoder); the matrix may have a bias. */
    bool head_dense, head_dense_bias;
    enum act head_act;
    /* the first mixer has no norm, because the embedding has one (ModernBERT) */
    bool no_first_norm;
    /* Not 0: the norms of the mixers' and the experts' inputs are multiplied by sigmoids of a
     * function of themselves: a matrix to this rank, silu, a matrix back (A.X K2). NORM_BEFORE */
    uint32_t norm_gate;
    bool no_final_norm;
    /* Two stacks of layers run in turns, and the input of each turn is the sum of both results: see
     * residual/stacks.c. */
    bool two_stacks;
    /* Not 0: the share of the stream that an earlier layer kept; the rest is the stream itself. One
     * stream */
    float skip_share;
    bool parallel;    /* x + attn(n(x)) + mlp(n(x)) instead of one after the other */
    bool shared_norm; /* parallel: one norm feeds both */

    struct group_spec groups;
    enum qkv_layout qkv;
    uint32_t qkv_turns;  /* it divides the heads of q, k and v of each layer */
    bool kv_interleaved; /* with QKV_SEPARATE: W_K has k and v of each head side by side */
    enum mlp_kind mlp;
    enum act act;
    bool xielu;      /* instead of `act` in dense MLPs, by two stored numbers a layer; MLP_PLAIN */
    bool transposed; /* linear layers are stored [in, out] (Conv1D of GPT-2) */
    struct {
        bool norm, qkv, o, mlp, head;
        bool down;   /* with or without `mlp`: only of the last matrix */
        bool last_o; /* without `o`: of the last layer alone, W_O_BIAS */
    } bias;

    bool v_norm;      /* each head of v is RMS-normalised, without weights */
    bool sub_norms;   /* the inputs of o and of the dense MLP's down are RMS-normalised (BitNet) */
    bool cross_norms; /* MIXER_CROSS: each head of q and k is RMS-normalised, with weights */
    /* A vector scales the results of attention and dense MLP (LayerScale, arXiv 2103.17239): rows
     * of their last matrices, kept in fp32, are multiplied when they are loaded. */
    bool sub_scale;
    /* Inputs and results of the attention's and the dense MLP's matrices are clipped, each by
     * bounds in the checkpoint. Such a tower is not split over ranks. */
    bool clips;
    bool layer_scale; /* a number of each layer scales the stream after it (Gemma 4) */
    bool ffn_scale;   /* a number of each layer scales its feed-forward's result (Inkling) */
    /* The results of both sublayers, after their sums over ranks, each get a causal convolution of
     * themselves added, of each channel and recur.conv tokens (Inkling). */
    bool result_convs;
    uint32_t per_layer;       /* width of the separate embeddings of each layer; 0: none */
    bool per_layer_plain;     /* they are a projection of the embedding alone: no table */
    uint32_t per_layer_vocab; /* rows of their table; ids from there on use its first row; 0: vocab
                               */
    struct altup_spec altup;  /* with per_layer and NORM_AROUND */
    struct mix_spec mix;      /* with NORM_BEFORE */
    uint32_t blend_per;       /* not 0: layers of a block in residual/blended.c; with NORM_BEFORE */
    /* Queries of those blends are products of two stored vectors, not divided by the root of their
     * width. Norms, which have norm.eps, are of the scores' rows alone (Kimi K3) */
    bool blend_product;
    struct ngram_spec ngrams;
    /* The stream and each sublayer's result are scaled by vectors when they are added, and the
     * embedding is: residual/affine.c. With NORM_BEFORE, both sublayers in each layer */
    bool affine;
    struct sphere_spec sphere; /* with NORM_BEFORE and norm.bare */
    /* Not 0: a stored number of each element balances the stream and what is added to it, divided
     * by this temperature: residual/balanced.c. With NORM_BEFORE */
    float balance;
    uint32_t laurel_rank; /* with altup: of the learned residual beside attention (LAuReL, arXiv
                             2411.07501) */
    /* the id whose embeddings of each layer, or of n-grams, are of a token with a given row */
    uint32_t given_id;
    uint32_t n_added;       /* additional rows of each given one, for the first layers */
    bool learned_positions; /* a row per position is added to the embedding */
    uint32_t position_offset;
    uint32_t more_positions; /* rows of the stored table of positions after those that are used */
    enum sines sines;
    /* Token types (segments): a row of each is added as well (BERT; 0: none). Token i of segment
     * t uses row i + t * spec_position_rows() of one table. */
    uint32_t token_types;
    struct inside_spec inside;
    bool first_type_only; /* texts with other token types are refused */
    bool refuses_id;      /* texts with the token `refused_id` are refused */
    uint32_t refused_id;
    /* With token types, rows of a table of tasks, whose first one is added to each token (ERNIE,
     * arXiv 1907.12412); 0: none. */
    uint32_t token_tasks;
    bool both_ways; /* bidirectional attention: the model does not generate */
    /* The prompt is the input of an encoder (arch.encoder), to whose rows every token attends. The
     * decoder's own tokens begin with `start`. */
    bool attends_text;
    uint32_t start;
    uint32_t text_positions; /* with stored positions: those of the encoder */
    bool no_head;            /* the results are hidden states */
    bool static_rows;        /* there are no layers, and embeddings are those of static_rows.h */
    uint32_t first_mute, n_mute; /* consecutive ids that it never generates (Chameleon) */
    bool tied;                   /* the head is the embedding */
    bool unit_head;              /* rows of the head are divided by their lengths (Baichuan 2) */
    float embed_scale, residual_scale, logit_scale; /* factors; 1: none */
    /* factors of the results of gate and down of the dense MLP; 0: none */
    float gate_scale, down_scale;
    float attn_softcap, logit_softcap; /* cap * tanh(x / cap); 0: none */
    float clip_qkv;                    /* 0: none; see struct rope_kv */
    struct q_growth q_growth;          /* of layers that say so */
    enum sinks sinks;
    /* ALiBi (arXiv 2108.12409): scores decrease with distance by a slope per head, see
     * alibi_slopes(). */
    struct alibi_spec alibi;
    /* With NORM_SUM: not 0: a convolution of this many tokens, an odd number, of the first layer's
     * input. Its activation and that layer's result are added, and the norm of the sum is the next
     * layer's input (DeBERTa 2). */
    uint32_t first_conv;
    enum act first_conv_act;
    struct near_spec near;
    struct apart_spec apart; /* with as many key-value heads as heads, no rotation; QKV_SEPARATE
                                or `own` */

    struct recur_spec recur;
    struct moe_spec moe;
    struct mla_spec mla, mla_other; /* see spec_mla(); the only indexer is mla.index */
    struct cca_spec cca;
    struct profile_spec profiles;
    struct entries_spec entries;
    struct block_spec blocks;
    struct shared_spec shared;
    struct rwkv_spec rwkv;
    struct narrow_spec narrow;
    struct relative_spec relative;
    struct span_conv_spec span_conv;
    struct value_conv_spec value_conv;
    struct rope_spec rope[SPEC_MAX_ROPES];
    struct layer_spec layers[SPEC_MAX_LAYERS];
};

/* Rows of the positions of one token type. */
static inline uint32_t spec_position_rows(const struct decoder_spec *s)
{
    return s->max_positions + s->position_offset;
}
/* With learned positions, positions of struct ragged are below this. */
static inline uint32_t spec_position_end(const struct decoder_spec *s)
{
    return s->max_positions + (s->token_types > 1 ? s->token_types - 1 : 0) * spec_position_rows(s);
}
/* Columns of the narrow table of decoder_spec.inside, some of them zeros. */
static inline uint32_t spec_inside_width(const struct decoder_spec *s)
{
    enum { MULTIPLE = 16 };
    const uint32_t n = s->inside.n * s->inside.rank + 1;
    return s->inside.n ? (n + MULTIPLE - 1) / MULTIPLE * MULTIPLE : 0;
}
/* Epsilon of a norm of n numbers. With decoder_spec.sphere norm.eps is that of a length. */
static inline float spec_norm_eps(const struct decoder_spec *s, uint32_t n)
{
    return s->sphere.rate != 0 ? s->norm.eps / (float)n : s->norm.eps;
}
/* True if some layers share the weights of earlier ones. */
static inline bool spec_repeats(const struct decoder_spec *s)
{
    bool repeats = false;
    for (uint32_t i = 0; i < s->n_layers; i++)
        repeats |= s->layers[i].same_as != 0;
    return repeats;
}
/* Width of the embedding up to its norm. */
static inline uint32_t spec_embed_dim(const struct decoder_spec *s)
{
    return s->embed_dim ? s->embed_dim : s->hidden;
}
/* Layers with weights, including a draft head's. */
static inline uint32_t spec_all_layers(const struct decoder_spec *s)
{
    return s->n_layers + s->n_draft_layers;
}
/* Sizes of a layer. */
static inline uint32_t spec_head_dim(const struct decoder_spec *s, uint32_t layer)
{
    return s->layers[layer].head_dim ? s->layers[layer].head_dim : s->head_dim;
}
static inline uint32_t spec_v_dim(const struct decoder_spec *s, uint32_t layer)
{
    return s->v_dim ? s->v_dim : spec_head_dim(s, layer);
}
static inline uint32_t spec_heads(const struct decoder_spec *s, uint32_t layer)
{
    return s->layers[layer].n_heads ? s->layers[layer].n_heads : s->n_heads;
}
static inline uint32_t spec_kv_heads(const struct decoder_spec *s, uint32_t layer)
{
    return s->layers[layer].n_kv_heads ? s->layers[layer].n_kv_heads : s->n_kv_heads;
}
static inline const struct mla_spec *spec_mla(const struct decoder_spec *s, uint32_t layer)
{
    return s->layers[layer].other_mla ? &s->mla_other : &s->mla;
}
static inline uint32_t spec_ffn(const struct decoder_spec *s, uint32_t layer)
{
    return s->layers[layer].ffn ? s->layers[layer].ffn : s->ffn;
}
/* Activation of dense MLPs and shared experts, and that of experts. */
static inline enum act spec_act(const struct decoder_spec *s, uint32_t layer)
{
    return s->layers[layer].act ? s->layers[layer].act : s->act;
}
static inline enum act spec_moe_act(const struct decoder_spec *s, uint32_t layer)
{
    return s->layers[layer].moe_act ? s->layers[layer].moe_act : s->act;
}

/* Width of the experts' input and result. */
static inline uint32_t spec_expert_in(const struct decoder_spec *s)
{
    return s->moe.latent ? s->moe.latent : s->hidden;
}

static inline enum norm_place spec_norms(const struct decoder_spec *s, uint32_t layer)
{
    return s->layers[layer].norm_after ? NORM_AFTER : s->norms;
}

/* Width of the input of q, k and v. */
static inline uint32_t spec_attn_in(const struct decoder_spec *s)
{
    return s->shared.blocks ? 2 * s->hidden : s->hidden;
}
/* True if a layer reads the embedding. */
static inline bool spec_reads_embedding(const struct decoder_spec *s)
{
    return s->per_layer || s->shared.blocks;
}

/* First row and number of rows of a head of the gated delta rule in its matrix; `head` is a key
 * head's number for DELTA_Q and DELTA_K. W_MIX_IN contains q, k and v, and also z if heads are
 * grouped; then beta and decay are side by side in one matrix. With recur_spec.apart q, k and v
 * are in W_Q, W_K and W_V. */
enum delta_part { DELTA_Q, DELTA_K, DELTA_V, DELTA_Z, DELTA_BETA, DELTA_DECAY };
uint32_t spec_delta_row(const struct recur_spec *r, enum delta_part p, uint32_t head);
static inline uint32_t spec_delta_rows(const struct recur_spec *r, enum delta_part p)
{
    return p <= DELTA_K || (p == DELTA_DECAY && r->by_key) ? r->key_dim
           : p <= DELTA_Z                                  ? r->value_dim
                                                           : 1;
}

/* The usual factor of q.k. */
static inline float spec_head_scale(const struct decoder_spec *s)
{
    return 1 / sqrtf((float)s->head_dim);
}

/* First row of head `head` of part `part` (0 q, 1 k, 2 v) in its matrix. */
uint32_t spec_qkv_row(const struct decoder_spec *s, uint32_t layer, int part, uint32_t head);
#endif
