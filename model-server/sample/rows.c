#include "model-server/sample/rows.h"
#include "common/multiversion.h"
#include "model-server/backend/draw_math.h"
#include <math.h>

enum { LANES = 16 };

MULTIVERSION float row_max(const float *s, size_t n)
{
    float lane[LANES];
    uint32_t nan[LANES] = {0}, any = 0;
    size_t i = 0;
    for (int j = 0; j < LANES; j++)
        lane[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float x = s[i + j];
            nan[j] |= x != x;
            lane[j] = x > lane[j] ? x : lane[j];
        }
    for (; i < n; i++) {
        any |= s[i] != s[i];
        lane[0] = s[i] > lane[0] ? s[i] : lane[0];
    }
    for (int j = 0; j < LANES; j++) {
        any |= nan[j];
        lane[0] = lane[j] > lane[0] ? lane[j] : lane[0];
    }
    return any ? NAN : lane[0];
}

MULTIVERSION double row_exp(const float *s, float max, float *w, size_t n)
{
    enum {
        BLOCK = 256
    }; /* lanes are emptied into a double this often: the sum stays exact enough */
    double sum = 0;
    size_t i = 0;
    while (i + LANES <= n) {
        float lane[LANES] = {0};
        size_t end = n - i > BLOCK ? i + BLOCK : n;
        for (; i + LANES <= end; i += LANES)
            for (int j = 0; j < LANES; j++) {
                float y = draw_weight(s[i + j] - max);
                w[i + j] = y;
                lane[j] += y;
            }
        for (int j = 0; j < LANES; j++)
            sum += lane[j];
    }
    for (; i < n; i++) {
        w[i] = draw_weight(s[i] - max);
        sum += w[i];
    }
    return sum;
}

MULTIVERSION void row_divide(float *s, float by, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s[i] /= by;
}

void row_mask(float *s, const uint32_t *mask, size_t n)
{
    for (size_t i = 0; i < n; i += 32) {
        uint32_t m = mask[i / 32];
        size_t len = n - i < 32 ? n - i : 32;
        if (!m) /* most words of most masks */
            for (size_t j = 0; j < len; j++)
                s[i + j] = -INFINITY;
        for (size_t j = 0; m && m != UINT32_MAX && j < len; j++)
            if (!(m >> j & 1))
                s[i + j] = -INFINITY;
    }
}
