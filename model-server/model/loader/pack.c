/* pack.c - makes a matrix on the device from parts: a view of a file of packed weights if
 * there is one, else packed from the checkpoint. */
#include "common/hash.h"
#include "model-server/model/loader/loader.h"
#include "model-server/packed/packed.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)PACKED_NOTES >= (int)MAX_SOURCES, "each stored tensor has a note");

void loader_count(struct decoder *d, uint64_t elements, uint64_t bytes)
{
    d->weights.elements += elements;
    d->weights.bytes += bytes;
}

static int64_t sum_rows(const struct mat_part *parts, int n)
{
    int64_t rows = 0;
    for (int i = 0; i < n; i++)
        rows += parts[i].rows;
    return rows;
}

/* Counts a matrix that the checkpoint stores packed, by the form it got. */
static void note_matrix(struct decoder *d, bool kept, const char *name)
{
    for (int i = 0; i < MATRIX_KINDS; i++) {
        struct matrix_count *c = &d->became[i];
        if (c->name && (c->widened == kept || strcmp(c->name, name) != 0))
            continue;
        *c = (struct matrix_count){name, !kept, c->n + 1};
        return;
    }
}

/* Hash of the parts of a matrix. The key of the file covers the rest: the contents of the
 * tensors, and the options of the load. */
static uint64_t what_of(const struct mat_part *parts, int n, enum dtype dtype, enum quant quant,
                        bool whole)
{
    uint64_t h = hash_bytes(0, &n, sizeof(n));
    if (whole) /* else the hash is that of older files */
        h = hash_bytes(h, &whole, sizeof(whole));
    for (int i = 0; i < n; i++) {
        const struct mat_part *p = &parts[i];
        const int64_t v[] = {p->rows,   p->cols,  p->row_stride, p->col_stride, (int64_t)p->first,
                             p->source, p->dtype, dtype,         quant};
        h = hash_bytes(h, v, sizeof(v));
        if (p->name)
            h = hash_bytes(h, p->name, strlen(p->name));
    }
    return h;
}

/* A view of the file. Its notes live as long as the file is open. */
static struct weight *take(struct loader *l, uint64_t what)
{
    const struct packed_note *notes;
    struct weight *w = packed_take(l->d->packed, what, &notes);
    for (int i = 0; w && i < PACKED_NOTES && *notes[i].format; i++)
        note_matrix(l->d, notes[i].kept, notes[i].format);
    return w;
}

/* The stored tensors of a matrix: for each the first of its parts. Returns their number. */
static int sources(const struct mat_part *parts, int n, int first[MAX_SOURCES])
{
    const struct stored_matrix *of[MAX_SOURCES];
    int k = 0;
    for (int i = 0; i < n; i++) {
        int at = 0;
        while (parts[i].source == SOURCE_STORED && at < k && of[at] != parts[i].stored)
            at++;
        if (parts[i].source != SOURCE_STORED || at < k)
            continue;
        assert(k < MAX_SOURCES); /* as many as struct loader has */
        of[k] = parts[i].stored, first[k++] = i;
    }
    return k;
}

static enum arith arith_of(const struct loader *l, const struct mat_part *parts)
{
    const enum arith a = l->how ? l->how->arith : ARITH_EXACT;
    return parts->source == SOURCE_CODES ? format_arith(&parts->codes->format, a) : a;
}

static struct weight *make(struct loader *l, struct mat_part *parts, int n, enum dtype dtype,
                           enum quant quant, uint64_t what)
{
    struct decoder *d = l->d;
    struct packed_note notes[PACKED_NOTES] = {0};
    int first[MAX_SOURCES];
    const int stored = quant ? 0 : sources(parts, n, first);
    if (quant || dtype != d->dtype || !loader_keep_codes(l, parts, n))
        loader_make_numbers(l, parts, n, dtype, quant);
    for (int i = 0; i < stored; i++) {
        const struct mat_part *p = &parts[first[i]];
        const bool kept = p->source == SOURCE_CODES;
        const char *name = kept ? p->codes->format.name : dtype_name(dtype);
        note_matrix(d, kept, name);
        snprintf(notes[i].format, sizeof(notes[i].format), "%s", name);
        notes[i].kept = kept;
    }
    const struct mat_desc m = {.parts = parts,
                               .n_parts = n,
                               .dtype = dtype,
                               .quant = quant,
                               .arith = arith_of(l, parts),
                               .whole = d->encodes};
    if (d->watch.before && !l->failed)
        d->watch.before(d->watch.arg, parts, n);
    struct weight *w = l->failed ? NULL : d->ops->weight_load(d->dev, &m, l->e);
    if (w && d->watch.after)
        d->watch.after(d->watch.arg, w, parts, n);
    loader_free_codes(l);
    if (w && !d->sample)
        packed_add(d->packed, w, what, notes);
    return w;
}

struct weight *loader_pack(struct loader *l, struct mat_part *parts, int n, enum dtype dtype,
                           enum quant quant)
{
    struct decoder *d = l->d;
    const int64_t rows = sum_rows(parts, n) * (l->rows_each ? l->rows_each : 1);
    for (int i = 0; d->sample && i < n; i++)
        parts[i].rows = parts[i].rows < LOADER_SAMPLE_ROWS ? parts[i].rows : LOADER_SAMPLE_ROWS;
    l->rows_each = 0;
    const uint64_t what = d->packed && !l->failed ? what_of(parts, n, dtype, quant, d->encodes) : 0;
    struct weight *w = l->failed ? NULL : take(l, what);
    if (!w)
        w = make(l, parts, n, dtype, quant, what);
    if (!w)
        l->failed = true;
    const int64_t packed = sum_rows(parts, n);
    assert(!w || packed > 0);
    if (w && packed)
        loader_count(d, (uint64_t)(rows * parts[0].cols),
                     d->ops->weight_bytes(w) * (uint64_t)rows / (uint64_t)packed);
    loader_drop(l);
    if (!w || !d->sample)
        return w;
    d->ops->weight_free(d->dev, w);
    return NULL;
}
