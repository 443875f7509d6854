/* compare.h - differences between rows of logits, summed over a text. Pure.
 *
 * Logits are defined up to a constant per row, so both rows are centred first. Errors are in
 * units of logits (natural log); the divergence is KL(exact || other), in nats. */
#ifndef MODEL_SERVER_QUALITY_COMPARE_H
#define MODEL_SERVER_QUALITY_COMPARE_H
#include <stdint.h>

struct comparison {
    uint64_t rows, predicted; /* predicted: rows whose next token is known */
    uint64_t agreed;          /* rows with the same first choice */
    double nll, other_nll;    /* negative log-likelihood of the next tokens */
    double divergence;
    double squares, error_squares, largest;
};

enum { NO_NEXT = -1 };

/* One position: logits [vocab] of both, and the token that follows in the text, or NO_NEXT. */
void compare_row(struct comparison *c, const float *exact, const float *other, uint32_t vocab,
                 int64_t next);

/* Of the sum of negative log-likelihoods; 0: nothing was predicted. */
double compare_perplexity(double nll, uint64_t predicted);
double compare_error(const struct comparison *c); /* rms of the error / rms of the exact logits */
#endif
