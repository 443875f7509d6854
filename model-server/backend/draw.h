/* draw.h - requests to a backend to sample tokens from logits in its memory.
 *
 * sample_row() (model-server/sample/sample.h) defines the result: the same token, and
 * log-probabilities within 1e-5, whatever other rows there are. */
#ifndef MODEL_SERVER_BACKEND_DRAW_H
#define MODEL_SERVER_BACKEND_DRAW_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct token_count {
    /* counts in the context, and in its generated part; all == 0: an empty entry */
    uint32_t id, all, generated;
};
struct id_list {
    const uint32_t *id;
    size_t n;
};

/* Limits of a device; rows that exceed them are sampled on the host. */
enum {
    DRAW_MOST_TOP = 128,
    DRAW_MOST_BIASES = 1024,
    DRAW_MOST_COUNTS = 1 << 16,
    DRAW_MOST_VOCAB = 1 << 19, /* the weights of this many tokens can be summed without overflow */
};

/* One row. Its pointers are read before draw() returns. */
struct draw {
    bool fetch; /* sample nothing: the host needs the logits */
    bool sample, raw_logprobs;
    float temperature, top_p, min_p, typical_p; /* struct sampling's */
    uint32_t top_k;
    uint64_t seed, position;
    float repetition, frequency, openai_presence, openai_frequency; /* struct penalties' */
    /* the context, in any order, every id once; NULL: no penalty is on */
    const struct token_count *counts;
    uint32_t n_counts, length; /* length: tokens in the context */
    struct id_list forbid[2];  /* -inf before all else */
    const uint32_t *bias_id;   /* an id that occurs twice is added twice */
    const float *bias;
    size_t n_bias;
    const uint32_t *mask; /* bit per token, clear = forbidden; NULL: none */
    uint32_t n_top;       /* requested alternatives */
    uint32_t last;        /* DRAW_KNOWN; else the context lacks its last token, which this row of
                             ragged.drawn samples */
};
#define DRAW_KNOWN UINT32_MAX

enum draw_status { DRAW_DONE, DRAW_NOTHING_ALLOWED, DRAW_NOT_FINITE };
static inline const char *draw_failure(uint32_t status) /* NULL: there is none */
{
    return status == DRAW_DONE              ? NULL
           : status == DRAW_NOTHING_ALLOWED ? "no token is allowed here"
                                            : "the model's scores are not finite numbers";
}
struct drawn {
    uint32_t id;
    float logprob;
    uint32_t status, n_top; /* n_top: number of alternatives, at most the requested number */
};
struct scored {
    uint32_t id;
    float logprob;
};
struct draw_results {
    const struct drawn *v; /* a row each */
    /* those of a row, best first, after the requested numbers of the preceding rows */
    const struct scored *top;
    float *rows; /* [rows with `fetch`][vocab] logits; the caller may modify them */
};

/* Logits after a step, which may be modified. Of one rank, or gathered slices [world][rows][its
 * part of the vocabulary]. Rank r has tokens vocab * r / world up to vocab * (r + 1) / world, and
 * ranks are `stride` elements apart. */
struct logits {
    float *p;
    uint32_t vocab, world;
    size_t stride;
};
#endif
