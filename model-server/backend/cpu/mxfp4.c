/* mxfp4.c - weights that are MXFP4 already, kept so: into panels (kernels.h), and back. Nothing is
 * rounded: what does not have the form is said to be inexact, and the matrix is kept plain. */
#include "model-server/backend/cpu/cpu.h"
#include <math.h>
#include <string.h>

static size_t mx_panel_bytes(const struct weight *w)
{
    return ((size_t)w->cols + MX_BLOCK_COLS - 1) / MX_BLOCK_COLS * MX_BLOCK_BYTES;
}

static float power_of_two(int power) /* -126 .. 127 */
{
    const uint32_t bits = (uint32_t)(power + 127) << 23;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* The code of half a number; -1: it has none. */
static int code_of(float doubled)
{
    static const int8_t codes[13] = {0, 1, 2, 3, 4, -1, 5, -1, 6, -1, -1, -1, 7};
    const float size = fabsf(doubled);
    if (!(size <= 12) || size != (float)(int)size || codes[(int)size] < 0)
        return -1;
    return codes[(int)size] | (signbit(doubled) ? 8 : 0);
}

/* A group into a lane: the power of two in which its greatest number is 4 or 6. Of the powers in
 * which all its numbers have codes this is the least, so that it is right if any is. */
static bool pack_group(char *block, uint32_t group, int lane, const float *f, uint32_t n)
{
    float most = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(f[i]))
            return false;
        most = fabsf(f[i]) > most ? fabsf(f[i]) : most;
    }
    if (most == 0)
        return true; /* a scale of 0 */
    const int power = ilogbf(most) - 2;
    if (power < -126)
        return false;
    const float doubled = power_of_two(1 - power);
    block[group * LANES + (uint32_t)lane] = (char)(power + 127);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t in = group * MX_GROUP + i;
        const int code = code_of(f[i] * doubled);
        if (code < 0 || (code % 8 == 0 && f[i] != 0)) /* the latter vanished */
            return false;
        block[(size_t)(1 + in / 8) * STEP_BYTES + (size_t)lane * 4 + in % 8 / 2] |=
            (char)(code << in % 2 * 4);
    }
    return true;
}

static void mx_pack(struct device *d, int thread, const struct weight *w, char *panel, int lane,
                    const struct mat_part *p, int64_t row)
{
    const float *f = cpu_widen_row(d, thread, p, row);
    for (uint32_t k = 0; k < w->cols; k += MX_GROUP) {
        const uint32_t n = w->cols - k < MX_GROUP ? w->cols - k : MX_GROUP;
        char *block = panel + (size_t)(k / MX_BLOCK_COLS) * MX_BLOCK_BYTES;
        if (!pack_group(block, k % MX_BLOCK_COLS / MX_GROUP, lane, f + k, n)) {
            atomic_store_explicit(w->inexact, true, memory_order_relaxed);
            return;
        }
    }
}

static void mx_row(float *dst, const struct weight *w, uint32_t row, uint32_t k, uint32_t n)
{
    const char *panel = weight_panel(w, row / LANES);
    for (uint32_t i = k; i < k + n; i++)
        dst[i - k] = mx_at(panel, row % LANES, i);
}

static void mx_widen(const struct kernels *kern, float *dst, const struct weight *w,
                     const char *panel, uint32_t k, uint32_t n)
{
    (void)w;
    kern->widen_mxfp4(dst, panel, k, n);
}

const struct weight_format format_mxfp4 = {mx_panel_bytes, mx_pack, mx_row, linear_float, mx_widen};
