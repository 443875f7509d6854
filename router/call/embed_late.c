#include "router/call/embed.h"

static float dot(const float *a, const float *b, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static float late_score(const float *query, uint32_t n_query, const float *document,
                        uint32_t n_document, uint32_t width)
{
    float sum = 0;
    for (uint32_t i = 0; i < n_query; i++) {
        float best = -1;
        for (uint32_t k = 0; k < n_document; k++) {
            const float x = dot(query + (size_t)i * width, document + (size_t)k * width, width);
            best = x > best ? x : best;
        }
        sum += best;
    }
    return sum;
}

float *texts_late_scores(struct call *c, uint32_t n_first, uint32_t n)
{
    const struct embed_job *j = &c->texts->job;
    const float *query = j->values, *document = query;
    float *score = ARENA_NEW(&c->arena, float, n + (size_t)1);
    for (size_t i = 0; i < j->n_values; i += j->width)
        texts_normalize(j->values + i, j->width);
    for (uint32_t i = 0; i < n_first; i++)
        document += (size_t)j->texts[i].n * j->width;
    for (uint32_t i = 0; score && i < n; i++) {
        const uint32_t q = n_first == 1 ? 0 : i, d = n_first + i;
        score[i] = late_score(query, j->texts[q].n, document, j->texts[d].n, j->width);
        document += (size_t)j->texts[d].n * j->width;
        query += n_first == 1 ? 0 : (size_t)j->texts[q].n * j->width;
    }
    return score;
}

void texts_late_prompt(const struct call *c, struct text_input *in, const char *name)
{
    const char *prompt = sentence_prompt(&c->edge->sentence, name);
    in->prompt = prompt ? prompt : "";
}
