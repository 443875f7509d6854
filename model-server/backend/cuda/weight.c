/* weight.c - matrices from the checkpoint onto the device: rows as they are, padded with zeros to a
 * multiple of 64 columns, so that every 16-byte piece is aligned and a product needs no tail. */
#include "model-server/backend/cpu/numbers.h"
#include "model-server/backend/cuda/cuda.h"
#include <stdio.h>
#include <stdlib.h>

struct packing {
    const struct mat_desc *m;
    const struct weight *w;
    char *dst;
    size_t first;
};

/* Row `row` of the stacked parts. */
static const struct mat_part *part_of(const struct mat_desc *m, int64_t *row)
{
    const struct mat_part *p = m->parts;
    for (; *row >= p->rows; p++)
        *row -= p->rows;
    return p;
}

static void convert_row(char *dst, const struct mat_part *p, int64_t row, enum dtype to)
{
    for (int64_t k = 0; k < p->cols; k++) {
        float f = number_at(p->data, p->dtype, row * p->row_stride + k * p->col_stride);
        if (to == DT_F32)
            ((float *)dst)[k] = f;
        else
            ((uint16_t *)dst)[k] = to == DT_F16 ? f16_of_f32(f) : bf16_of_f32(f);
    }
}

static void fill_range(void *arg, int thread, size_t begin, size_t end)
{
    const struct packing *j = arg;
    const size_t size = dtype_size(j->w->dtype), used = j->w->cols * size;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        int64_t row = (int64_t)(j->first + i);
        const struct mat_part *p = part_of(j->m, &row);
        char *dst = j->dst + i * j->w->pitch * size;
        if (p->dtype == j->w->dtype && p->col_stride == 1)
            memcpy(dst, (const char *)p->data + row * p->row_stride * (int64_t)size, used);
        else
            convert_row(dst, p, row, j->w->dtype);
        memset(dst + used, 0, j->w->pitch * size - used);
    }
}

struct filling {
    struct device *d;
    struct packing j;
};

static void fill_rows(void *arg, char *dst, size_t first, size_t n)
{
    struct filling *f = arg;
    f->j.dst = dst, f->j.first = first;
    pool_run(f->d->pool, fill_range, &f->j, n, 16);
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
    return *rows ? 0 : err_set(e, ERR_VALIDATION, "a weight without rows");
}

static const char *const type_names[DT_N] = {"float32", "float16", "bfloat16"};

struct weight *cuda_weight_load(struct device *d, const struct mat_desc *m, struct err *e)
{
    int64_t rows;
    char what[96];
    if (check_shape(m, &rows, e))
        return NULL;
    if (m->quant != QUANT_NONE || (unsigned)m->dtype >= DT_N)
        return err_set(e, ERR_VALIDATION,
                       "the CUDA backend has no quantised weights yet: leave out --quantize"),
               NULL;
    struct weight *w = calloc(1, sizeof(*w));
    if (!w)
        return err_nomem(e), NULL;
    w->dtype = m->dtype;
    w->rows = (uint32_t)rows;
    w->cols = (uint32_t)m->parts[0].cols;
    w->pitch = k_padded(w->cols);
    w->bytes = w->rows * w->pitch * dtype_size(w->dtype);
    snprintf(what, sizeof(what), "a weight of %u x %u %s", w->rows, w->cols, type_names[w->dtype]);
    w->data = cuda_take(d, w->bytes, what, "spread the model with --num-shard", e);
    struct filling f = {d, {.m = m, .w = w}};
    if (!w->data ||
        cuda_upload_rows(d, w->data, w->rows, w->pitch * dtype_size(w->dtype), fill_rows, &f, e)) {
        cuda_weight_free(d, w);
        return NULL;
    }
    return w;
}

void cuda_weight_free(struct device *d, struct weight *w)
{
    if (!w)
        return;
    moe_forget(d, w);
    cudaFree(w->data); /* waits for what uses it */
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
