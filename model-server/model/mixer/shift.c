#include "model-server/model/mixer/shift.h"
#include "model-server/backend/numbers.h"
#include <stdlib.h>

/* The weights of a mix: what it takes of the token before, and of its own. */
static void add_mix(float *to, struct mat_part p, uint32_t n, size_t row)
{
    for (uint32_t i = 0; i < n; i++) {
        to[i] = p.data ? number_at(p.data, p.dtype, (int64_t)(row * n + i)) : 0;
        to[n + i] = 1 - to[i];
    }
}

static void add_mixes(struct loader *l, float *to, int layer, const struct mix_name *names,
                      uint32_t n)
{
    const uint32_t hidden = l->d->spec.hidden;
    struct mat_part all = {0};
    const bool joined = n > 1 && loader_has_named(l, W_SHIFT_ALL, layer);
    if (joined)
        all = loader_table(l, W_SHIFT_ALL, layer, "", n, hidden);
    for (uint32_t i = 0; i < n; i++) {
        const struct mat_part p =
            joined ? all : loader_table(l, names[i].role, layer, "", hidden, 1);
        add_mix(to + (size_t)i * 2 * hidden, p, hidden, joined ? names[i].row : 0);
        if (!joined || i + 1 == n)
            loader_drop(l);
    }
}

void token_shift_load(struct loader *l, struct token_shift *y, int layer,
                      const struct mix_name *names, uint32_t n)
{
    const uint32_t hidden = l->d->spec.hidden;
    float *host = malloc((size_t)n * 2 * hidden * sizeof(*host));
    if (!host) {
        loader_nomem(l);
        return;
    }
    add_mixes(l, host, layer, names, n);
    y->conv = (struct conv){.channels = hidden, .width = 2, .sums = n};
    y->conv.w = loader_host_vector(l, host, n * 2 * hidden);
    y->at = layer_take_state(l->d, l->d->ops->conv_floats(&y->conv));
    free(host);
}

void token_shift_free(struct decoder *d, struct token_shift *y)
{
    d->ops->free(d->dev, (void *)(uintptr_t)y->conv.w);
}

void token_shift_run(struct decoder *d, const struct token_shift *y, float *out, const float *in)
{
    const struct state_ref state = layer_state(d, y->at);
    d->ops->conv(d->dev, out, in, d->spec.hidden, &state, &y->conv);
}
