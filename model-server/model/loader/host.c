/* host.c - tensors that are put together on the host before they are packed. */
#include "model-server/backend/numbers.h"
#include "model-server/model/loader/loader_impl.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

float *loader_floats(struct loader *l, enum role role, int layer, int expert, const char *suffix,
                     int64_t rows, int64_t cols)
{
    const int64_t n = rows * cols;
    const struct mat_part p = loader_table_of(l, role, layer, expert, suffix, rows, cols);
    float *x = l->failed ? NULL : calloc((size_t)n, sizeof(*x));
    if (!x && !l->failed)
        loader_nomem(l);
    for (int64_t i = 0; x && p.data && i < n; i++)
        x[i] = number_at(p.data, p.dtype, i);
    loader_drop(l);
    return x;
}

static uint32_t groups_of(const struct group_spec *g, enum role role)
{
    switch (role) {
    case W_Q:
        return g->q;
    case W_K:
        return g->k;
    case W_V:
        return g->v;
    case W_O:
        return g->o;
    case W_UP:
        return g->up;
    case W_DOWN:
        return g->down;
    default:
        return 0;
    }
}

/* Writes the rows of `p`, a group's part of them, into the zeros of a whole matrix. */
static void spread(const struct mat_part *p, uint32_t groups, bool turned, int64_t rows,
                   int64_t cols, char *to)
{
    const size_t size = dtype_size(p->dtype);
    const int64_t height = rows / groups, width = cols / groups;
    const char *from = p->data;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t group = r / height;
        char *row = to + (size_t)(r * cols + group * width) * size;
        if (!turned)
            memcpy(row, from + (size_t)(r * width) * size, (size_t)width * size);
        for (int64_t c = 0; turned && c < width; c++)
            memcpy(row + (size_t)c * size,
                   from + (size_t)((group * width + c) * height + r % height) * size, size);
    }
}

bool loader_grouped(struct loader *l, enum role role, int layer, int64_t rows, int64_t cols,
                    struct mat_part *out)
{
    const struct group_spec *g = &l->d->spec.groups;
    const uint32_t groups = groups_of(g, role);
    if (!groups || (groups == 1 && g->turned)) /* then it is an ordinary matrix */
        return false;
    assert(rows % groups == 0 && cols % groups == 0);
    *out = loader_table(l, role, layer, ".weight", rows, cols / groups);
    if (l->failed || groups == 1)
        return true;
    char *whole = calloc((size_t)(rows * cols), dtype_size(out->dtype));
    if (!whole) {
        loader_nomem(l);
        return true;
    }
    spread(out, groups, g->turned, rows, cols, whole);
    l->copies[l->n_copies++] = whole;
    out->data = whole;
    out->cols = out->row_stride = cols;
    return true;
}
