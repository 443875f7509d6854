/* shards.c - a table whose rows are in many tensors, one after the other. */
#include "model-server/model/loader/loader_impl.h"
#include <stdlib.h>
#include <string.h>

struct shards {
    struct mat_part *parts; /* those of `want` */
    const struct tensor **tensors;
    void **copies; /* of misaligned tensors, or NULL */
    int n, cap;
    int64_t rows; /* of all tensors so far */
};

static void shards_free(struct shards *s)
{
    for (int i = 0; i < s->n; i++) {
        tensor_release(s->tensors[i]);
        free(s->copies[i]);
    }
    free(s->parts), free((void *)s->tensors), free((void *)s->copies);
}

static bool grow(struct loader *l, struct shards *s)
{
    enum { FIRST = 16 };
    const int cap = s->n < s->cap ? s->cap : s->cap ? 2 * s->cap : FIRST;
    if (cap == s->cap)
        return true;
    void *parts = realloc(s->parts, (size_t)cap * sizeof(*s->parts));
    s->parts = parts ? parts : s->parts;
    void *tensors = realloc((void *)s->tensors, (size_t)cap * sizeof(const struct tensor *));
    s->tensors = tensors ? tensors : s->tensors;
    void *copies = realloc((void *)s->copies, (size_t)cap * sizeof(*s->copies));
    s->copies = copies ? copies : s->copies;
    if (!parts || !tensors || !copies) {
        loader_nomem(l);
        return false;
    }
    s->cap = cap;
    return true;
}

/* The tensor's numbers, at the alignment that backends need. */
static const void *numbers_of(struct loader *l, const struct tensor *t, size_t size, void **copy)
{
    *copy = NULL;
    if ((uintptr_t)t->data % size == 0)
        return t->data;
    if (!(*copy = malloc(t->bytes ? t->bytes : 1))) {
        loader_nomem(l);
        return NULL;
    }
    return memcpy(*copy, t->data, t->bytes);
}

/* Adds the rows of a tensor that are in `want`. */
static bool add(struct loader *l, struct shards *s, const struct tensor *t, uint32_t cols,
                struct slice want)
{
    struct mat_part p = {.cols = cols, .row_stride = cols, .col_stride = 1, .name = t->name};
    if (t->n_dims != 2 || t->dims[1] != cols || t->dims[0] > INT32_MAX) {
        loader_wrong_shape(l, t, t->n_dims ? (int64_t)t->dims[0] : 0, cols);
        return false;
    }
    if (loader_type(l, t, &p.dtype) || !grow(l, s))
        return false;
    const int64_t first = s->rows, end = first + (int64_t)t->dims[0];
    const int64_t from = first > want.first ? first : want.first,
                  to = end < (int64_t)want.first + want.n ? end : (int64_t)want.first + want.n;
    s->rows = end;
    if (from >= to)
        return true;
    p.data = numbers_of(l, t, dtype_size(p.dtype), &s->copies[s->n]);
    p.rows = to - first;
    s->parts[s->n] = loader_rows(p, (uint32_t)(from - first), (uint32_t)(to - from));
    s->tensors[s->n++] = t;
    return p.data;
}

struct weight *loader_pack_shards(struct loader *l, enum role role, int layer, int64_t rows,
                                  uint32_t cols, struct slice want)
{
    struct shards s = {0};
    struct weight *w = NULL;
    const struct tensor *last = NULL;
    char name[NAME_MAX_LEN];
    if (!l->c && !l->failed) {
        const struct mat_part p = loader_plain_matrix(l, role, layer, rows, cols);
        struct mat_part own = loader_rows(p, want.first, want.n);
        return loader_pack(l, &own, 1, l->d->dtype, QUANT_NONE);
    }
    for (int i = 0; !l->failed && s.rows < rows; i++) {
        loader_name(l, role, layer, i, "", name);
        const struct tensor *t = i ? loader_look(l, name) : loader_find(l, name, 0, 0);
        if (!t || t == last || !add(l, &s, t, cols, want)) /* of some files it is one tensor */
            break;
        last = t;
    }
    if (!l->failed && last && s.rows != rows) {
        l->failed = true;
        err_set(l->e, ERR_VALIDATION, "%s: the parts up to tensor `%s` have %lld rows, not %lld",
                last->file, last->name, (long long)s.rows, (long long)rows);
    }
    if (!l->failed && last)
        w = loader_pack(l, s.parts, s.n, l->d->dtype, QUANT_NONE);
    shards_free(&s);
    return w;
}
