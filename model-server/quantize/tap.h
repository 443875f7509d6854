/* tap.h - statistics of the inputs of a layer's matrices, by the tensor that each matrix was loaded
 * from.
 *
 * Valid between walk_load() and walk_drop() of a layer. Stacked matrices (q, k and v; gate and up)
 * share their input. */
#ifndef MODEL_SERVER_QUANTIZE_TAP_H
#define MODEL_SERVER_QUANTIZE_TAP_H
#include "model-server/model/walk.h"
#include "model-server/quantize/workers.h"

enum tap_needs {
    TAP_SCALES = 1,  /* sums and maxima of absolute values */
    TAP_SQUARES = 2, /* diagonal of the second moments */
    TAP_MOMENTS = 4, /* all second moments */
    TAP_ROWS = 8     /* a sample of the rows */
};
enum { TAP_SAMPLE = 256, TAP_NAMES = 4 };

struct tap_input {
    const struct weight *weight;
    const char *names[TAP_NAMES]; /* of the checkpoint's tensors; not owned */
    uint64_t first[TAP_NAMES];    /* element of that tensor where the part begins */
    int n_names;
    uint32_t cols;
    uint64_t rows;     /* number of rows so far */
    float *sum, *most; /* [cols] sum and maximum of absolute values */
    double *squares;   /* [cols] sums of squares */
    float *moments;    /* [cols][cols] upper triangle of the sum of x x^T */
    float *sample;     /* [n_sample][cols] evenly spaced rows */
    uint32_t n_sample;
};

struct tap {
    unsigned needs; /* tap_needs */
    uint64_t every; /* distance of sampled rows */
    const struct workers *workers;
    struct tap_input *inputs;
    uint32_t n, cap;
    bool oom;
    /* Returns fp32 numbers that replace a tensor's at load, in its own order, or NULL. `replace`
     * NULL: nothing is replaced. */
    const float *(*replace)(void *arg, const char *name);
    void *arg;
};

/* Observes matrices that the walk loads from now on, and their products. */
void tap_begin(struct tap *t, struct walk *w);
/* Discards all inputs; the walk stays open. */
void tap_end(struct tap *t, struct walk *w);
/* The input of the matrix that begins there in this tensor; NULL: no product used it. */
const struct tap_input *tap_find(const struct tap *t, const char *name, uint64_t first);
#endif
