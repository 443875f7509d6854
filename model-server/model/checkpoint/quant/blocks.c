/* The blocks of ggml: of 32 numbers with one scale (and offset) in half precision, and of 256
 * whose scales (and offsets) of 16 or 32 numbers are a few bits, times one of the block (the "K"
 * types). The layouts are those of ggml-common.h. The order of the operations, on which the last
 * bits depend, is ggml's. */
#include "model-server/model/checkpoint/quant/blocks.h"
#include "model-server/backend/numbers.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint16_t half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof(h));
    return h;
}

float block_half(const uint8_t *p) { return f32_of_f16(half_at(p)); }

/* ---------------------------------------------------------------- 32 numbers */

/* A nibble each, the upper halves for the second 16. */
static void nibbles(const uint8_t *q, uint8_t *code)
{
    for (int i = 0; i < 16; i++)
        code[i] = q[i] & 15, code[i + 16] = q[i] >> 4;
}

/* The fifth bits of all 32 are in a separate word. Eight at a time: byte i keeps bit i, which
 * becomes the top bit by an addition, and then bit 4. */
static void fifths(const uint8_t *bits, uint8_t *code)
{
    const uint64_t ones = 0x0101010101010101, each = 0x8040201008040201;
    for (int i = 0; i < 4; i++) {
        uint64_t x;
        memcpy(&x, code + (size_t)i * 8, sizeof(x));
        x |= (((bits[i] * ones & each) + 0x7F * ones) & 0x80 * ones) >> 3;
        memcpy(code + (size_t)i * 8, &x, sizeof(x));
    }
}

static void q4_0(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = block_half(b);
    nibbles(b + 2, o->code);
}

static void q4_1(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = block_half(b), o->offset = -block_half(b + 2);
    nibbles(b + 4, o->code);
}

static void q5_0(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = block_half(b);
    nibbles(b + 6, o->code);
    fifths(b + 2, o->code);
}

static void q5_1(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = block_half(b), o->offset = -block_half(b + 2);
    nibbles(b + 8, o->code);
    fifths(b + 4, o->code);
}

static void q8_0(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = block_half(b);
    for (int i = 0; i < 32; i++)
        o->code[i] = b[2 + i] ^ 0x80; /* signed, and from -128 on */
}

/* The same nibbles, looked up. */
static void iq4_nl(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = block_half(b);
    nibbles(b + 2, o->code);
}

/* A power of two, for numbers that are doubled here. */
static void mxfp4(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = ldexpf(1, b[0] - 128);
    nibbles(b + 1, o->code);
}

/* ---------------------------------------------------------------- 256 numbers */

/* In both halves of 128, byte l of 32 contains two bits of each of the numbers l, l + 32, l + 64,
 * l + 96. */
static int two_bits(const uint8_t *q, int i)
{
    return q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

/* scales[16]: 4 bits of scale, 4 of offset, of 16 numbers; qs[64]; d; dmin */
static void q2_k(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = block_half(b + 80), o->offset = block_half(b + 82);
    for (int g = 0; g < 16; g++)
        o->by[g] = (int8_t)(b[g] & 15), o->less[g] = (int8_t)(b[g] >> 4);
    for (int i = 0; i < 256; i++)
        o->code[i] = (uint8_t)two_bits(b + 16, i);
}

/* hmask[32]: bit g of byte l is the third bit of number 32 g + l; qs[64]; scales[12]: of 6 bits,
 * the lower four in nibbles of 8 bytes, the upper two in 4 bytes; d */
static void q3_k(const uint8_t *b, struct block_codes *o)
{
    const uint8_t *s = b + 96;
    o->scale[0] = block_half(b + 108);
    for (int g = 0; g < 16; g++) {
        const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4, high = s[8 + g % 4] >> g / 4 * 2 & 3;
        o->by[g] = (int8_t)((low | high << 4) - 32);
    }
    for (int i = 0; i < 256; i++)
        o->code[i] = (uint8_t)(two_bits(b + 32, i) | (b[i % 32] >> i / 32 & 1) << 2);
}

/* d; dmin; scales[12]: scale and offset of 6 bits each of 32 numbers; five: qh[32], bit g of byte l
 * is the fifth bit of number 32 g + l; qs[128]: byte l of 32 holds the numbers l and l + 32 of 64
 */
static void q45_k(const uint8_t *b, struct block_codes *o, bool five)
{
    const uint8_t *s = b + 4, *q = b + (five ? 48 : 16);
    o->scale[0] = block_half(b), o->offset = block_half(b + 2);
    for (int g = 0; g < 8; g++) {
        o->by[g] = (int8_t)(g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4);
        o->less[g] = (int8_t)(g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4);
        for (int l = 0; l < 32; l++) {
            const int low = q[g / 2 * 32 + l] >> g % 2 * 4 & 15;
            const int high = five ? (b[16 + l] >> g & 1) << 4 : 0;
            o->code[g * 32 + l] = (uint8_t)(low | high);
        }
    }
}

static void q4_k(const uint8_t *b, struct block_codes *o) { q45_k(b, o, false); }
static void q5_k(const uint8_t *b, struct block_codes *o) { q45_k(b, o, true); }

/* ql[128], qh[64]: of each half of 128, byte l of 64 holds the lower bits of l and l + 64, byte l
 * of 32 the upper two of l, l + 32, l + 64, l + 96; scales[16]: of 16 numbers; d */
static void q6_k(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = block_half(b + 208);
    memcpy(o->by, b + 192, 16);
    for (int i = 0; i < 256; i++) {
        const int low = b[i / 128 * 64 + i % 64] >> i % 128 / 64 * 4 & 15;
        o->code[i] = (uint8_t)(low | two_bits(b + 128, i) << 4);
    }
}

/* d; the upper two bits of the scales of 32 numbers, in two bytes; the lower four, in four; nibbles
 */
static void iq4_xs(const uint8_t *b, struct block_codes *o)
{
    const uint32_t high = (uint32_t)b[2] | (uint32_t)b[3] << 8;
    o->scale[0] = block_half(b);
    for (int g = 0; g < 8; g++) {
        const int low = b[4 + g / 2] >> g % 2 * 4 & 15;
        o->by[g] = (int8_t)((low | (int)(high >> 2 * g & 3) << 4) - 32);
        nibbles(b + 8 + (size_t)g * 16, o->code + (size_t)g * 32);
    }
}

/* n bytes of `times` digits to the base of 3 each, highest first, as a fraction of 256; digit t of
 * byte i is number t * n + i. */
static void digits(const uint8_t *q, int n, int times, uint8_t *code)
{
    for (int i = 0; i < n; i++) {
        uint8_t left = q[i];
        for (int t = 0; t < times; t++, left = (uint8_t)(left * 3))
            code[t * n + i] = (uint8_t)(left * 3 >> 8);
    }
}

/* 32 and 16 bytes of five digits, 4 of four; d */
static void tq1_0(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = block_half(b + 52);
    digits(b, 32, 5, o->code);
    digits(b + 32, 16, 5, o->code + 160);
    digits(b + 48, 4, 4, o->code + 240);
}

static void tq2_0(const uint8_t *b, struct block_codes *o)
{
    o->scale[0] = block_half(b + 64);
    for (int i = 0; i < 256; i++)
        o->code[i] = (uint8_t)two_bits(b, i);
}

/* ---------------------------------------------------------------- 64 numbers */

/* Scales of 16 numbers, e4m3 without a sign, for numbers that are doubled here. NaN becomes 0, as
 * in ggml. */
static void nvfp4(const uint8_t *b, struct block_codes *o)
{
    for (int g = 0; g < 4; g++) {
        const uint8_t *q = b + 4 + (size_t)g * 8;
        const float power = ldexpf(1, (b[g] >> 3 & 15) - 11), rest = (float)(b[g] & 7);
        o->scale[g] = b[g] == 0x7f ? 0 : b[g] >> 3 & 15 ? power * (8 + rest) : 0x1p-10f * rest;
        for (int i = 0; i < 8; i++) {
            o->code[g * 16 + i] = q[i] & 15;
            o->code[g * 16 + i + 8] = q[i] >> 4;
        }
    }
}

/* ---------------------------------------------------------------- 64 or 128 numbers, one scale */

static void repeat_scale(struct block_codes *o, float scale, int times)
{
    for (int i = 0; i < times; i++)
        o->scale[i] = scale;
}

/* A bit each: minus or plus the scale. */
static void q1_0(const uint8_t *b, struct block_codes *o)
{
    repeat_scale(o, block_half(b), 4);
    for (int i = 0; i < 128; i++)
        o->code[i] = (uint8_t)((b[2 + i / 8] >> i % 8 & 1) * 2);
}

/* -1, 0, 1 or 2 times the scale. */
static void q2_0(const uint8_t *b, struct block_codes *o)
{
    repeat_scale(o, block_half(b), 2);
    for (int i = 0; i < 64; i++)
        o->code[i] = b[2 + i / 4] >> i % 4 * 2 & 3;
}

/* ---------------------------------------------------------------- all of them */

/* The format of a packing, the conversion of its blocks to codes, and the factor of all numbers;
 * 0: 1. */
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): rows read in this order
static const struct packed {
    enum format_id format;
    block_unpack *unpack;
    float factor;
} packed[GGUF_N_PACKINGS] = {
    [GGUF_Q4_0] = {FORMAT_Q4_0, q4_0},
    [GGUF_Q4_1] = {FORMAT_Q4_1, q4_1},
    [GGUF_Q5_0] = {FORMAT_Q5_0, q5_0},
    [GGUF_Q5_1] = {FORMAT_Q5_1, q5_1},
    [GGUF_Q8_0] = {FORMAT_Q8_0, q8_0},
    [GGUF_Q2_K] = {FORMAT_Q2_K, q2_k},
    [GGUF_Q3_K] = {FORMAT_Q3_K, q3_k},
    [GGUF_Q4_K] = {FORMAT_Q4_K, q4_k},
    [GGUF_Q5_K] = {FORMAT_Q5_K, q5_k},
    [GGUF_Q6_K] = {FORMAT_Q6_K, q6_k},
    [GGUF_IQ4_NL] = {FORMAT_IQ4_NL, iq4_nl},
    [GGUF_IQ4_XS] = {FORMAT_IQ4_XS, iq4_xs},
    [GGUF_MXFP4] = {FORMAT_MXFP4, mxfp4},
    [GGUF_TQ1_0] = {FORMAT_TERNARY, tq1_0},
    [GGUF_TQ2_0] = {FORMAT_TERNARY, tq2_0},
    [GGUF_IQ1_S] = {FORMAT_IQ1_S, block_iq1_s, 0.125f},
    [GGUF_IQ1_M] = {FORMAT_IQ1_M, block_iq1_m, 0.125f},
    [GGUF_IQ2_XXS] = {FORMAT_IQ2_XXS, block_iq2_xxs, 0.125f},
    [GGUF_IQ2_XS] = {FORMAT_IQ2_XS, block_iq2_xs, 0.125f},
    [GGUF_IQ2_S] = {FORMAT_IQ2_S, block_iq2_s, 0.125f},
    [GGUF_IQ3_XXS] = {FORMAT_IQ3_XXS, block_iq3_xxs, 0.25f},
    [GGUF_IQ3_S] = {FORMAT_IQ3_S, block_iq3_s},
    [GGUF_NVFP4] = {FORMAT_NVFP4, nvfp4},
    [GGUF_Q1_0] = {FORMAT_Q1_0, q1_0},
    [GGUF_Q2_0] = {FORMAT_Q2_0, q2_0},
};

bool block_readable(enum gguf_packing p) { return packed[p].unpack != NULL; }

void block_numbers(enum gguf_packing p, const uint8_t *block, float out[BLOCK_MAX])
{
    const struct format *f = &formats[packed[p].format];
    struct block_codes o;
    packed[p].unpack(block, &o);
    const float factor = packed[p].factor != 0 ? packed[p].factor : 1;
    const float offset = f->offsets ? o.offset : 0.0f;
    for (uint32_t i = 0; i < gguf_packings[p].elements; i++) {
        const float scale = o.scale[i / f->block];
        const uint32_t g = i / f->group;
        const float by = f->nested ? scale * (float)o.by[g] : scale;
        const float less = f->nested && f->offsets ? offset * (float)o.less[g] : offset;
        const int n = f->table ? f->table[o.code[i]] : o.code[i];
        out[i] = (by * (float)(n - (int)f->zero) - less) * factor;
    }
}

/* ---------------------------------------------------------------- a matrix of them */

static int check(struct stored_matrix *m, struct err *e)
{
    const struct tensor *t = m->t[STORED_CODES];
    char want[64];
    if (t->type == T_BLOCKS && t->n_dims == 2 && t->dims[0] == (uint64_t)m->rows &&
        t->dims[1] == (uint64_t)m->cols)
        return 0;
    snprintf(want, sizeof(want), "%lld, %lld", (long long)m->rows, (long long)m->cols);
    return tensor_wrong_shape(t, want, e);
}

static int64_t place_of(const struct tensor *t, int64_t row)
{
    return t->row_at ? t->row_at[row] : row;
}

static void plain(const struct tensor *t, const uint8_t *at, int64_t n, float *out)
{
    uint16_t h;
    for (int64_t i = 0; i < n; i++) {
        if (t->packing == GGUF_F32) {
            memcpy(&out[i], at + i * 4, sizeof(float));
            continue;
        }
        memcpy(&h, at + i * 2, sizeof(h));
        out[i] = t->packing == GGUF_F16 ? f32_of_f16(h) : f32_of_bf16(h);
    }
}

/* The file's factor of a tensor's numbers. */
static float times_of(const struct tensor *t) { return t->times != 0 ? t->times : 1; }

/* Numbers [col, col + n) of a row in the file's order. */
static void in_file(const struct tensor *t, const uint8_t *line, int64_t col, int64_t n, float *out)
{
    const struct gguf_packing_info *p = &gguf_packings[t->packing];
    float block[BLOCK_MAX];
    if (p->elements == 1) {
        plain(t, line + col * p->bytes, n, out);
        return;
    }
    for (int64_t done = 0; done < n;) {
        const int64_t at = col + done, skip = at % p->elements;
        int64_t take = p->elements - skip;
        take = take < n - done ? take : n - done;
        block_numbers((enum gguf_packing)t->packing, line + at / p->elements * p->bytes, block);
        for (int64_t i = 0; i < take; i++)
            out[done + i] = block[skip + i] * times_of(t);
        done += take;
    }
}

/* Moved columns were moved in runs. */
static void numbers(const struct stored_matrix *m, int64_t row, int64_t col, int64_t n, float *out)
{
    const struct tensor *t = m->t[STORED_CODES];
    const struct gguf_packing_info *p = &gguf_packings[t->packing];
    const uint8_t *line =
        (const uint8_t *)t->data + place_of(t, row) * (m->cols / p->elements) * p->bytes;
    if (!t->col_at) {
        in_file(t, line, col, n, out);
        return;
    }
    for (int64_t at = 0, run; at < n; at += run) {
        const uint32_t *c = t->col_at + col + at;
        for (run = 1; at + run < n && c[run] == c[0] + run;)
            run++;
        in_file(t, line, c[0], run, out + at);
    }
}

/* Q4_0 equals --quantize int4 except for its 16-bit scales: its codes are kept. Slices that begin
 * inside a block are quantised again. */
static bool scales(const struct stored_matrix *m, int64_t row, int64_t rows, int64_t col,
                   int64_t cols, uint16_t *out)
{
    const struct tensor *t = m->t[STORED_CODES];
    const struct gguf_packing_info *p = &gguf_packings[GGUF_Q4_0];
    if (t->packing != GGUF_Q4_0 || t->times != 0 || t->col_at || col % p->elements ||
        cols % p->elements)
        return false;
    const int64_t line = m->cols / p->elements * p->bytes, n = cols / p->elements;
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *at =
            (const uint8_t *)t->data + place_of(t, row + r) * line + col / p->elements * p->bytes;
        for (int64_t g = 0; g < n; g++)
            out[r * n + g] = bf16_of_f32(f32_of_f16(half_at(at + g * p->bytes)));
    }
    return true;
}

static int by_place(const void *a, const void *b, void *col_at)
{
    const uint32_t *at = col_at, x = at[*(const uint32_t *)a], y = at[*(const uint32_t *)b];
    return (x > y) - (x < y);
}

/* The slice's reordered columns in the order of the file, out[s->cols]. */
static void order(const struct stored_matrix *m, const struct stored_slice *s, uint32_t *out)
{
    for (int64_t i = 0; i < s->cols; i++)
        out[i] = (uint32_t)i;
    qsort_r(out, (size_t)s->cols, sizeof(*out), by_place,
            (void *)(uintptr_t)(m->t[STORED_CODES]->col_at + s->col));
}

/* True if the slice's reordered columns are whole blocks of `block` columns in the file. */
static bool whole_blocks(const struct stored_matrix *m, const struct stored_slice *s, int64_t block)
{
    const uint32_t *col_at = m->t[STORED_CODES]->col_at + s->col;
    const int64_t blocks = m->cols / block;
    uint32_t *n = calloc((size_t)blocks, sizeof(*n)); /* columns of each that the slice has */
    bool whole = n != NULL;
    for (int64_t i = 0; n && i < s->cols; i++)
        n[col_at[i] / block]++;
    for (int64_t i = 0; whole && i < blocks; i++)
        whole = n[i] == 0 || n[i] == block;
    free(n);
    return whole;
}

/* Codes are kept if possible: in whole blocks with scales in range. */
static bool form_of(const struct stored_matrix *m, const struct stored_slice *s, struct format *f)
{
    const struct tensor *t = m->t[STORED_CODES];
    const enum gguf_packing packing = (enum gguf_packing)t->packing;
    const int64_t block = gguf_packings[packing].elements;
    if (block == 1 || s->cols % block ||
        (t->col_at ? !whole_blocks(m, s, block) : s->col % block != 0))
        return false;
    *f = formats[packed[packing].format];
    f->factors |= t->times != 0;
    f->ordered = t->col_at != NULL;
    return true;
}

static bool codes_row(const struct stored_matrix *m, int64_t row, const struct stored_slice *s,
                      const struct mat_codes *c, int64_t to)
{
    const struct tensor *t = m->t[STORED_CODES];
    const struct gguf_packing_info *p = &gguf_packings[t->packing];
    const struct format *f = &c->format;
    const int64_t n = p->elements, groups = n / f->group;
    const uint8_t *line = (const uint8_t *)t->data + place_of(t, row) * m->cols / n * p->bytes;
    struct block_codes o;
    if (f->factors)
        c->factor[to] =
            packed[t->packing].factor != 0 ? packed[t->packing].factor * times_of(t) : times_of(t);
    for (int64_t k = 0, at = to * s->cols; k < s->cols; k += n, at += n) {
        const int64_t from = t->col_at ? t->col_at[s->col + c->order[k]] : s->col + k;
        packed[t->packing].unpack(line + from / n * p->bytes, &o);
        memcpy(c->codes + at, o.code, (size_t)n);
        for (int64_t i = 0; i < n / f->block; i++) {
            uint16_t *scale = &c->scale[at / f->block + i];
            *scale = f16_of_f32(o.scale[i]);
            if (!(fabsf(o.scale[i]) <= 256) || f32_of_f16(*scale) != o.scale[i])
                return false;
        }
        if (f->offsets)
            c->offset[at / n] = f16_of_f32(o.offset);
        if (f->nested)
            memcpy(c->by + at / f->group, o.by, (size_t)groups);
        if (f->nested && f->offsets)
            memcpy(c->less + at / f->group, o.less, (size_t)groups);
    }
    return true;
}

static bool codes_rows(const struct stored_matrix *m, int64_t row, uint32_t n_rows,
                       const struct stored_slice *s, const struct mat_codes *c, int64_t to)
{
    for (uint32_t r = 0; r < n_rows; r++)
        if (!codes_row(m, row + r, s, c, to + r))
            return false;
    return true;
}

const struct stored_format stored_blocks = {
    .words = (const char *const[]){NULL},
    .suffix = {".weight"},
    .check = check,
    .numbers = numbers,
    .again = true,
    .scales = scales,
    .form = form_of,
    .codes_rows = codes_rows,
    .order = order,
};
