/* streams.h - several residual streams of a model: parameters of altup(), mix() and blend() of a
 * backend. */
#ifndef MODEL_SERVER_BACKEND_STREAMS_H
#define MODEL_SERVER_BACKEND_STREAMS_H
#include <stdbool.h>
#include <stdint.h>

/* Parallel residual streams (AltUp, arXiv 2301.13310): streams[n][rows][elements], of which a layer
 * computes stream `active`.
 *
 * PREDICT, coefs[rows][n][n]: stream j += the sum over i of coefs[j][i] * stream i, with the
 * streams as they were. Then x = the active stream.
 *
 * CORRECT, coefs[rows][n]: stream j += (1 + coefs[j]) * (x - the active stream as it was). Then
 * x = the active stream.
 *
 * SPREAD: every stream but the first += x. */
enum altup_kind { ALTUP_PREDICT, ALTUP_CORRECT, ALTUP_SPREAD };
enum { ALTUP_MOST = 8 }; /* streams */
struct altup {
    enum altup_kind kind;
    uint32_t n, active;
    float *streams;
    const float *coefs;
};

/* Mixed residual streams (hyper-connections, arXiv 2409.19606): streams[rows][n][elements]. A
 * sublayer reads a weighted sum of them, and its result is added to each, all by factors of the
 * token. factors[rows][mix_factors()]: g = product * scale / r + base with r the root of the mean
 * square of a token's streams plus eps; scale[0], scale[1] and scale[2] are those of the three
 * parts:
 *
 * - n of the sum: sigmoid(g) + floor;
 * - n of the result: magnitude * sigmoid(g) + result_floor;
 * - with `rounds` [n][n], of each stream in each: a softmax of rows plus floor, then Sinkhorn's
 *   scaling to a doubly stochastic matrix (arXiv 2512.24880): columns divided by their sums plus
 *   floor, then rows and columns in turns, `rounds` times columns in all.
 *
 * SPREAD: every stream = x. READ: `factors` has products of the streams; x = the weighted sum, and
 * the factors of the other parts replace their products. WRITE: stream k = the sum over j of the
 * factor [j][k] * stream j (without `rounds` stream k itself), plus the k-th factor of the result *
 * x. MEAN: x = the mean of the streams. ADD: factors[rows][n] are those of the result alone; stream
 * k += the k-th factor * x. */
enum mix_kind { MIX_SPREAD, MIX_READ, MIX_WRITE, MIX_MEAN, MIX_ADD };
enum { MIX_MOST = 8 }; /* streams */
struct mix {
    enum mix_kind kind;
    uint32_t n, rounds;
    bool last; /* READ: only of the sum */
    float *streams, *factors;
    const float *scale, *base;
    float eps, floor, magnitude, result_floor;
};
/* Numbers of a token in `factors`. */
static inline uint32_t mix_factors(const struct mix *p)
{
    return p->last || p->kind == MIX_ADD ? p->n : p->rounds ? p->n * (2 + p->n) : 2 * p->n;
}

/* Rows of a token: rows[T][slots][elements]. SET: row `at` = x. ADD: row `at` += x. READ: x = the
 * sum over i < at of w_i u_i. Here u_i is row i divided by the root of its mean square plus eps.
 * The softmax of the products of `query` [elements] and u_i, divided by the root of elements, is w.
 * With `raw` it is the sum of w_i times row i. */
enum blend_kind { BLEND_SET, BLEND_ADD, BLEND_READ };
enum { BLEND_MOST = 64 }; /* slots */
struct blend {
    enum blend_kind kind;
    uint32_t slots, at;
    float *rows;
    const float *query;
    float eps;
    bool raw;
};
#endif
