#include "router/scheduler/pace.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_TOKENS = 16, /* minimum prompt tokens in a step: fewer cost nearly as much */
    MOST_STEP = 100000,
    UNKNOWN_TOKENS = 64, /* while nothing is known */
    KNOWN_DECODES = 8,   /* steps that make a reliable median */
    KNOWN_PROMPTS = 3,
    MAX_PAIRS = PACE_DECODES * (PACE_DECODES - 1) / 2,
};
/* lower bound for the cost of a token */
#define LEAST_SECONDS 1e-9

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, uint32_t n)
{
    assert(n > 0);
    qsort(v, n, sizeof(*v), ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static double no_less(double x, double least) { return x > least ? x : least; }

/* Theil-Sen: the median slope over all pairs, then the median residual. If all steps had the same
 * number of rows, the slope keeps its value. */
static void fit_decode(struct pace *p)
{
    double slope[MAX_PAIRS], rest[PACE_DECODES];
    uint32_t n = p->n_decode < PACE_DECODES ? p->n_decode : PACE_DECODES, pairs = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < i; k++) {
            double rows = p->decode[i].rows - p->decode[k].rows;
            if (rows != 0)
                slope[pairs++] = (p->decode[i].seconds - p->decode[k].seconds) / rows;
        }
    if (pairs > 0)
        p->b = no_less(median(slope, pairs), 0);
    for (uint32_t i = 0; i < n; i++)
        rest[i] = p->decode[i].seconds - p->b * p->decode[i].rows;
    p->a = no_less(median(rest, n), 0);
}

static void fit_prompt(struct pace *p)
{
    double v[PACE_PROMPTS];
    uint32_t n = p->n_prompt < PACE_PROMPTS ? p->n_prompt : PACE_PROMPTS;
    memcpy(v, p->prompt, n * sizeof(*v));
    p->c = no_less(median(v, n), LEAST_SECONDS);
}

double pace_of(const struct pace *p, uint32_t rows) { return p->n_decode ? p->a + p->b * rows : 0; }

void pace_note(struct pace *p, uint32_t rows, uint32_t tokens, double seconds)
{
    if (seconds <= 0)
        return;
    if (tokens == 0 && rows > 0) {
        uint32_t i = p->n_decode++ % PACE_DECODES;
        p->decode[i].rows = rows;
        p->decode[i].seconds = seconds;
        fit_decode(p);
    } else if (tokens >= LEAST_TOKENS) {
        double added = (seconds - pace_of(p, rows)) / tokens;
        p->prompt[p->n_prompt++ % PACE_PROMPTS] = no_less(added, 0);
        fit_prompt(p);
    }
}

bool pace_knows_prompts(const struct pace *p) { return p->n_prompt >= KNOWN_PROMPTS; }

double pace_patience(const struct pace *p, uint32_t rows, uint32_t tokens)
{
    if (p->n_decode < KNOWN_DECODES || (tokens > 0 && p->n_prompt < KNOWN_PROMPTS))
        return 0;
    return no_less(PACE_HANGS * (pace_of(p, rows) + p->c * tokens), PACE_HANGS_LEAST);
}

uint32_t pace_step(const struct pace *p)
{
    double n = p->n_decode && p->n_prompt ? p->a / p->c : 0;
    return n < MOST_STEP ? (uint32_t)n : MOST_STEP;
}

/* Prompt tokens that take `seconds`. */
static uint32_t tokens_in(const struct pace *p, double seconds, uint32_t most)
{
    assert(!p->n_prompt || p->c > 0);
    const double n = no_less(p->n_prompt ? seconds / p->c : UNKNOWN_TOKENS, LEAST_TOKENS);
    return n < most ? (uint32_t)n : most;
}

uint32_t pace_budget(const struct pace *p, uint32_t rows, double target, uint32_t most)
{
    if (rows == 0 || target <= 0)
        return most;
    const double without = pace_of(p, rows);
    return tokens_in(p, no_less(target, 2 * without) - without, most);
}

/* Share of the added time that prompts get. The rest is for steps that take longer than expected.
 */
#define FACTOR_SHARE 0.7

uint32_t pace_budget_factor(const struct pace *p, uint32_t rows, double factor, uint32_t most)
{
    if (rows == 0 || factor <= 1 || p->n_decode == 0)
        return most;
    return tokens_in(p, FACTOR_SHARE * (factor - 1) * pace_of(p, rows), most);
}

/* Share of a step's duration without images that images may add. With the step's own duration and
 * its variation the sum stays below twice as long. */
#define ENCODE_SHARE 0.7

void encode_note(struct encode_pace *p, uint64_t done, double seconds)
{
    if (done == 0 || seconds <= 0)
        return;
    const double rate = (double)done / seconds;
    p->rate = p->rate > 0 ? 0.7 * p->rate + 0.3 * rate : rate;
}

uint64_t encode_budget(const struct encode_pace *e, const struct pace *p, uint32_t rows,
                       double idle)
{
    const double seconds = rows ? ENCODE_SHARE * pace_of(p, rows) : idle;
    if (rows == 0 && (idle <= 0 || e->rate <= 0))
        return 0;
    return seconds * e->rate >= 1 ? (uint64_t)(seconds * e->rate) : 1;
}
