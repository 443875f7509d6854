/* stored.c - parts that a checkpoint stores quantised: as codes if the device supports
 * them, else dequantised. */
#include "model-server/model/loader/loader_impl.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The rows and columns of its matrix that a stored part covers. */
static struct stored_slice rows_of_part(const struct mat_part *p)
{
    const int64_t cols = p->stored->cols;
    return (struct stored_slice){.row = (int64_t)p->first / cols,
                                 .rows = p->rows,
                                 .step = p->row_stride / cols,
                                 .col = (int64_t)p->first % cols,
                                 .cols = p->cols};
}

/* True if the first n parts have the same order of columns, and all or none are e4m3. */
static bool fit_together(const struct mat_codes *c, int n, int64_t cols)
{
    for (int i = 1; i < n; i++)
        if (c[i].format.ordered != c[0].format.ordered ||
            (c[i].format.element == ELEMENT_E4M3) != (c[0].format.element == ELEMENT_E4M3) ||
            (c[0].order && memcmp(c[i].order, c[0].order, (size_t)cols * sizeof(*c->order)) != 0))
            return false;
    return true;
}

void loader_free_codes(struct loader *l)
{
    while (l->n_codes)
        free(l->codes[--l->n_codes].codes);
    free(l->codes);
    l->codes = NULL;
}

/* The codes of all parts, in l->codes; false: some parts have none. */
static bool codes_of(struct loader *l, const struct mat_part *parts, int n)
{
    l->codes = calloc((size_t)n, sizeof(*l->codes));
    for (int i = 0; l->codes && i < n; i++) {
        const struct mat_part *p = &parts[i];
        if (p->source != SOURCE_STORED)
            return false;
        const struct stored_slice s = rows_of_part(p);
        if (!stored_codes(p->stored, &s, &l->codes[i], l->d->ops, l->d->dev))
            return false;
        l->n_codes++;
    }
    return l->codes && fit_together(l->codes, n, parts[0].cols);
}

/* The loader chose to round it: loader_round(). */
static bool is_rounded(const struct mat_part *p)
{
    return p->source == SOURCE_STORED && p->stored->how.format == &stored_rounded;
}

bool loader_keep_codes(struct loader *l, struct mat_part *parts, int n)
{
    if (l->failed || !l->c || (!l->how->keep && !is_rounded(&parts[0])))
        return false;
    if (!codes_of(l, parts, n)) {
        loader_free_codes(l);
        return false;
    }
    for (int i = 0; i < n; i++)
        parts[i] = (struct mat_part){.rows = parts[i].rows,
                                     .cols = parts[i].cols,
                                     .source = SOURCE_CODES,
                                     .codes = &l->codes[i]};
    return true;
}

static bool in_16_bits(const struct tensor *t)
{
    return t && (t->type == T_BF16 || t->type == T_F16);
}

/* Bits of a head beside the layers, whose products round activations to 8 bits: those of a packed
 * checkpoint, but not of a GGUF file, or those of --quantize int4. 0: as it is stored. */
static uint32_t head_bits(const struct loader *l)
{
    enum { PACKED = 8, INT4 = 6 };
    if (l->failed || !l->c || l->how->arith != ARITH_INT8 || !l->d->ops->rounds_activations)
        return 0;
    if (l->d->quant)
        return l->d->quant == QUANT_INT4 ? INT4 : 0;
    return !l->c->gguf.n && l->how->keep && l->d->dtype != DT_F32 ? PACKED : 0;
}

uint32_t loader_head_bits(const struct loader *l, enum role role)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t width = s->narrow_head ? s->embed_dim : s->hidden, bits = head_bits(l);
    struct format f = formats[FORMAT_Q8_0];
    char name[NAME_MAX_LEN];
    f.factors = true;
    if (!bits || s->unit_head || s->static_rows || width % f.group || !l->a->names[role] ||
        l->d->ops->weight_takes(&f, ARITH_INT8) != TAKE_NATIVE)
        return 0;
    loader_name(l, role, NO_LAYER, NO_EXPERT, ".weight", name);
    return in_16_bits(loader_look(l, name)) ? bits : 0;
}

void loader_round(struct loader *l, struct mat_part *parts, int n, uint32_t bits)
{
    for (int i = 0; i < n && !l->failed; i++) {
        struct mat_part *p = &parts[i];
        const struct tensor *t =
            p->source == SOURCE_NUMBERS && p->name ? checkpoint_find(l->c, p->name) : NULL;
        const bool rows = p->row_stride == p->cols || !p->row_stride; /* 0: of a measured load */
        if (!in_16_bits(t) || p->col_stride != 1 || !rows)
            continue;
        assert(l->n_stored < MAX_SOURCES);
        struct stored_matrix *m = &l->stored[l->n_stored++];
        *m = (struct stored_matrix){.how = *l->how, .rows = p->rows, .cols = p->cols};
        m->how.format = &stored_rounded;
        m->how.bits = bits;
        m->how.keep = true;
        m->t[STORED_CODES] = t;
        p->source = SOURCE_STORED;
        p->stored = m;
    }
}

/* Numbers to dequantise for a stored part; with interleaved rows including those between them. */
static size_t elements_of(const struct mat_part *p)
{
    if (p->source != SOURCE_STORED || !p->rows)
        return 0;
    const struct stored_slice s = rows_of_part(p);
    return (size_t)(((s.rows - 1) * s.step + 1) * s.cols);
}

void loader_make_numbers(struct loader *l, struct mat_part *parts, int n, enum dtype dtype,
                         enum quant quant)
{
    const struct decoder *d = l->d;
    size_t elements = 0;
    dtype = quant ? DT_F32 : dtype; /* rounded once */
    for (int i = 0; i < n; i++)
        elements += elements_of(&parts[i]);
    if (l->failed || !elements)
        return;
    /* Scales follow the numbers: space for one per number. */
    const size_t bytes = elements * dtype_size(dtype);
    char *at = malloc(bytes + (quant == QUANT_INT4 ? elements * sizeof(uint16_t) : 0));
    uint16_t *scales = at ? (uint16_t *)(void *)(at + bytes) : NULL;
    if (!at) {
        loader_nomem(l);
        return;
    }
    assert(l->n_copies < MAX_SOURCES);
    l->copies[l->n_copies++] = at;
    for (int i = 0; i < n; i++) {
        struct mat_part *p = &parts[i];
        const size_t own = elements_of(p);
        if (!own)
            continue;
        const struct stored_matrix *m = p->stored;
        const struct stored_slice s = rows_of_part(p);
        stored_numbers(m, s.row, (int64_t)own / s.cols, s.col, s.cols, dtype, at, d->ops, d->dev);
        const bool kept = quant == QUANT_INT4 && m->how.format->scales && s.step == 1 &&
                          m->how.format->scales(m, s.row, s.rows, s.col, s.cols, scales);
        *p = (struct mat_part){
            at, dtype, s.rows, s.cols, s.cols * s.step, 1, .first = p->first, .name = p->name};
        p->scales = kept ? scales : NULL;
        scales += quant == QUANT_INT4 ? own : 0;
        at += own * dtype_size(dtype);
    }
}

void loader_numbers(struct loader *l, struct mat_part *p)
{
    loader_make_numbers(l, p, 1, l->d->dtype, QUANT_NONE);
}

void loader_turns(struct loader *l, struct mat_part p, uint32_t first, uint32_t n,
                  struct mat_part out[2])
{
    const bool stored = p.source == SOURCE_STORED;
    if (l->d->sample && stored && n > LOADER_SAMPLE_ROWS) {
        l->rows_each = n / LOADER_SAMPLE_ROWS;
        n = LOADER_SAMPLE_ROWS;
    }
    p = loader_rows(p, 2 * first, 2 * n);
    struct format f;
    struct stored_slice s;
    if (stored)
        s = rows_of_part(&p);
    /* once for both */
    if (stored && !stored_form(p.stored, &s, l->d->ops, &f))
        loader_make_numbers(l, &p, 1, l->d->dtype, QUANT_NONE);
    for (uint32_t odd = 0; odd < 2; odd++) {
        out[odd] = loader_rows(p, odd, n);
        out[odd].row_stride *= 2;
    }
}
