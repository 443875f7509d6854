#include "model-server/quantize/tap.h"
#include "model-server/quantize/linalg.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void before(void *arg, struct mat_part *parts, int n)
{
    struct tap *t = arg;
    for (int i = 0; t->replace && i < n; i++) {
        struct mat_part *p = &parts[i];
        const float *x =
            p->name && p->source == SOURCE_NUMBERS ? t->replace(t->arg, p->name) : NULL;
        if (x)
            p->data = x + p->first, p->dtype = DT_F32;
    }
}

static void after(void *arg, const struct weight *w, const struct mat_part *parts, int n)
{
    struct tap *t = arg;
    if (t->n == t->cap) {
        const uint32_t cap = t->cap ? 2 * t->cap : 64;
        struct tap_input *more = realloc(t->inputs, cap * sizeof(*more));
        if (!more) {
            t->oom = true;
            return;
        }
        t->inputs = more;
        t->cap = cap;
    }
    struct tap_input *in = &t->inputs[t->n++];
    *in = (struct tap_input){.weight = w, .cols = (uint32_t)parts[0].cols};
    for (int i = 0; i < n; i++) {
        bool known = !parts[i].name;
        for (int k = 0; k < in->n_names; k++)
            known |= in->names[k] == parts[i].name;
        if (known || in->n_names == TAP_NAMES)
            continue;
        in->first[in->n_names] = parts[i].first;
        in->names[in->n_names++] = parts[i].name;
    }
}

static bool room(struct tap *t, struct tap_input *in)
{
    const size_t n = in->cols;
    if (t->needs & TAP_SCALES && !in->sum) {
        in->sum = calloc(n, sizeof(float));
        in->most = calloc(n, sizeof(float));
    }
    if (t->needs & TAP_SQUARES && !in->squares)
        in->squares = calloc(n, sizeof(double));
    if (t->needs & TAP_MOMENTS && !in->moments)
        in->moments = calloc(n * n, sizeof(float));
    if (t->needs & TAP_ROWS && !in->sample)
        in->sample = malloc((size_t)TAP_SAMPLE * n * sizeof(float));
    const bool all = (!(t->needs & TAP_SCALES) || (in->sum && in->most)) &&
                     (!(t->needs & TAP_SQUARES) || in->squares) &&
                     (!(t->needs & TAP_MOMENTS) || in->moments) &&
                     (!(t->needs & TAP_ROWS) || in->sample);
    t->oom |= !all;
    return all;
}

static void add(struct tap *t, struct tap_input *in, const float *x, uint32_t rows)
{
    const size_t n = in->cols;
    for (uint32_t r = 0; r < rows; r++) {
        const float *row = x + r * n;
        for (size_t i = 0; in->sum && i < n; i++) {
            in->sum[i] += fabsf(row[i]);
            in->most[i] = fmaxf(in->most[i], fabsf(row[i]));
        }
        for (size_t i = 0; in->squares && i < n; i++)
            in->squares[i] += (double)row[i] * (double)row[i];
        if (in->sample && (in->rows + r) % t->every == 0 && in->n_sample < TAP_SAMPLE)
            memcpy(in->sample + in->n_sample++ * n, row, n * sizeof(float));
    }
    if (in->moments)
        linalg_gram(t->workers, in->moments, x, rows, n);
    in->rows += rows;
}

static void observe(void *arg, const struct weight *w, const float *x, uint32_t rows)
{
    struct tap *t = arg;
    for (uint32_t i = 0; i < t->n && !t->oom; i++)
        if (t->inputs[i].weight == w) {
            if (room(t, &t->inputs[i]))
                add(t, &t->inputs[i], x, rows);
            return;
        }
}

void tap_begin(struct tap *t, struct walk *w)
{
    const struct pack_watch watch = {before, after, t};
    t->every = t->every ? t->every : 1;
    walk_watch(w, &watch);
    t->workers->ops->observe(t->workers->dev, t->needs ? observe : NULL, t);
}

void tap_end(struct tap *t, struct walk *w)
{
    const struct pack_watch none = {0};
    walk_watch(w, &none);
    t->workers->ops->observe(t->workers->dev, NULL, NULL);
    for (uint32_t i = 0; i < t->n; i++) {
        struct tap_input *in = &t->inputs[i];
        free(in->sum), free(in->most), free(in->squares), free(in->moments), free(in->sample);
    }
    free(t->inputs);
    t->inputs = NULL;
    t->n = t->cap = 0;
}

const struct tap_input *tap_find(const struct tap *t, const char *name, uint64_t first)
{
    for (uint32_t i = 0; i < t->n; i++)
        for (int k = 0; k < t->inputs[i].n_names; k++)
            if (t->inputs[i].rows && t->inputs[i].first[k] == first &&
                strcmp(t->inputs[i].names[k], name) == 0)
                return &t->inputs[i];
    return NULL;
}
