/* layer_spec.h - a layer of a decoder_spec as data: its mixer, its feed-forward, where its norms
 * are, and what it shares with other layers. */
#ifndef MODEL_SERVER_MODEL_LAYER_SPEC_H
#define MODEL_SERVER_MODEL_LAYER_SPEC_H
#include "model-server/backend/backend.h"
#include <stdbool.h>
#include <stdint.h>

enum { SPEC_MAX_LAYERS = 512, SPEC_MAX_ROPES = 5, SPEC_WORD = 32 };
enum { SPEC_NO_ROPE = SPEC_MAX_ROPES - 1 }; /* always of kind ROPE_NONE */

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
 * decoder/load.c. MIXER_NONE: the layer is only a feed-forward. */
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
#endif
