#include "model-server/model/trigram.h"
#include "model-server/model/decoder_impl.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/taps.h"
#include <stdlib.h>

enum { TOKENS = 3 };

struct trigram {
    struct taps taps; /* [hidden, embed_dim] of the token before, itself and the next */
};

/* The columns of the next token are the first ones. */
static void load_matrix(struct loader *l, struct trigram *g, const float *factors)
{
    const uint32_t in = g->taps.in, out = g->taps.out;
    float *all = loader_floats(l, W_EMBED_PROJECT, NO_LAYER, NO_EXPERT, ".weight", out,
                               TOKENS * (int64_t)in);
    float *of = calloc((size_t)in * out, sizeof(*of));
    if (!of)
        loader_nomem(l);
    for (uint32_t j = 0; of && j < TOKENS && !l->failed; j++) {
        const size_t first = (TOKENS - 1 - j) * (size_t)in;
        for (size_t r = 0; r < out; r++)
            for (size_t c = 0; c < in; c++)
                of[r * in + c] = factors[r] * all[r * TOKENS * in + first + c];
        g->taps.w[j] = loader_host_matrix(l, of, out, in);
    }
    free(all), free(of);
}

static void load_bias(struct loader *l, struct trigram *g, const float *factors)
{
    const uint32_t out = g->taps.out;
    float *of = loader_floats(l, W_EMBED_PROJECT, NO_LAYER, NO_EXPERT, ".bias", out, 1);
    float *summands = loader_floats(l, W_EMBED_NORM, NO_LAYER, NO_EXPERT, ".bias", out, 1);
    for (uint32_t r = 0; r < out && !l->failed; r++)
        of[r] = factors[r] * of[r] + summands[r];
    if (!l->failed)
        g->taps.bias = loader_host_vector(l, of, out);
    free(of), free(summands);
}

/* A row for each position and token type. */
static void load_positions(struct loader *l, const float *factors)
{
    struct decoder *d = l->d;
    const struct decoder_spec *s = &d->spec;
    const size_t n = spec_position_rows(s), width = s->hidden;
    float *places =
        loader_floats(l, W_POSITIONS, NO_LAYER, NO_EXPERT, ".weight", (int64_t)n, (int64_t)width);
    float *types = loader_floats(l, W_TOKEN_TYPES, NO_LAYER, NO_EXPERT, ".weight", s->token_types,
                                 (int64_t)width);
    float *of = calloc(n * s->token_types * width, sizeof(*of));
    if (!of)
        loader_nomem(l);
    for (size_t t = 0; of && t < s->token_types && !l->failed; t++)
        for (size_t i = 0; i < n * width; i++)
            of[t * n * width + i] = factors[i % width] * (places[i] + types[t * width + i % width]);
    if (!l->failed)
        d->positions = loader_host_matrix(l, of, (int64_t)n * s->token_types, (int64_t)width);
    free(places), free(types), free(of);
}

struct trigram *trigram_load(struct loader *l)
{
    const struct decoder_spec *s = &l->d->spec;
    struct trigram *g = calloc(1, sizeof(*g));
    if (!g) {
        loader_nomem(l);
        return NULL;
    }
    g->taps = (struct taps){.n = TOKENS, .in = s->embed_dim, .out = s->hidden};
    float *factors = loader_floats(l, W_EMBED_NORM, NO_LAYER, NO_EXPERT, ".weight", s->hidden, 1);
    if (factors) {
        load_matrix(l, g, factors);
        load_bias(l, g, factors);
        load_positions(l, factors);
    }
    free(factors);
    return g;
}

void trigram_free(struct decoder *d, struct trigram *g)
{
    if (g)
        taps_free(d, &g->taps);
    free(g);
}

int trigram_run(struct decoder *d, struct trigram *g, const struct ragged *b, struct err *e)
{
    struct scratch *s = &d->scratch;
    if (taps_run(d, &g->taps, b, s->x, s->r, s->n, s->embedded, e))
        return -1;
    d->ops->embed_pos(d->dev, s->x, d->positions, d->spec.position_offset);
    return 0;
}
