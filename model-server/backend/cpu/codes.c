/* codes.c - numbers that come as codes (struct mat_codes), kept so: into panels (code_panel.h), and
 * back. Parts of one matrix may differ: it gets the layout that holds all of them. */
#include "model-server/backend/cpu/cpu.h"
#include <string.h>

void code_layout_make(struct code_layout *l, const struct mat_part *parts, int n)
{
    bool offsets = false, nested = false;
    uint32_t bits = 4, group = CODE_COLS, block = CODE_BLOCK;
    for (int i = 0; i < n; i++) {
        const struct mat_codes *c = parts[i].codes;
        bits = c->bits > bits ? c->bits : bits;
        block = c->block < block ? c->block : block;
        group = c->nested && c->group < group ? c->group : group;
        nested |= c->nested;
        offsets |= c->offsets;
    }
    *l = (struct code_layout){.upper = bits > 6 ? 4 : bits - 4,
                              .scales = CODE_BLOCK / block,
                              .groups = nested ? CODE_BLOCK / group : 0};
    const uint32_t halves = l->scales * CODE_LANES * 2, bytes = l->groups * CODE_LANES;
    uint32_t at = halves;
    if (offsets)
        l->offset = at, at += halves;
    else
        l->zero = (float)(8u << l->upper);
    if (nested)
        l->by = at, at += bytes;
    if (nested && offsets)
        l->less = at, at += bytes;
    l->codes = (at + CODE_WORDS - 1) / CODE_WORDS * CODE_WORDS;
    l->bytes =
        l->codes + CODE_BLOCK / 8 * CODE_WORDS + CODE_BLOCK / CODE_COLS * l->upper * CODE_WORDS;
}

static size_t codes_panel_bytes(const struct weight *w)
{
    return ((size_t)w->cols + CODE_BLOCK - 1) / CODE_BLOCK * w->codes.bytes;
}

static void put_f16(char *block, uint32_t at, uint32_t i, uint16_t h)
{
    memcpy(block + at + (size_t)i * 2, &h, sizeof(h));
}

/* What the codes of 32 columns, or of 16, are multiplied with. A part without offsets in a layout
 * with them: the code of 0 times the scale, which is exact as that is a power of two. */
static void pack_scales(const struct code_layout *l, char *block, uint32_t in, uint32_t lane,
                        const struct mat_codes *c, size_t at)
{
    const uint32_t i = code_group(in, l->scales) * CODE_LANES + lane;
    const uint32_t j = code_group(in, l->groups) * CODE_LANES + lane;
    const uint16_t scale = c->scale[at / c->block];
    const int8_t by = c->nested ? c->by[at / c->group] : 1;
    put_f16(block, 0, i, scale);
    if (l->by)
        block[l->by + j] = by;
    if (l->offset)
        put_f16(block, l->offset, i,
                c->offsets ? c->offset[at / c->block]
                           : f16_of_f32(f32_of_f16(scale) * (float)c->zero));
    if (l->less)
        block[l->less + j] = !c->offsets ? by : c->nested ? c->less[at / c->group] : 1;
}

/* Eight columns from `in` on. */
static void pack_eight(const struct code_layout *l, char *block, uint32_t in, uint32_t lane,
                       const uint8_t *codes, uint32_t move)
{
    const struct code_place p = code_place(l, in);
    uint32_t lower = 0, upper = 0, shared;
    for (uint32_t c = 0; c < 8; c++) {
        const uint32_t code = codes[c] + move;
        lower |= (code & 15) << 4 * c;
        upper |= code >> 4 << 4 * c;
    }
    memcpy(block + p.lower + (size_t)lane * 4, &lower, 4);
    if (l->upper) {
        memcpy(&shared, block + p.upper + (size_t)lane * 4, 4);
        shared |= upper << p.shift;
        memcpy(block + p.upper + (size_t)lane * 4, &shared, 4);
    }
}

static void codes_pack(struct device *d, int thread, const struct weight *w, char *panel, int lane,
                       const struct mat_part *p, int64_t row)
{
    (void)d, (void)thread;
    const struct code_layout *l = &w->codes;
    const struct mat_codes *c = p->codes;
    /* Without offsets the code of 0 is the layout's. */
    const uint32_t move = l->offset ? 0 : (uint32_t)l->zero - c->zero;
    const size_t first = (size_t)row * w->cols;
    for (uint32_t k = 0; k < w->cols; k += 8) {
        char *block = panel + (size_t)(k / CODE_BLOCK) * l->bytes;
        if (k % 16 == 0)
            pack_scales(l, block, k % CODE_BLOCK, (uint32_t)lane, c, first + k);
        pack_eight(l, block, k % CODE_BLOCK, (uint32_t)lane, c->codes + first + k, move);
    }
}

static void codes_row(float *dst, const struct weight *w, uint32_t row, uint32_t k, uint32_t n)
{
    const char *panel = weight_panel(w, row / LANES);
    for (uint32_t i = k; i < k + n; i++)
        dst[i - k] = code_at(&w->codes, panel, row % LANES, i);
}

static void codes_widen(const struct kernels *kern, float *dst, const struct weight *w,
                        const char *panel, uint32_t k, uint32_t n)
{
    kern->widen_codes(dst, panel, &w->codes, k, n);
}

const struct weight_format format_codes = {codes_panel_bytes, codes_pack, codes_row, linear_float,
                                           codes_widen};
