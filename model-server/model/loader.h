/* loader.h - from the tensors of a checkpoint to matrices on the device.
 *
 * A tensor is found by its role, its type and shape are checked against the spec, parts of it are
 * cut out as strided views, and the backend packs them. The first fault is kept in `e`; from then
 * on every function does nothing and returns something harmless, so that a caller looks at `failed`
 * once. */
#ifndef MODEL_SERVER_MODEL_LOADER_H
#define MODEL_SERVER_MODEL_LOADER_H
#include "model-server/model/decoder.h"

enum { NO_LAYER = -1, NO_EXPERT = -1, MAX_SOURCES = 4 };

struct loader {
    struct decoder *d;
    const struct arch *a;
    const struct checkpoint *c; /* NULL: random weights */
    struct err *e;
    bool failed;
    /* What the matrix at hand is made of, until it is packed (at most q, k and v): tensors whose
     * pages are then let go, so that memory peaks at the packed weights and not at twice that; and
     * copies of those at odd addresses. */
    const struct tensor *tensors[MAX_SOURCES];
    void *copies[MAX_SOURCES];
    struct tensor made[MAX_SOURCES]; /* without a checkpoint: views of `copies` */
    int n_tensors, n_copies;
    int64_t told; /* when the log last heard of progress */
};

void loader_nomem(struct loader *l);
/* After the last matrix. */
void loader_drop(struct loader *l);

/* The checkpoint has a head that is not its embedding, whatever config.json says of them. */
bool loader_own_head(const struct loader *l);

/* The whole matrix [rows, cols] of a role, or its bias [rows] as one column. Valid until packed. */
struct mat_part loader_part(struct loader *l, enum role role, int layer, int expert, bool bias,
                            int64_t rows, int64_t cols);
/* Rows [row, row + rows) and columns [col, col + cols) of a part. */
struct mat_part loader_cut(struct mat_part p, int64_t row, int64_t rows, int64_t col, int64_t cols);
struct mat_part loader_rows(struct mat_part p, uint32_t first, uint32_t n);

/* Parts stacked by rows, as a matrix of `dtype`; or, each of one column, as an fp32 vector with
 * `plus` added. Both end the validity of the parts. NULL after a fault. */
struct weight *loader_pack(struct loader *l, const struct mat_part *parts, int n, enum dtype dtype,
                           enum quant quant);
float *loader_vector(struct loader *l, const struct mat_part *parts, int n, float plus);

/* A whole vector [n]: the ".bias" of a role; the ".weight" of a norm, plus what the spec adds. */
float *loader_bias(struct loader *l, enum role role, int layer, uint32_t n);
float *loader_weight_vector(struct loader *l, enum role role, int layer, uint32_t n);
#endif
