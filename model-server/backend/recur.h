/* recur.h - recurrent layers: parameters of conv(), recur() and gate_norm() of a backend.
 *
 * Sequences carry a state from token to token. A cell has the state of all recurrent layers of one
 * sequence: `stride` floats from alloc(). Each token is one exact step, so that no cut of a prompt
 * changes a bit. */
#ifndef MODEL_SERVER_BACKEND_RECUR_H
#define MODEL_SERVER_BACKEND_RECUR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A layer's part of the cells: element i of cell c is base[c * stride + i]. The layout is the
 * backend's own. */
struct state_ref {
    float *base;
    size_t stride;
};

enum { CONV_MOST = 8 }; /* largest width of a convolution, in tokens */

/* Depthwise convolution: y[t][c] = sum over j < width of w[j][c] * x[t - dilation * (width - 1 -
 * j)][c], plus a bias, within a sequence; zeros precede the first token. */
struct conv {
    uint32_t channels, width; /* 2 .. CONV_MOST */
    uint32_t dilation;        /* tokens from one input to the next; 0: 1 */
    const float *w;           /* [width][channels] */
    const float *bias;        /* [channels] or NULL */
    bool silu;                /* y = silu(y) */
    /* More than 1: so many results of the same inputs, y is [sums][tokens][channels] and w
     * [sums][width][channels], without a bias. */
    uint32_t sums;
    /* Numbers that tokens add to the weights of each group of `each` channels, [T][channels / each]
     * [width], the latest token first: w[j][c] + by[t][c / each][width - 1 - j]. NULL: none. Not
     * with `sums`. */
    const float *by;
    uint32_t each;
};
/* Earlier tokens that a token reads: their inputs are in a cell, [conv_before()][channels]. */
static inline uint32_t conv_before(const struct conv *p)
{
    return (p->width - 1) * (p->dilation ? p->dilation : 1);
}

/* Update of a head's state S [key_dim][value_dim] with a token's key k, query q and value v:
 *   DELTA  g = exp(-exp(a_log) softplus(step + dt_bias)), b = sigmoid(beta); k and q are normalised
 *          to length 1, q is divided by the root of key_dim (Gated DeltaNet, arXiv 2412.06464):
 *          S = g S + k (b (v - g S^T k))^T. beta_scale multiplies b. With `by_key` each element of
 *          a key has a step, and so each row of S a decay (Kimi Delta Attention, arXiv 2510.26692).
 *          With `floor` g = exp(floor sigmoid(exp(a_log) (step + dt_bias))), above exp(floor)
 *   SSM    d = softplus(step + dt_bias) within dt_min .. dt_max, g = exp(-exp(a_log) d) (Mamba-2,
 *          arXiv 2405.21060): S = g S + k (d v)^T
 *   SCAN   each value has a step of its own, each number of the state a decay: d[j] = softplus(step
 *          + dt_bias), g[i][j] = exp(rates[i][j] d[j]) (Mamba, arXiv 2312.00752): S[i][j] = g[i][j]
 *          S[i][j] + k[i] d[j] v[j]
 *   FIXED  g = exp(-exp(a_log)) (lightning attention, arXiv 2401.04658): S = g S + k v^T
 * The result is S^T q, plus skip * v.
 *   GATED  one number for each value, without keys and queries (RG-LRU, arXiv 2402.19427): with
 *          l = rates sigmoid(step + dt_bias) and u = v sigmoid(beta + beta_bias),
 *          S = exp(l) S + sqrt(1 - exp(2 l)) u, and u after the first token. The result is S
 *   RWKV   each element of a key has a decay g = exp(-exp(-1/2) sigmoid(step + dt_bias)) and a rate
 *          a = sigmoid(beta + beta_bias) (RWKV-7, arXiv 2503.14456). With the vectors of struct
 *          rwkv, u is k * erase with length 1, and k is multiplied by 1 + (a - 1) * replace:
 *          S = g S - (a u) (u^T S) + k v^T. The result has a norm, a bonus and a gate: struct rwkv
 */
enum recur_kind { RECUR_DELTA, RECUR_SSM, RECUR_SCAN, RECUR_FIXED, RECUR_GATED, RECUR_RWKV };

/* What RECUR_RWKV has besides: vectors are [heads * key_dim], and rows as long. v moves towards
 * `first` by the share sigmoid(blend + blend_bias). A head's result y is norm(y), a layer norm,
 * plus v times the sum of q k bonus; then it is multiplied by `gate`. Queries are the paper's
 * receptance r. */
struct rwkv {
    const float *erase, *replace, *bonus;
    const float *first, *blend, *blend_bias; /* NULL, all three: v stays as it is */
    const float *norm, *norm_bias, *gate;
    float eps;
};
struct recur {
    enum recur_kind kind;
    uint32_t heads, key_heads; /* heads / key_heads adjacent heads share a key and a query */
    uint32_t key_dim, value_dim;
    /* Rows of x; queries, keys and values begin at these elements. DELTA: undefined values of
     * queries and keys afterwards; RWKV: keys and values as they were used. */
    float *x;
    uint32_t x_stride, q, k, v; /* RWKV: areas of rows, so that these exceed x_stride */
    const float *kq; /* SCAN: rows of a key and a query beside it, instead of those in x */
    /* Rows of [heads], `step_stride` elements apart; beta of DELTA alone. SCAN: [heads *
     * value_dim], as dt_bias, skip (which it has) and work are. FIXED has neither. GATED and RWKV:
     * both, and their biases, are [heads * value_dim]. */
    const float *step, *beta;
    uint32_t step_stride, beta_stride;
    float beta_scale;             /* DELTA */
    float floor;                  /* DELTA: of the decays' logarithms, below 0; 0: none */
    bool by_key;                  /* DELTA: rows of step and dt_bias are [heads * key_dim] */
    const float *a_log, *dt_bias; /* [heads] */
    const float *rates;           /* SCAN, instead of a_log: [heads][key_dim][value_dim]; GATED:
                                     [heads * value_dim], below 0 */
    const float *beta_bias;       /* GATED, RWKV */
    const float *skip;            /* [heads] or NULL */
    float dt_min, dt_max;
    const struct rwkv *rwkv; /* RWKV */
    float *work;             /* [rows][recur_work()]; GATED: NULL */
};
/* Floats of struct recur.work for each row. */
static inline uint32_t recur_work(const struct recur *p)
{
    return p->kind == RECUR_SCAN   ? p->heads * p->value_dim
           : p->kind == RECUR_RWKV ? p->heads * 3 * p->key_dim
                                   : p->heads * (p->by_key ? p->key_dim + 1 : 2);
}

/* Multiplies rows by a function of other rows, and normalises: Mamba-2 gates first, Gated
 * DeltaNet normalises first. */
enum gate_kind { GATE_NONE, GATE_PRODUCT, GATE_SIGMOID, GATE_SILU, GATE_GELU_TANH };
struct gate_norm {
    enum gate_kind kind;
    const float *gate; /* rows `stride` elements apart */
    uint32_t stride;
    /* RMS norm of each `group` elements, with weights w [n]. NULL: none. With `squares` the group
     * is the whole row over all ranks. Its sum of squares is squares[row * SQUARES + column], of
     * `all` elements. */
    const float *w;
    uint32_t group;
    float eps;
    bool norm_first;
    const float *squares;
    uint32_t column, all;
};
#endif
