/* Similarity of vectors and of lists of vectors (MaxSim). */
#include "router/call/embed.h"

static float dot(const float *a, const float *b, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static float best_cosines(const float *query, uint32_t n_query, const float *document,
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

static uint32_t rows_of(const struct embed_job *j, uint32_t i)
{
    return j->all ? j->texts[i].n : 1;
}

/* Of these, how many before the first vector. */
static uint32_t without_vector(const struct call *c, uint32_t i)
{
    const struct embed_job *j = &c->texts->job;
    const uint32_t first = j->all ? edge_limits(c->edge)->first_row : 0;
    return first < rows_of(j, i) ? first : rows_of(j, i);
}

float *texts_cosines(struct call *c, uint32_t n_first, uint32_t n)
{
    const struct embed_job *j = &c->texts->job;
    const uint32_t width = j->width;
    float *score = ARENA_NEW(&c->arena, float, n + (size_t)1), *row = j->values;
    const float *query = row, *document = row;
    for (uint32_t i = 0; i < n_first + n; i++) {
        for (uint32_t k = 0; k < rows_of(j, i); k++, row += width)
            texts_normalize(row, width);
        document = i + 1 == n_first ? row : document;
    }
    for (uint32_t i = 0; score && i < n; i++) {
        const uint32_t q = n_first == 1 ? 0 : i, d = n_first + i;
        const uint32_t no_q = without_vector(c, q), no_d = without_vector(c, d);
        score[i] = best_cosines(query + (size_t)no_q * width, rows_of(j, q) - no_q,
                                document + (size_t)no_d * width, rows_of(j, d) - no_d, width);
        document += (size_t)rows_of(j, d) * width;
        query += n_first == 1 ? 0 : (size_t)rows_of(j, q) * width;
    }
    return score;
}

void texts_ask_vectors(const struct call *c, struct texts_ask *ask, struct text_input *in,
                       uint32_t n_first)
{
    ask->in = in;
    ask->all = edge_limits(c->edge)->task == TASK_TOKEN_EMBED;
    ask->plain = true;
    for (uint32_t i = 0; ask->all && i < ask->n; i++)
        in[i].prompt = sentence_prompt(&c->edge->sentence, i < n_first ? "query" : "document");
}
