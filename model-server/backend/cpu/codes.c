/* codes.c - packs codes (struct mat_codes) into panels (code_panel.h), and reads them. If the
 * parts of a matrix differ, it gets a layout that holds all of them. */
#include "model-server/backend/cpu/cpu.h"
#include <string.h>

/* Bits of n(code). A table that is expanded fits 8 bits, or 5, also after even_zero(). */
static uint32_t bits_of_part(const struct format *f, const uint8_t *table)
{
    if (!f->table || f->table == table)
        return f->bits;
    return f->zero < 16 ? 5 : 8;
}

/* The table that all parts share; NULL: their codes are looked up when they are packed. No kernel
 * has a table and offsets, because no format has both. */
static const uint8_t *common_table(const struct mat_part *parts, int n)
{
    const struct format *first = &parts[0].codes->format;
    for (int i = 0; i < n; i++) {
        const struct format *f = &parts[i].codes->format;
        if (f->table != first->table || f->zero != first->zero || f->offsets || f->zeros)
            return NULL;
    }
    return first->table;
}

/* The combined needs of the parts. */
struct needs {
    bool offsets, nested, zeros, constant;
    uint32_t bits, group, block;
    float zero; /* of a table */
};

static struct needs needs_of(const struct mat_part *parts, int n, const uint8_t *table)
{
    struct needs x = {.bits = 4, .group = CODE_COLS, .block = CODE_BLOCK};
    for (int i = 0; i < n; i++) {
        const struct format *f = &parts[i].codes->format;
        const uint32_t bits = bits_of_part(f, table);
        x.bits = bits > x.bits ? bits : x.bits;
        x.block = f->block < x.block ? f->block : x.block;
        x.group = f->nested && f->group < x.group ? f->group : x.group;
        x.nested |= f->nested;
        x.offsets |= f->offsets;
        x.zeros |= f->zeros;
        x.constant |= !f->zeros && f->zero > INT8_MAX;
        x.zero = (float)f->zero;
    }
    /* Zero points, together with a part that they cannot represent. */
    x.offsets |= x.zeros && (x.nested || x.constant);
    x.group = x.block < x.group ? x.block : x.group;
    x.nested |= x.zeros && x.offsets;
    return x;
}

/* Bits of the greatest number of a table, at least 4. */
static uint32_t table_bits(const uint8_t table[16])
{
    uint32_t bits = 4;
    for (int i = 0; i < 16; i++)
        while (table[i] >> bits)
            bits++;
    return bits;
}

void code_layout_place(struct code_layout *l)
{
    const uint32_t halves = l->scales * CODE_LANES * 2, bytes = l->groups * CODE_LANES;
    uint32_t at = halves;
    l->bits = l->table ? table_bits(l->table) : 4 + l->upper;
    if (l->offset)
        l->offset = at, at += halves;
    if (l->by)
        l->by = at, at += bytes;
    if (l->less)
        l->less = at, at += bytes;
    l->codes = (at + CODE_WORDS - 1) / CODE_WORDS * CODE_WORDS;
    l->bytes =
        l->codes + CODE_BLOCK / 8 * CODE_WORDS + CODE_BLOCK / CODE_COLS * l->upper * CODE_WORDS;
}

void code_layout_make(struct code_layout *l, const struct mat_part *parts, int n)
{
    const uint8_t *table = common_table(parts, n);
    const struct needs x = needs_of(parts, n, table);
    *l = (struct code_layout){
        .upper = x.bits > 6 ? 4 : x.bits - 4,
        .scales = CODE_BLOCK / x.block,
        .groups = x.nested || x.zeros || x.group < CODE_COLS ? CODE_BLOCK / x.group : 0,
        .offset = x.offsets,
        .by = x.nested,
        .less = x.zeros || (x.nested && x.offsets),
        .table = table};
    if (!x.offsets)
        l->zero = x.zeros ? 1.0f : table ? x.zero : (float)(8u << l->upper);
    code_layout_place(l);
}

size_t code_panel_bytes(const struct weight *w)
{
    return ((size_t)w->cols + CODE_BLOCK - 1) / CODE_BLOCK * w->codes.bytes;
}

static void put_f16(char *block, uint32_t at, uint32_t i, uint16_t h)
{
    memcpy(block + at + (size_t)i * 2, &h, sizeof(h));
}

/* The n of 0 of a part without offsets in a layout with offsets: a power of two, so that half
 * precision holds it times any scale. Codes with a table are shifted to it. */
static uint32_t even_zero(const struct format *f)
{
    uint32_t zero = f->zero ? 1 : 0;
    while (zero < f->zero)
        zero *= 2;
    return zero;
}

/* Where a part's scales and groups are: `at` elements from its first one. A division for each run
 * of 16 columns took as long as packing their codes. */
struct code_cursor {
    size_t scale, group;
    uint32_t in_scale, in_group; /* elements passed of each */
};

static struct code_cursor cursor_at(const struct format *f, size_t at)
{
    struct code_cursor x = {.scale = at / f->block, .in_scale = (uint32_t)(at % f->block)};
    if (f->group) {
        x.group = at / f->group;
        x.in_group = (uint32_t)(at % f->group);
    }
    return x;
}

static void cursor_move(struct code_cursor *x, const struct format *f, uint32_t n)
{
    for (x->in_scale += n; x->in_scale >= f->block; x->in_scale -= f->block)
        x->scale++;
    for (x->in_group += n; f->group && x->in_group >= f->group; x->in_group -= f->group)
        x->group++;
}

/* The offset of a group of a part, and its multiple. A part without offsets in a layout with
 * offsets uses n of 0 times the scale. */
static void pack_offset(const struct code_layout *l, char *block, uint32_t i, uint32_t j,
                        const struct mat_codes *c, const struct code_cursor *at)
{
    const struct format *f = &c->format;
    const uint16_t scale = c->scale[at->scale];
    const int8_t by = f->nested ? c->by[at->group] : 1;
    int8_t less = f->nested ? by : 1;
    if (f->zeros || (f->offsets && f->nested))
        less = c->less[at->group];
    else if (!l->offset)
        less = (int8_t)f->zero;
    const uint16_t offset = f->zeros     ? scale
                            : f->offsets ? c->offset[at->scale]
                                         : f16_of_f32(f32_of_f16(scale) * (float)even_zero(f));
    if (l->offset)
        put_f16(block, l->offset, i, offset);
    if (l->less)
        block[l->less + j] = less;
}

/* The scales of the codes of 32 or 16 columns. */
static void pack_scales(const struct code_layout *l, char *block, uint32_t in, uint32_t lane,
                        const struct mat_codes *c, const struct code_cursor *at)
{
    const uint32_t i = code_group(in, l->scales) * CODE_LANES + lane;
    const uint32_t j = code_group(in, l->groups) * CODE_LANES + lane;
    put_f16(block, 0, i, c->scale[at->scale]);
    if (l->by)
        block[l->by + j] = c->format.nested ? c->by[at->group] : 1;
    pack_offset(l, block, i, j, c, at);
}

/* The low nibbles of eight bytes side by side. */
static uint32_t nibbles(uint64_t x)
{
    x &= 0x0F0F0F0F0F0F0F0F;
    x = (x | x >> 4) & 0x00FF00FF00FF00FF;
    x = (x | x >> 8) & 0x0000FFFF0000FFFF;
    return (uint32_t)(x | x >> 16);
}

/* Eight codes, each moved by `move` modulo 256, as bytes of one word. */
static uint64_t eight_codes(const uint8_t *codes, const uint8_t *table, uint32_t move)
{
    const uint64_t ones = 0x0101010101010101, high = 0x80 * ones, by = (move & 255) * ones;
    uint8_t looked_up[8];
    uint64_t x;
    for (uint32_t c = 0; table && c < 8; c++)
        looked_up[c] = table[codes[c]];
    memcpy(&x, table ? looked_up : codes, sizeof(x));
    return ((x & ~high) + (by & ~high)) ^ ((x ^ by) & high); /* no carry between bytes */
}

/* Packs eight columns from `in` on. */
static void pack_eight(const struct code_layout *l, char *block, uint32_t in, uint32_t lane,
                       const uint8_t *codes, const uint8_t *table, uint32_t move)
{
    const struct code_place p = code_place(l, in);
    const uint64_t x = eight_codes(codes, table, move);
    const uint32_t lower = nibbles(x), upper = nibbles(x >> 4);
    uint32_t shared;
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
    const uint8_t *table = l->table ? NULL : c->format.table;
    /* Without offsets the code of 0 is that of the layout. */
    const uint32_t zero = l->offset             ? even_zero(&c->format)
                          : l->less || l->table ? c->format.zero
                                                : (uint32_t)l->zero;
    const uint32_t move = zero - c->format.zero;
    const size_t first = (size_t)row * w->cols;
    struct code_cursor at = cursor_at(&c->format, first);
    for (uint32_t k = 0; k < w->cols; k += 8) {
        char *block = panel + (size_t)(k / CODE_BLOCK) * l->bytes;
        if (k % 16 == 0) {
            pack_scales(l, block, k % CODE_BLOCK, (uint32_t)lane, c, &at);
            cursor_move(&at, &c->format, 16);
        }
        pack_eight(l, block, k % CODE_BLOCK, (uint32_t)lane, c->codes + first + k, table, move);
    }
}

void code_pack_signed(const struct code_layout *l, char *panel, uint32_t lane, uint32_t k,
                      const int8_t *q, float scale)
{
    char *block = panel + (size_t)(k / CODE_BLOCK) * l->bytes;
    const uint32_t in = k % CODE_BLOCK;
    put_f16(block, 0, code_group(in, l->scales) * CODE_LANES + lane, f16_of_f32(scale));
    for (uint32_t i = 0; i < CODE_COLS; i += 8) {
        uint8_t codes[8];
        for (uint32_t c = 0; c < 8; c++)
            codes[c] = (uint8_t)(q[i + c] + (int)l->zero);
        pack_eight(l, block, in + i, lane, codes, NULL, 0);
    }
}

void code_row(float *dst, const struct weight *w, uint32_t row, uint32_t k, uint32_t n)
{
    const char *panel = weight_panel(w, row / LANES);
    for (uint32_t i = k; i < k + n && !w->order; i++)
        dst[i - k] = code_at(&w->codes, panel, row % LANES, i);
    for (uint32_t i = 0; i < w->cols && w->order; i++) /* wherever it went */
        if (w->order[i] >= k && w->order[i] < k + n)
            dst[w->order[i] - k] = code_at(&w->codes, panel, row % LANES, i);
    for (uint32_t i = 0; i < n && w->factor; i++)
        dst[i] *= w->factor[row];
}

void code_widen(const struct kernels *kern, float *dst, const struct weight *w, const char *panel,
                uint32_t k, uint32_t n)
{
    kern->widen_codes(dst, panel, &w->codes, k, n);
}

const struct weight_kind kind_codes = {.panel_bytes = code_panel_bytes,
                                       .pack = codes_pack,
                                       .row = code_row,
                                       .linear = linear_float,
                                       .widen = code_widen};
const struct weight_kind kind_codes8 = {.panel_bytes = code_panel_bytes,
                                        .pack = codes_pack,
                                        .row = code_row,
                                        .linear = linear_codes,
                                        .widen = code_widen};
