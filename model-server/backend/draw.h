/* draw.h - how a backend is asked to choose tokens from the logits that lie in its memory.
 *
 * The meaning is sample_row()'s (model-server/sample/sample.h): the same token, log-probabilities
 * within 1e-5, whatever else is drawn beside it. */
#ifndef MODEL_SERVER_BACKEND_DRAW_H
#define MODEL_SERVER_BACKEND_DRAW_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct token_count {
    uint32_t id, all, generated; /* in the context, of which generated; all == 0: an empty place */
};
struct id_list {
    const uint32_t *id;
    size_t n;
};

/* What a device takes of each; rows that ask for more are chosen on the host. */
enum {
    DRAW_MOST_TOP = 128,
    DRAW_MOST_BIASES = 1024,
    DRAW_MOST_COUNTS = 1 << 16,
    DRAW_MOST_VOCAB = 1 << 19, /* so many weights are summed up without overflow */
};

/* One row. What it points to is read before draw() returns. */
struct draw {
    bool fetch; /* choose nothing: the host wants the logits */
    bool sample, raw_logprobs;
    float temperature, top_p, min_p, typical_p; /* struct sampling's */
    uint32_t top_k;
    uint64_t seed, position;
    float repetition, frequency, openai_presence, openai_frequency; /* struct penalties' */
    const struct token_count *counts; /* the context, in any order, every id once; NULL: no penalty
                                         is on */
    uint32_t n_counts, length;        /* length: tokens in the context */
    struct id_list forbid[2];         /* -inf before all else */
    const uint32_t *bias_id;          /* with the same id twice, added twice */
    const float *bias;
    size_t n_bias;
    const uint32_t *mask; /* bit per token, clear = forbidden; NULL: none */
    uint32_t n_top;       /* alternatives that are wanted */
    uint32_t last; /* DRAW_KNOWN; else the context lacks its last token, which is the one that
                      this row of ragged.drawn chose */
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
    uint32_t status, n_top; /* n_top: how many there are; no more than wanted */
};
struct scored {
    uint32_t id;
    float logprob;
};
struct draw_results {
    const struct drawn *v;    /* a row each */
    const struct scored *top; /* those of a row, best first, behind as many as the rows before it
                                 wanted */
    float *rows;              /* [those with `fetch`][vocab] logits; the caller's to change */
};

/* Logits as they lie after a step, to be used up: of one rank, or gathered slices [world][rows][its
 * part of the vocabulary], where rank r has tokens vocab * r / world up to vocab * (r + 1) / world,
 * and `stride` elements lie from rank to rank. */
struct logits {
    float *p;
    uint32_t vocab, world;
    size_t stride;
};
#endif
