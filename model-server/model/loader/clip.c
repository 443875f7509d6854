/* clip.c - the clipping bounds of the inputs and results of matrices. */
#include "model-server/backend/numbers.h"
#include "model-server/model/loader/loader.h"
#include <stdlib.h>

static const char *const ends[] = {".input_min", ".input_max", ".output_min", ".output_max"};
enum { IN_LOW, IN_HIGH, OUT_LOW, OUT_HIGH, ENDS, MOST_PARTS = 3 };

static float bound(struct loader *l, enum role role, int layer, int end)
{
    const struct mat_part p = loader_table(l, role, layer, ends[end], 1, 1);
    const float x = p.data ? number_at(p.data, p.dtype, 0) : 0;
    loader_drop(l);
    return x;
}

/* Repeats by[i] rows[i] times. */
static float *spread(struct loader *l, const float *by, const uint32_t *rows, int n)
{
    uint32_t all = 0, at = 0;
    for (int i = 0; i < n; i++)
        all += rows[i];
    float *host = l->failed ? NULL : malloc((all + (size_t)1) * sizeof(*host));
    if (!host) {
        if (!l->failed)
            loader_nomem(l);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        for (uint32_t k = 0; k < rows[i]; k++)
            host[at++] = by[i];
    float *v = loader_host_vector(l, host, all);
    free(host);
    return v;
}

struct clip loader_clip(struct loader *l, const enum role *roles, const uint32_t *rows, int n,
                        int layer, uint32_t cols)
{
    float at[ENDS][MOST_PARTS] = {0};
    if (!l->c) /* random numbers need no bounds */
        return (struct clip){0};
    for (int i = 0; i < n; i++)
        for (int end = 0; end < ENDS; end++)
            at[end][i] = bound(l, roles[i], layer, end);
    for (int i = 1; i < n && !l->failed; i++)
        if (at[IN_LOW][i] != at[IN_LOW][0] || at[IN_HIGH][i] != at[IN_HIGH][0]) {
            l->failed = true;
            err_set(l->e, ERR_VALIDATION,
                    "layer %d: matrices of one input clip it to %g .. %g and to %g .. %g", layer,
                    (double)at[IN_LOW][0], (double)at[IN_HIGH][0], (double)at[IN_LOW][i],
                    (double)at[IN_HIGH][i]);
        }
    return (struct clip){spread(l, at[IN_LOW], &cols, 1), spread(l, at[IN_HIGH], &cols, 1),
                         spread(l, at[OUT_LOW], rows, n), spread(l, at[OUT_HIGH], rows, n)};
}
