/* From raw numbers of a text to unit vectors and probabilities. */
#include "router/call/embed.h"
#include <math.h>

void texts_normalize(float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    const double norm = sqrt(sum), by = 1 / (norm > 1e-12 ? norm : 1e-12);
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)(x[i] * by);
}

float texts_sigmoid(float x) { return 1 / (1 + expf(-x)); }

void texts_probabilities(const float *logits, uint32_t n, float *out)
{
    float most = logits[0], sum = 0;
    for (uint32_t i = 0; i < n; i++)
        most = logits[i] > most ? logits[i] : most;
    for (uint32_t i = 0; i < n; i++)
        sum += expf(logits[i] - most);
    for (uint32_t i = 0; i < n; i++)
        out[i] = n == 1 ? texts_sigmoid(logits[i]) : expf(logits[i] - most) / sum;
}

void texts_labels(const struct call *c, const float *logits, uint32_t n, float *out)
{
    const enum score_function f = c->edge->sentence.labels;
    if (f == SCORE_USUAL)
        texts_probabilities(logits, n, out);
    for (uint32_t i = 0; f == SCORE_SIGMOID && i < n; i++)
        out[i] = texts_sigmoid(logits[i]);
    for (uint32_t i = 0; f == SCORE_LOGIT && i < n; i++)
        out[i] = logits[i];
}

float texts_score(const struct call *c, float logit, bool raw)
{
    return raw || c->edge->sentence.pairs == SCORE_LOGIT ? logit : texts_sigmoid(logit);
}
