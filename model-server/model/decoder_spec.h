/* decoder_spec.h - a transformer of one stack as data: a decoder, or an encoder of texts.
 *
 * A family fills it from its config.json (arch/<family>.c); decoder.c executes it. A plain value
 * without pointers into the configuration, which may be copied; sizes are those of the whole
 * model, not of a rank. */
#ifndef MODEL_SERVER_MODEL_DECODER_SPEC_H
#define MODEL_SERVER_MODEL_DECODER_SPEC_H
#include "model-server/backend/backend.h"
#include "model-server/model/mixer_spec.h"
#include "model-server/model/moe_spec.h"
#include "model-server/model/rope_spec.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { SPEC_MAX_LAYERS = 512, SPEC_MAX_ROPES = 5, SPEC_WORD = 32 };
enum { SPEC_NO_ROPE = SPEC_MAX_ROPES - 1 }; /* always of kind ROPE_NONE */

/* ---------------------------------------------------------------- layers */

/* Layout of q, k and v in the checkpoint; g = heads that share one key-value head. If a checkpoint
 * has a tensor named W_Q, they are separate, whatever this says: GGUF files of some families. */
enum qkv_layout {
    QKV_SEPARATE,   /* three matrices */
    QKV_STACKED,    /* one: all q heads, all k heads, all v heads */
    QKV_GROUPED,    /* one: for each key-value head its g q heads, its k, its v */
    QKV_GATE_FIRST, /* one: the rows of ATTN_GATE_APART, then as QKV_STACKED */
    QKV_QUARTERS,   /* one: four times a quarter of all q heads, of all v heads, of all k heads */
    /* one: decoder_spec.qkv_turns times that part of all q heads, of all k heads, of all v heads.
     * Blocks of scales begin anew with each turn (MiMo V2.5) */
    QKV_TURNS,
};
enum mlp_kind {
    MLP_PLAIN,        /* down(act(up(x))) */
    MLP_GATED,        /* down(act(gate(x)) * up(x)), two matrices */
    MLP_GATED_PACKED, /* the same, gate over up in one matrix */
    MLP_UP_PACKED,    /* the same, up over gate */
};

/* Rows of positions that are not stored: sines of p / 10000^(i / m) for i < n = width / 2, then the
 * cosines (arXiv 1706.03762). m is n - 1 in fairseq's decoders, and n in Marian. */
enum sines { SINES_NONE, SINES_TO_LAST, SINES_OF_HALF };

/* Position of a layer's norms: x + f(n(x)), x + n(f(n(x))) (Gemma 2, arXiv 2408.00118), x +
 * n(f(x)) (OLMo 2, arXiv 2501.00656), n(x + f(x)) (the original transformer, BERT),
 * a n(x) + b f(n(x)) with factors a and b (MiniMax-01, arXiv 2501.08313), or no norm: x + f(x). */
enum norm_place { NORM_BEFORE, NORM_AROUND, NORM_AFTER, NORM_SUM, NORM_STREAM, NORM_NONE };
/* True if the sublayers read the norm of x. */
static inline bool norm_place_before(enum norm_place p)
{
    return p == NORM_BEFORE || p == NORM_AROUND || p == NORM_STREAM;
}

/* Norms of q and k before the rotation: RMS of each head, with the same weights; RMS of all heads
 * together; the kind of the other norms, of each head with its own weights; layer norms of each
 * head with the same weights and biases. */
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD,
    QK_NORM_ALL,
    QK_NORM_BY_HEAD,
    QK_NORM_LAYER,
    QK_NORM_LAYER_BY_HEAD, /* the same with each head's own weights and biases */
    /* RMS of each head without weights, in layers that rotate; with qk_norm_last after the rotation
     * of whole heads, whose factor it undoes (Llama 4) */
    QK_NORM_PLAIN
};

/* Attention's result is multiplied by the sigmoid of a product of its input. The product is by a
 * matrix of its own, or by rows that follow those of each head's q in one matrix (with
 * QKV_SEPARATE). BY_HEAD: the
 * matrix of its own has one row for each head; SOFTPLUS_BY_HEAD: the same with softplus. */
enum attn_gate {
    ATTN_GATE_NONE,
    ATTN_GATE_BESIDE_Q,
    ATTN_GATE_APART,
    ATTN_GATE_BY_HEAD,
    ATTN_GATE_SOFTPLUS_BY_HEAD
};
static inline bool attn_gate_by_head(enum attn_gate g) { return g >= ATTN_GATE_BY_HEAD; }

/* Layers that have a learned logit for each head: see struct attn. */
enum sinks { SINKS_NONE, SINKS_ALL, SINKS_WINDOWS };

/* Adapters inside the checkpoint, which change the table of embeddings too: row `id` of it grows by
 * a_t[id] b_t for adapter t. The rows a of all adapters, side by side, are one narrow table, from
 * which an adapter's matrix selects its own (LORA_EMBED). A last column of 1 stands for what a
 * token of type 0 adds. */
struct inside_spec {
    uint32_t n, rank; /* n 0: there are none */
};

struct norm_spec {
    enum norm_kind kind;
    float eps;
    float plus;         /* added to the stored weights (Gemma: 1) */
    bool bare;          /* no weights are stored: all are 1 */
    float post_eps;     /* of the norms after the branches, if it is not 0 */
    float post_plus[2]; /* `plus` of the norm after the mixer and after the feed-forward; 0: plus */
    bool plain_ends;    /* nothing is added to the last norm's weights; the embedding's has none */
};

/* The mixer of a layer, which relates the tokens of a sequence; each has a row of the table in
 * decoder_load.c. MIXER_NONE: the layer is only a feed-forward. */
enum mixer_kind {
    MIXER_ATTENTION,
    MIXER_DELTA,  /* the gated delta rule (arXiv 2412.06464) */
    MIXER_MAMBA2, /* arXiv 2405.21060 */
    MIXER_MLA,    /* latent attention (arXiv 2405.04434) */
    MIXER_CONV,   /* a short convolution between two gates (LFM2, arXiv 2511.23404) */
    MIXER_MAMBA,  /* arXiv 2312.00752 */
    MIXER_FIXED,  /* linear attention whose decay is fixed (arXiv 2401.04658) */
    MIXER_GATED,  /* a short convolution and a real-gated linear recurrence (RG-LRU, arXiv
                     2402.19427), gated by another product of the input */
    MIXER_PAIR,   /* attention and Mamba-2 in parallel (Falcon-H1, arXiv 2507.22448) */
    /* Mamba-2, or with recur_spec.step_rank Mamba, whose input is the stream plus the result of a
     * block of attention and an MLP, which several layers share (Zamba2, arXiv 2411.15242) */
    MIXER_SHARED,
    /* Attention of one key-value head to a window, and to entries that stand for several earlier
     * tokens each (DeepSeek V4): struct entries_spec */
    MIXER_ENTRIES,
    /* Cross-attention to rows of images (Llama 3.2 Vision, arXiv 2407.21783) or of an encoder of
     * texts (arXiv 1706.03762): q is computed from the token, k and v from those rows. Tokens that
     * attend to no such row skip the whole layer. */
    MIXER_CROSS,
    /* Attention whose queries and keys pass two convolutions, and half of whose values are the last
     * token's (compressed convolutional attention, arXiv 2510.04476): struct cca_spec */
    MIXER_CCA,
    MIXER_DIFFERENCE, /* differential attention (arXiv 2410.05258): pairs of heads */
    MIXER_RWKV, /* RWKV-7 (arXiv 2503.14456): struct rwkv_spec. Layers read the first one's values
                 */
    /* Attention and feed-forwards of a narrow stream between two matrices (MobileBERT, arXiv
     * 2004.02984): struct narrow_spec. With NORM_NONE and no_ffn */
    MIXER_NARROW,
    /* Attention whose queries are also multiplied by vectors of distances, and by one of tokens of
     * another type (XLNet, arXiv 1906.08237): struct relative_spec */
    MIXER_RELATIVE,
    /* Attention beside a convolution whose kernels are made of each token and its neighbours
     * (ConvBERT, arXiv 2008.02496): struct span_conv_spec */
    MIXER_SPAN_CONV,
    /* Attention, to whose result each head adds a convolution of its values (Nystroemformer, arXiv
     * 2102.03902): struct value_conv_spec */
    MIXER_VALUE_CONV,
    MIXER_FOURIER, /* the real part of the Fourier transform of the text (FNet, arXiv 2105.03824) */
    /* Attention whose scores also have a bias by distance that each query mixes from a bank, and
     * whose keys and values pass a short convolution (Inkling): struct profile_spec */
    MIXER_PROFILES,
    MIXER_N,
    MIXER_NONE = MIXER_N
};
/* True if a layer may be one of a model that gives vectors, labels or scores of whole texts. */
static inline bool mixer_encodes(enum mixer_kind m)
{
    return m == MIXER_ATTENTION || m == MIXER_NARROW || m == MIXER_RELATIVE ||
           m == MIXER_SPAN_CONV || m == MIXER_VALUE_CONV || m == MIXER_FOURIER || m == MIXER_NONE;
}

struct layer_spec {
    enum mixer_kind mixer;
    bool no_ffn;           /* the layer is only a mixer */
    bool norm_after;       /* NORM_AFTER, whatever decoder_spec.norms is (OLMo Hybrid) */
    bool ffn_norm_after;   /* with NORM_BEFORE: the feed-forward's result is normalised (A.X K1) */
    float keep[2], add[2]; /* NORM_STREAM: a and b of the mixer and of the feed-forward */
    /* 0: as in decoder_spec; see spec_head_dim() and similar functions */
    uint32_t n_heads, n_kv_heads, head_dim, ffn;
    uint32_t kv_of; /* not 0: no keys and values of its own; it reads those of layer kv_of - 1 */
    /* not 0: with mla_spec.index, it attends to the positions that layer top_of - 1 selected */
    uint32_t top_of;
    uint32_t ngrams; /* not 0: its number from 1 on among the layers with decoder_spec.ngrams */
    bool other_mla;  /* MIXER_MLA: its sizes are decoder_spec.mla_other */
    bool
        selects_none; /* with mla_spec.index: it attends to all positions, or those of its window */
    bool by_blocks;   /* block-sparse attention: decoder_spec.blocks */
    uint32_t chunk;   /* chunked attention with chunks of this size; 0: none */
    uint32_t profiles; /* MIXER_PROFILES: distances below it have a bias */
    bool apart_inputs; /* MIXER_PROFILES, with blend_per: q, k and v read inputs of their own */
    bool q_grows;      /* q has a factor that grows with the position: struct q_growth */
    uint32_t window;   /* a token attends to itself and window - 1 before it; 0: all */
    uint32_t ahead;    /* both_ways, with a window: this many more tokens after it than before it */
    /* MIXER_ATTENTION: keys and values are also made of the rows of an encoder of texts, by the
     * same weights without a rotation. A token attends to them in the same softmax (T5Gemma 2). */
    bool merged;
    enum attn_mutual mutual;
    float attn_scale; /* multiplies q.k */
    bool k_is_v;      /* values come from the keys' matrix, without norm and rotation of keys */
    uint8_t rope;     /* index into decoder_spec.rope */
    /* MIXER_ENTRIES: positions of an entry (0: it has none), and the rotation of entries. `chosen`:
     * an indexer selects them, and an entry is also of the positions of the one before. */
    uint8_t entry_rope;
    bool chosen;
    uint32_t every;
    uint32_t block_of; /* MIXER_SHARED: the layer in whose name the shared weights are */
    uint32_t turn;     /* MIXER_SHARED: its number among the layers with a block */
    uint32_t same_as;  /* not 0: it shares the weights of layer same_as - 1, an earlier one */
    bool turn_ends;    /* the stream after it is the norm that the head reads (Ouro) */
    bool stack_ends;   /* with decoder_spec.two_stacks and turn_ends: the other stack runs next */
    bool moe;          /* experts instead of the dense MLP */
    /* not 0: activation of the dense MLP or shared expert, and of experts: see spec_act() */
    enum act act, moe_act;
    bool by_id; /* with `moe`: see struct moe */
    bool gated; /* tanh of a stored number multiplies what each sublayer adds */
    /* gates of the dense MLP are cut off at mean + deviations * standard deviation: struct
     * sparsify */
    bool sparse;
    float deviations;
    float mixer_by, ffn_by; /* factors of the sublayers' results; 0: none */
    /* Before the layer the stream is kept in these places, then blended with what is in those:
     * decoder_spec.skip_share. Bits, of KEPT_PLACES. */
    uint8_t keeps, joins;
};
enum { KEPT_PLACES = 2 };

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
    /* not 0: gates of this rank join the streams, see residual_gated.c; nothing below is used, and
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
 * each number (nGPT, arXiv 2410.01131): residual_sphere.c. Norms have no weights and divide by the
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
     * residual_stacks.c. */
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
    uint32_t blend_per;       /* not 0: layers of a block in residual_blended.c; with NORM_BEFORE */
    struct ngram_spec ngrams;
    /* The stream and each sublayer's result are scaled by vectors when they are added, and the
     * embedding is: residual_affine.c. With NORM_BEFORE, both sublayers in each layer */
    bool affine;
    struct sphere_spec sphere; /* with NORM_BEFORE and norm.bare */
    /* Not 0: a stored number of each element balances the stream and what is added to it, divided
     * by this temperature: residual_balanced.c. With NORM_BEFORE */
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
