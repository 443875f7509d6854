#include "router/request/answer.h"
#include <math.h>

const char *gen_finish_name(enum gen_finish f)
{
    static const char *const names[] = {"length", "eos_token", "stop_sequence"};
    return names[f];
}

void answer_token(struct answer *a, const struct gen_event *ev)
{
    a->n_tokens++;
    if (!isnan(ev->token.logprob))
        a->logprob_sum += (double)ev->token.logprob;
    if (!ev->end)
        return;
    a->ended = true;
    a->finish = ev->end->finish;
    a->generated_tokens = ev->end->generated_tokens;
    buf_add(&a->text, ev->end->text, ev->end->text_len);
}

double answer_mean_logprob(const struct answer *a)
{
    return a->n_tokens ? a->logprob_sum / a->n_tokens : -INFINITY;
}

void answer_free(struct answer *a) { buf_free(&a->text); }

void answer_rank(const struct answer *(*at)(void *arg, uint32_t i), void *arg, uint32_t n,
                 uint32_t *out)
{
    for (uint32_t i = 0; i < n; i++) { /* insertion sort: few elements, stable */
        double mean = answer_mean_logprob(at(arg, i));
        uint32_t k = i;
        for (; k > 0 && answer_mean_logprob(at(arg, out[k - 1])) < mean; k--)
            out[k] = out[k - 1];
        out[k] = i;
    }
}

uint32_t answer_best(const struct answer *(*at)(void *arg, uint32_t i), void *arg, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (answer_mean_logprob(at(arg, i)) > answer_mean_logprob(at(arg, best)))
            best = i;
    return best;
}
