/* The blocks of ggml: of 32 numbers with one scale (and offset) in half precision, and of 256 whose
 * scales (and offsets) of 16 or 32 numbers are themselves a few bits, times one of the block (the
 * "K" ones). The layouts are those of ggml-common.h; the order of the operations, which the last
 * bits depend on, is ggml's. */
#include "model-server/model/quant/blocks.h"
#include "model-server/backend/numbers.h"
#include "model-server/model/quant/stored.h"
#include <stdio.h>
#include <string.h>

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof(h));
    return f32_of_f16(h);
}

static int signed_at(const uint8_t *p) { return (int8_t)*p; }

/* ---------------------------------------------------------------- 32 numbers */

static void q4_0(const uint8_t *b, float *out)
{
    const float d = half_at(b);
    for (int i = 0; i < 16; i++) {
        out[i] = (float)((b[2 + i] & 15) - 8) * d;
        out[i + 16] = (float)((b[2 + i] >> 4) - 8) * d;
    }
}

static void q4_1(const uint8_t *b, float *out)
{
    const float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < 16; i++) {
        out[i] = (float)(b[4 + i] & 15) * d + m;
        out[i + 16] = (float)(b[4 + i] >> 4) * d + m;
    }
}

/* The fifth bits of all 32 are a word of their own. */
static int fifth(const uint8_t *bits, int i) { return (bits[i / 8] >> i % 8 & 1) << 4; }

static void q5_0(const uint8_t *b, float *out)
{
    const float d = half_at(b);
    for (int i = 0; i < 16; i++) {
        out[i] = (float)(((b[6 + i] & 15) | fifth(b + 2, i)) - 16) * d;
        out[i + 16] = (float)(((b[6 + i] >> 4) | fifth(b + 2, i + 16)) - 16) * d;
    }
}

static void q5_1(const uint8_t *b, float *out)
{
    const float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < 16; i++) {
        out[i] = (float)((b[8 + i] & 15) | fifth(b + 4, i)) * d + m;
        out[i + 16] = (float)((b[8 + i] >> 4) | fifth(b + 4, i + 16)) * d + m;
    }
}

static void q8_0(const uint8_t *b, float *out)
{
    const float d = half_at(b);
    for (int i = 0; i < 32; i++)
        out[i] = (float)signed_at(b + 2 + i) * d;
}

/* ---------------------------------------------------------------- 256 numbers */

/* In both halves of 128, byte l of 32 holds the two bits of the numbers l, l + 32, l + 64, l + 96.
 */
static int two_bits(const uint8_t *q, int i)
{
    return q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

/* scales[16]: 4 bits of scale, 4 of offset, of 16 numbers; qs[64]; d; dmin */
static void q2_k(const uint8_t *b, float *out)
{
    const float d = half_at(b + 80), min = half_at(b + 82);
    for (int i = 0; i < 256; i++) {
        const uint8_t s = b[i / 16];
        const float scale = d * (float)(s & 15), offset = min * (float)(s >> 4);
        out[i] = scale * (float)two_bits(b + 16, i) - offset;
    }
}

/* hmask[32]: bit g of byte l is the third bit of number 32 g + l; qs[64]; scales[12]: of 6 bits,
 * the lower four in nibbles of 8 bytes, the upper two in 4 bytes; d */
static void q3_k(const uint8_t *b, float *out)
{
    const uint8_t *s = b + 96;
    const float d = half_at(b + 108);
    for (int i = 0; i < 256; i++) {
        const int g = i / 16, low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
        const int high = s[8 + g % 4] >> g / 4 * 2 & 3;
        const float scale = d * (float)((low | high << 4) - 32);
        const int third = b[i % 32] >> i / 32 & 1;
        out[i] = scale * (float)(two_bits(b + 32, i) - (third ? 0 : 4));
    }
}

/* Scale and offset, of 6 bits each, of the 32 numbers g: eight of both in 12 bytes. */
static void scale_and_offset(const uint8_t *s, int g, int *scale, int *offset)
{
    *scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    *offset = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
}

/* d; dmin; scales[12]; five: qh[32], bit g of byte l is the fifth bit of number 32 g + l; qs[128]:
 * byte l of 32 holds the numbers l and l + 32 of 64 */
static void q45_k(const uint8_t *b, float *out, bool five)
{
    const float d = half_at(b), min = half_at(b + 2);
    const uint8_t *q = b + (five ? 48 : 16);
    for (int g = 0; g < 8; g++) {
        int scale, offset;
        scale_and_offset(b + 4, g, &scale, &offset);
        const float by = d * (float)scale, less = min * (float)offset;
        for (int l = 0; l < 32; l++) {
            const int low = q[g / 2 * 32 + l] >> g % 2 * 4 & 15;
            const int high = five ? (b[16 + l] >> g & 1) << 4 : 0;
            out[g * 32 + l] = by * (float)(low + high) - less;
        }
    }
}

static void q4_k(const uint8_t *b, float *out) { q45_k(b, out, false); }
static void q5_k(const uint8_t *b, float *out) { q45_k(b, out, true); }

/* ql[128], qh[64]: of each half of 128, byte l of 64 holds the lower bits of l and l + 64, byte l
 * of 32 the upper two of l, l + 32, l + 64, l + 96; scales[16]: of 16 numbers; d */
static void q6_k(const uint8_t *b, float *out)
{
    const float d = half_at(b + 208);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, k = i % 128;
        const int low = b[half * 64 + k % 64] >> k / 64 * 4 & 15;
        const int high = two_bits(b + 128, i) << 4;
        const float scale = d * (float)signed_at(b + 192 + i / 16);
        out[i] = scale * (float)((low | high) - 32);
    }
}

void block_numbers(enum gguf_packing p, const uint8_t *block, float out[BLOCK_MAX])
{
    static void (*const of[GGUF_N_PACKINGS])(const uint8_t *b, float *out) = {
        [GGUF_Q4_0] = q4_0, [GGUF_Q4_1] = q4_1, [GGUF_Q5_0] = q5_0, [GGUF_Q5_1] = q5_1,
        [GGUF_Q8_0] = q8_0, [GGUF_Q2_K] = q2_k, [GGUF_Q3_K] = q3_k, [GGUF_Q4_K] = q4_k,
        [GGUF_Q5_K] = q5_k, [GGUF_Q6_K] = q6_k,
    };
    of[p](block, out);
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

/* Rows of heads may lie in pairs: see gguf_weights.c. */
static int64_t place_of(const struct tensor *t, int64_t row)
{
    const int64_t head = t->paired, i = head ? row % head : 0;
    return head ? row - i + (i < head / 2 ? 2 * i : 2 * (i - head / 2) + 1) : row;
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

static void numbers(const struct stored_matrix *m, int64_t row, int64_t col, int64_t n, float *out)
{
    const struct tensor *t = m->t[STORED_CODES];
    const struct gguf_packing_info *p = &gguf_packings[t->packing];
    const uint8_t *line =
        (const uint8_t *)t->data + place_of(t, row) * (m->cols / p->elements) * p->bytes;
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
        memcpy(out + done, block + skip, (size_t)take * sizeof(float));
        done += take;
    }
}

/* Q4_0 is what --quantize int4 makes, but for the sixteen bits that its scales have: its codes stay
 * what they are. Slices that begin inside of a block are quantised anew. */
static bool scales(const struct stored_matrix *m, int64_t row, int64_t rows, int64_t col,
                   int64_t cols, uint16_t *out)
{
    const struct tensor *t = m->t[STORED_CODES];
    const struct gguf_packing_info *p = &gguf_packings[GGUF_Q4_0];
    if (t->packing != GGUF_Q4_0 || col % p->elements || cols % p->elements)
        return false;
    const int64_t line = m->cols / p->elements * p->bytes, n = cols / p->elements;
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *at =
            (const uint8_t *)t->data + place_of(t, row + r) * line + col / p->elements * p->bytes;
        for (int64_t g = 0; g < n; g++)
            out[r * n + g] = bf16_of_f32(half_at(at + g * p->bytes));
    }
    return true;
}

const struct stored_format stored_blocks = {
    .words = (const char *const[]){NULL},
    .suffix = {".weight"},
    .check = check,
    .numbers = numbers,
    .again = true,
    .scales = scales,
};
