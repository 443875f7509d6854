#include "common/image/canvas.h"
#include <string.h>

/* ---------------------------------------------------------------- positions */
struct canvas canvas_over(const struct image_info *info, uint8_t *rgb)
{
    const bool turned = info->orientation > 4;
    return (struct canvas){.rgb = rgb,
                           .width = turned ? info->height : info->width,
                           .height = turned ? info->width : info->height,
                           .orientation = info->orientation};
}

uint8_t *canvas_row(const struct canvas *c, uint32_t y)
{
    return c->orientation == 1 ? c->rgb + (size_t)y * c->width * 3 : NULL;
}

/* EXIF orientations combine mirroring in x, mirroring in y, and transposition. */
void canvas_put(const struct canvas *c, uint32_t y, const uint8_t *rgb)
{
    const unsigned bit = 1U << c->orientation;
    const bool turned = c->orientation > 4;
    const bool mirror_x = bit & (1U << 2 | 1U << 3 | 1U << 7 | 1U << 8);
    const bool mirror_y = bit & (1U << 3 | 1U << 4 | 1U << 6 | 1U << 7);
    const size_t shown_width = turned ? c->height : c->width;
    const size_t first_x = mirror_x ? c->width - 1 : 0, at_y = mirror_y ? c->height - 1 - y : y;
    const ptrdiff_t across = turned ? (ptrdiff_t)shown_width * 3 : 3;
    const ptrdiff_t step = mirror_x ? -across : across;
    uint8_t *to =
        c->rgb + 3 * (turned ? first_x * shown_width + at_y : at_y * shown_width + first_x);
    if (step == 3) {
        if (to != rgb)
            memcpy(to, rgb, (size_t)c->width * 3);
        return;
    }
    for (uint32_t x = 0; x < c->width; x++, rgb += 3)
        memcpy(to + (ptrdiff_t)x * step, rgb, 3);
}

/* ---------------------------------------------------------------- colours */
/* Pillow's alpha_composite() over opaque white: its quotient a * 255 * 255 * 128 / (255 * 255) is
 * exactly a * 128. Alpha 0 gives white. */
static uint8_t over_white(uint32_t value, uint32_t alpha)
{
    const uint32_t t = value * alpha * 128 + 255 * (255 - alpha) * 128 + (128 << 7);
    return (uint8_t)(((t >> 8) + t) >> 8 >> 7);
}

void rgb_from_grey(uint8_t *rgb, const uint8_t *grey, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] = grey[i];
}

void rgb_from_grey_alpha(uint8_t *rgb, const uint8_t *grey_alpha, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] =
            over_white(grey_alpha[2 * i], grey_alpha[2 * i + 1]);
}

void rgb_from_rgba(uint8_t *rgb, const uint8_t *rgba, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 3; k++)
            rgb[3 * i + k] = over_white(rgba[4 * i + k], rgba[4 * i + 3]);
}

void rgb_from_inverted_cmyk(uint8_t *rgb, const uint8_t *cmyk, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t light = cmyk[4 * i + 3]; /* 255 - black */
        for (size_t k = 0; k < 3; k++) {
            const uint32_t t = (255U - cmyk[4 * i + k]) * light + 128;
            rgb[3 * i + k] = (uint8_t)(light - (((t >> 8) + t) >> 8));
        }
    }
}

void palette_grey(struct palette *p)
{
    for (unsigned i = 0; i < 256; i++)
        memset(p->rgb[i], (int)i, 3);
}

void palette_set(struct palette *p, unsigned i, uint8_t red, uint8_t green, uint8_t blue)
{
    p->rgb[i][0] = red;
    p->rgb[i][1] = green;
    p->rgb[i][2] = blue;
}

void palette_blend(struct palette *p, unsigned i, uint8_t alpha)
{
    for (int k = 0; k < 3; k++)
        p->rgb[i][k] = over_white(p->rgb[i][k], alpha);
}

void rgb_from_palette(uint8_t *rgb, const uint8_t *index, size_t n, const struct palette *p)
{
    for (size_t i = 0; i < n; i++)
        memcpy(rgb + 3 * i, p->rgb[index[i]], 3);
}
