/* mixer_spec.h - sizes of the kinds of mixers that are not plain attention (enum mixer_kind). */
#ifndef MODEL_SERVER_MODEL_MIXER_SPEC_H
#define MODEL_SERVER_MODEL_MIXER_SPEC_H
#include <stdbool.h>
#include <stdint.h>

/* The norm after Mamba-2's recurrence: of the gated result, none, or of the result before the
 * gate. */
enum recur_norm { RECUR_NORM_GATED, RECUR_NORM_NONE, RECUR_NORM_FIRST };

/* Products of the matrix before Mamba-2's recurrence: z, x, B, C and the steps. */
enum { RECUR_PRODUCTS = 5 };

/* The recurrent layers. Mixers with heads: a value head has value_dim elements, and heads /
 * key_heads of them share a key and a query of key_dim (Mamba-2: B and C of a group). MIXER_CONV:
 * `hidden` channels. MIXER_FIXED has no convolution. MIXER_GATED: key_dim 1; each head's matrices
 * of gates read its own values. */
struct recur_spec {
    uint32_t heads, key_heads, key_dim, value_dim;
    uint32_t conv; /* width of the convolution before the recurrence */
    bool grouped;  /* one matrix for all: each key head's q, k, v and z side by side, another for
                      beta and decay (Qwen3-Next) */
    bool joined;   /* one matrix for all: q of all heads, k, v, z, beta, decay */
    /* MIXER_DELTA: q, k and v, and their convolutions, have tensors of their own */
    bool apart;
    /* MIXER_DELTA: each element of a key has a decay, and z's sigmoid is the gate (Kimi Delta
     * Attention, arXiv 2510.26692). Decays and z are made by pairs of matrices of rank `gate_rank`,
     * or by one matrix each if it is 0. decay_floor: see struct recur. */
    bool by_key;
    uint32_t gate_rank;
    bool whole_z; /* with gate_rank: z is made by one matrix (Kimi K3) */
    float decay_floor;
    float beta_scale, gate_eps; /* MIXER_DELTA: factor of beta; of the norm with the gate */
    bool gate_sigmoid;          /* MIXER_DELTA without by_key: z's sigmoid is the gate, not silu */
    bool conv_bias;             /* of the convolution */
    bool proj_bias;             /* biases of the matrices before and after */
    float dt_min, dt_max;
    enum recur_norm norm; /* MIXER_MAMBA2, MIXER_PAIR */
    /* MIXER_MAMBA: rank of the steps' projection; the norm of steps, keys and queries, without
     * weights or with. Its channels are heads of one key head. */
    uint32_t step_rank;
    /* MIXER_MAMBA: not 0: this many recurrences, each of heads * value_dim channels of its own,
     * without proj_bias and scan_norm (Zamba) */
    uint32_t parts;
    /* MIXER_MAMBA: a step, a rate and a skip of each head instead of each channel, as in Mamba-2.
     * In the checkpoint a head's gates stand before its channels, and the steps' rank behind keys
     * and queries. Without `parts`; value_dim at least 2 (PLaMo 2) */
    bool by_head;
    enum scan_norm { SCAN_NORM_NONE, SCAN_NORM_BARE, SCAN_NORM_WEIGHTS } scan_norm;
    float scan_eps;
    /* MIXER_PAIR: factors of the products before the recurrence, in their order; of its result,
     * and of the attention's result. has_factors: some factor of a product is not 1. */
    bool has_factors;
    float factors[RECUR_PRODUCTS], out_scale, attn_out_scale;
};
/* True if z is made by a pair of matrices. */
static inline bool recur_z_pair(const struct recur_spec *r) { return r->gate_rank && !r->whole_z; }

/* MIXER_RWKV: ranks of the pairs of matrices that make decays, rates, what values take of the first
 * layer's, and the gate; epsilon of the norm of a head's result. Sizes of heads are in recur_spec.
 * The feed-forward reads a mix of its input and that of the token before, too. */
struct rwkv_spec {
    uint32_t decay, rate, blend, gate; /* decay 0: no such layers */
    float eps;
};

/* Blocks that layers of MIXER_SHARED share. q, k and v read the stream and the embedding side by
 * side, with one norm. With `rank`, a layer's own pair of matrices is added to gate over up, and
 * with `qkv` one to each of q, k and v. */
struct shared_spec {
    uint32_t blocks; /* 0: none */
    uint32_t rank;
    bool qkv;
};

/* MIXER_NARROW: a matrix makes `width` numbers of the stream, in which attention and `ffns`
 * feed-forwards work, and another one makes the stream again. Instead of norms, sums have factors
 * and summands. q and k are made of another product of that width, v of the stream. */
struct narrow_spec {
    uint32_t width, ffns; /* width 0: no such layers */
};

/* MIXER_RELATIVE: distances beyond `reach` have its vectors. Vectors are sines and cosines, which a
 * matrix of each layer projects. */
struct relative_spec {
    uint32_t reach; /* 0: no such layers */
};

/* MIXER_SPAN_CONV: a convolution of `taps` tokens, an odd number, for each head of attention, as
 * wide as it. */
struct span_conv_spec {
    uint32_t taps; /* 0: no such layers */
};

/* MIXER_VALUE_CONV: a number for each head and each of `taps` tokens, an odd number. */
struct value_conv_spec {
    uint32_t taps; /* 0: no such layers */
};

/* Latent attention (arXiv 2405.04434): sizes of the parts of a head. */
struct mla_spec {
    uint32_t q_rank;  /* rank of q's low-rank pair; 0: one matrix */
    uint32_t kv_rank; /* width of the latent of keys and values */
    /* per head: width of q and k without and with rotation, which may be 0; width of v */
    uint32_t nope, rope, v;
    float eps;      /* of the two norms */
    bool turn_norm; /* the rotated part of a key is RMS-normalised, before it turns */
    float kv_scale; /* final factor of the latent of keys and values; 0: none */
    /* q's second matrix reads q's latent after its norm and before it, side by side. It has rows
     * of each head's gate (ATTN_GATE_APART) after those of its query (A.X K2) */
    bool gate_beside;
    /* The indexer of sparse attention: see struct select_keys. It reads q's input. top 0: none. */
    struct index_spec {
        uint32_t heads, dim, top;
        bool interleaved;
        bool rope_last; /* its last numbers are rotated, not its first */
        /* not 0: it selects top - 1 complete pools of this many positions, by keys of pools, and
         * the pool that is not complete (GLM-5.3). Without a rotation. */
        uint32_t pool;
        float eps;     /* of the norm of its keys */
        bool own_norm; /* its queries read the layer's input after a layer norm of their own */
    } index;
};

/* MIXER_CCA: widths in tokens of the convolution of each channel, and of that of the channels of
 * each head; their sum is at most CONV_MOST + 1. */
struct cca_spec {
    uint32_t first, second;
};

/* MIXER_PROFILES: a matrix makes `dim` numbers of each head, and a bank of as many rows makes these
 * a bias for each distance below layer_spec.profiles. */
struct profile_spec {
    uint32_t dim; /* 0: no such layers */
    /* Not 0: the most length of a head of q, which has stored factors first, and of k; and of the
     * numbers of a head, with factors, too. Tokens make a sink for each head (Inkling 2). */
    float clip, mix_clip;
};

/* MIXER_ENTRIES: all heads share one key for each token, which is also the value. The last `rope`
 * numbers rotate, and those of the result back. Each of `groups` groups of heads has a matrix of
 * its own to o_rank numbers, and one matrix makes the result of all. */
struct entries_spec {
    uint32_t q_rank; /* 0: no such layers */
    uint32_t rope, groups, o_rank;
    uint32_t index_heads, index_dim,
        index_top; /* of indexers, whose weights are as in index_spec */
};

/* Block-sparse attention of layers that say so (MiniMax M3): an indexer with keys of `dim` numbers,
 * and a query for each key-value head, selects `top` blocks of `block` positions. See struct
 * select_keys. top 0: none. With as many selections as key-value heads; not with MIXER_MLA.
 *
 * With `heads` (Qwen4-Exp) so many queries select for all key-value heads: top - 1 complete blocks,
 * by the norms of the means of their keys, rotated as the block's first token, and the block that
 * is not complete. */
struct block_spec {
    uint32_t dim, block, top, local, heads;
};
#endif
