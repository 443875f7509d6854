/* ids.c - a table of integers of a checkpoint: the experts of each id. */
#include "model-server/model/loader/loader.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Integer i of a tensor that is not aligned to its type. */
static int64_t integer_at(const struct tensor *t, size_t i)
{
    int64_t wide;
    int32_t narrow;
    if (t->type == T_I64)
        return memcpy(&wide, (const char *)t->data + i * sizeof(wide), sizeof(wide)), wide;
    memcpy(&narrow, (const char *)t->data + i * sizeof(narrow), sizeof(narrow));
    return narrow;
}

uint32_t *loader_host_numbers(struct loader *l, const uint32_t *x, size_t n)
{
    uint32_t *to = l->failed ? NULL : l->d->ops->alloc(l->d->dev, n * sizeof(*x), l->e);
    if (!l->failed && (!to || l->d->ops->upload(l->d->dev, to, x, n * sizeof(*x), l->e)))
        l->failed = true;
    return to;
}

static int check_shape(const struct tensor *t, uint32_t rows, uint32_t n, struct err *e)
{
    char want[64];
    if (t->type != T_I64 && t->type != T_I32)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has dtype %s; it must be I64 or I32",
                       t->file, t->name, tensor_type_name(t->type));
    if (t->n_dims == 2 && t->dims[0] == rows && t->dims[1] == n)
        return 0;
    snprintf(want, sizeof(want), "%u, %u", rows, n);
    return tensor_wrong_shape(t, want, e);
}

/* Converts a row whose numbers must differ. */
static int convert_row(const struct tensor *t, uint32_t row, uint32_t n, uint32_t most,
                       uint32_t *out, struct err *e)
{
    for (uint32_t i = 0; i < n; i++) {
        const int64_t x = integer_at(t, (size_t)row * n + i);
        bool known = false;
        for (uint32_t k = 0; k < i; k++)
            known |= out[k] == (uint64_t)x;
        if (x < 0 || x >= most || known)
            return err_set(e, ERR_VALIDATION,
                           "%s: tensor `%s` has %lld in row %u: different numbers below %u are "
                           "expected",
                           t->file, t->name, (long long)x, row, most);
        out[i] = (uint32_t)x;
    }
    return 0;
}

/* With random weights the numbers follow each other. */
static int fill(const struct tensor *t, uint32_t rows, uint32_t n, uint32_t most, uint32_t *out,
                struct err *e)
{
    for (uint32_t row = 0; row < rows; row++, out += n) {
        for (uint32_t i = 0; !t && i < n; i++)
            out[i] = (row + i) % most;
        if (t && convert_row(t, row, n, most, out, e))
            return -1;
    }
    return 0;
}

uint32_t *loader_ids(struct loader *l, enum role role, int layer, uint32_t rows, uint32_t n,
                     uint32_t most)
{
    struct decoder *d = l->d;
    const struct tensor *t = l->failed ? NULL : loader_tensor(l, role, layer);
    const size_t bytes = (size_t)rows * n * sizeof(uint32_t);
    uint32_t *host = l->failed ? NULL : malloc(bytes), *y = NULL;
    if (l->failed)
        return NULL;
    if (!host) {
        loader_nomem(l);
        return NULL;
    }
    l->failed = (t && check_shape(t, rows, n, l->e)) || fill(t, rows, n, most, host, l->e) ||
                !(y = d->ops->alloc(d->dev, bytes, l->e)) ||
                d->ops->upload(d->dev, y, host, bytes, l->e);
    free(host);
    if (t)
        tensor_release(t);
    loader_count(d, (uint64_t)rows * n, bytes);
    return y;
}
