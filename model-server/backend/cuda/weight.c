/* weight.c - loads matrices from the checkpoint to the device: rows unchanged or quantised,
 * padded with zeros so that every 16-byte piece is aligned and a product needs no tail; then the
 * scales. */
#include "model-server/backend/cuda/cuda.h"
#include "model-server/backend/numbers.h"
#include "model-server/backend/random_tensor.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct packing {
    struct device *d;
    const struct mat_desc *m;
    const struct weight *w;
    size_t bytes;   /* of a row */
    char *scales;   /* on the host; NULL: not quantised */
    float *scratch; /* scratch_floats() for each thread */
    char *dst;
    size_t first;
};

/* A row and the same in 8 bits: see cuda_quantise_row(). */
static size_t scratch_floats(const struct stored *w)
{
    size_t padded = k_padded(w->cols, w->quant);
    return padded + padded / 4;
}

/* Row `row` of the stacked parts. */
static const struct mat_part *part_of(const struct mat_desc *m, int64_t *row)
{
    const struct mat_part *p = m->parts;
    for (; *row >= p->rows; p++)
        *row -= p->rows;
    return p;
}

static void convert_row(void *dst, const struct mat_part *p, int64_t row, enum dtype to)
{
    for (int64_t k = 0; k < p->cols; k++) {
        float f = number_at(p->data, p->dtype, row * p->row_stride + k * p->col_stride);
        if (to == DT_F32)
            ((float *)dst)[k] = f;
        else
            ((uint16_t *)dst)[k] = to == DT_F16 ? f16_of_f32(f) : bf16_of_f32(f);
    }
}

static void plain_row(const struct packing *j, char *dst, const struct mat_part *p, int64_t row)
{
    const enum dtype to = (enum dtype)j->w->m.dtype;
    const size_t size = dtype_size(to), used = j->w->m.cols * size;
    if (p->dtype == to && p->col_stride == 1)
        memcpy(dst, (const char *)p->data + row * p->row_stride * (int64_t)size, used);
    else
        convert_row(dst, p, row, to);
    memset(dst + used, 0, j->bytes - used);
}

static void fill_range(void *arg, int thread, size_t begin, size_t end)
{
    const struct packing *j = arg;
    for (size_t i = begin; i < end; i++) {
        int64_t row = (int64_t)(j->first + i);
        const struct mat_part *p = part_of(j->m, &row);
        char *dst = j->dst + i * j->bytes;
        if (p->source == SOURCE_CODES && p->codes->format.element == ELEMENT_E4M3) {
            cuda_e4m3_row(&j->w->m, dst, j->scales, (uint32_t)(j->first + i), p->codes,
                          (size_t)row);
            continue;
        }
        if (p->source == SOURCE_CODES) {
            cuda_codes_row(&j->w->m, dst, j->scales, (uint32_t)(j->first + i), p->codes,
                           (size_t)row);
            continue;
        }
        if (!j->scales) {
            plain_row(j, dst, p, row);
            continue;
        }
        float *f = j->scratch + (size_t)thread * scratch_floats(&j->w->m);
        convert_row(f, p, row, DT_F32);
        const size_t groups = ((size_t)p->cols + INT4_GROUP - 1) / INT4_GROUP;
        cuda_quantise_row(&j->d->round, &j->w->m, dst, j->scales, (uint32_t)(j->first + i), f,
                          p->scales ? p->scales + (size_t)row * groups : NULL);
    }
}

static void fill_rows(void *arg, char *dst, size_t first, size_t n)
{
    struct packing *j = arg;
    j->dst = dst, j->first = first;
    pool_run(j->d->pool, fill_range, j, n, 16);
}

/* Allocates host memory for the scales of a quantised matrix, and for the threads that compute
 * them. */
static int take_scratch(struct packing *j, struct err *e)
{
    const struct stored *m = &j->w->m;
    if (m->quant == QUANT_NONE)
        return 0;
    assert(m->rows && m->cols);
    size_t threads = (size_t)pool_threads(j->d->pool);
    j->scratch = malloc(threads * scratch_floats(m) * sizeof(float));
    j->scales = calloc(1, scales_bytes(m));
    return j->scratch && j->scales ? 0 : err_nomem(e);
}

/* All parts where they belong. */
static void make_random(struct device *d, const struct mat_desc *m, const struct weight *w)
{
    const size_t pitch_bytes = row_bytes(w->m.cols, w->m.dtype, QUANT_NONE);
    char *at = (char *)(uintptr_t)w->m.data;
    for (int i = 0; i < m->n_parts; i++) {
        const struct mat_part *p = &m->parts[i];
        struct random_args a = {.w = at,
                                .first = p->first,
                                .row_stride = p->row_stride,
                                .col_stride = p->col_stride,
                                .rows = (uint32_t)p->rows,
                                .cols = w->m.cols,
                                .pitch = k_padded(w->m.cols, QUANT_NONE),
                                .dtype = w->m.dtype,
                                .seed = p->random->seed,
                                .mean = p->random->mean,
                                .spread = p->random->spread};
        if (a.rows)
            RECORD(d, random_launch, a);
        at += (size_t)p->rows * pitch_bytes;
    }
    cuda_flush(d, false);
}

static int fill(struct device *d, const struct mat_desc *desc, struct weight *w, struct err *e)
{
    const struct stored *m = &w->m;
    if (desc->parts[0].source == SOURCE_RANDOM) { /* never to be quantised */
        make_random(d, desc, w);
        return cuda_sync(d, "making random weights", e);
    }
    struct packing j = {.d = d, .m = desc, .w = w};
    char *data = (char *)(uintptr_t)m->data;
    j.bytes = row_bytes(m->cols, m->dtype, m->quant);
    int rc = take_scratch(&j, e);
    if (rc == 0)
        rc = cuda_upload_rows(d, data, m->rows, j.bytes, fill_rows, &j, e);
    if (rc == 0 && j.scales)
        rc = cuda_upload(d, data + scales_at(m->rows, m->cols, m->quant), j.scales, scales_bytes(m),
                         e);
    free(j.scales), free(j.scratch);
    return rc;
}

static int check_shape(const struct mat_desc *m, int64_t *rows, struct err *e)
{
    *rows = 0;
    for (int i = 0; i < m->n_parts; i++) {
        const struct mat_part *p = &m->parts[i];
        if (p->rows < 0 || p->cols < 1 || p->cols != m->parts[0].cols)
            return err_set(e, ERR_VALIDATION, "part %d of a weight is %lld x %lld", i,
                           (long long)p->rows, (long long)p->cols);
        if (p->rows > INT32_MAX || p->cols > INT32_MAX || (*rows += p->rows) > INT32_MAX)
            return err_set(e, ERR_VALIDATION, "a weight of more than 2^31 rows or columns");
    }
    if ((m->quant || m->parts[0].source == SOURCE_CODES) && m->parts[0].cols > QUANT_MAX_COLS)
        return err_set(e, ERR_VALIDATION, "a weight of %lld columns: at most %d are quantised",
                       (long long)m->parts[0].cols, QUANT_MAX_COLS);
    return *rows ? 0 : err_set(e, ERR_VALIDATION, "a weight without rows");
}

static const char *const types[DT_N] = {"float32", "float16", "bfloat16"};
static const char *const layouts[LAYOUT_N] = {
    "",     "int8",   "w8a8",         "int4", "fp8", "4 bits", "4 bits, looked up",
    "e2m1", "8 bits", "fp8 of blocks"};

struct weight *cuda_weight_load(struct device *d, const struct mat_desc *m, struct err *e)
{
    int64_t rows;
    char what[96];
    if (check_shape(m, &rows, e))
        return NULL;
    if ((unsigned)m->quant >= QUANT_N || (unsigned)m->dtype >= DT_N)
        return err_set(e, ERR_VALIDATION, "a weight of an unknown type"), NULL;
    struct weight *w = calloc(1, sizeof(*w));
    if (!w)
        return err_nomem(e), NULL;
    w->m = (struct stored){.rows = (uint32_t)rows,
                           .cols = (uint32_t)m->parts[0].cols,
                           .dtype = m->dtype,
                           .quant = m->quant};
    if (m->parts[0].source == SOURCE_CODES)
        cuda_codes_layout(&w->m, m->parts, m->n_parts);
    if (w->m.quant && m->dtype == DT_F32 && !(is_packed(w->m.quant) && m->arith == ARITH_EXACT))
        w->m.dtype = DT_BF16;
    w->bytes = w->m.rows * row_bytes(w->m.cols, w->m.dtype, w->m.quant) + scales_bytes(&w->m);
    snprintf(what, sizeof(what), "a weight of %u x %u %s", w->m.rows, w->m.cols,
             w->m.quant ? layouts[w->m.quant] : types[m->dtype]);
    w->m.data = cuda_take(d, w->bytes, what, "spread the model with --num-shard", e);
    if (!w->m.data || fill(d, m, w, e)) {
        cuda_weight_free(d, w);
        return NULL;
    }
    return w;
}

enum take cuda_weight_takes(const struct format *f, enum arith a)
{
    const bool made = !f->block || f->scale == SCALE_BF16; /* by --quantize */
    if (!made)
        return cuda_codes_take(f, a);
    return a == ARITH_INT8 && f->element == ELEMENT_E4M3 ? TAKE_NO : TAKE_NATIVE;
}

void cuda_weight_free(struct device *d, struct weight *w)
{
    if (!w)
        return;
    moe_forget(d, w);
    cudaFree((void *)(uintptr_t)w->m.data); /* waits for what uses it */
    free(w);
}

uint64_t cuda_weight_bytes(const struct weight *w) { return w->bytes; }

float *cuda_vector_load(struct device *d, const struct mat_part *v, float plus, struct err *e)
{
    int64_t n = v->rows * v->cols;
    float *host = malloc((size_t)(n ? n : 1) * sizeof(*host)), *dev = NULL;
    if (!host)
        return err_nomem(e), NULL;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / v->cols * v->row_stride + i % v->cols * v->col_stride;
        host[i] = number_at(v->data, v->dtype, at) + plus;
    }
    dev =
        cuda_take(d, (size_t)n * sizeof(*dev), "a vector", "spread the model with --num-shard", e);
    if (dev && cuda_upload(d, dev, host, (size_t)n * sizeof(*dev), e)) {
        cudaFree(dev);
        dev = NULL;
    }
    free(host);
    return dev;
}
