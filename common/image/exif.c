/* The orientation in an EXIF block. */
#include "common/image/canvas.h"
#include <string.h>

enum { ORIENTATION = 0x0112, ENTRY_BYTES = 12, TYPE_BYTE = 1, TYPE_SHORT = 3, TYPE_LONG = 4 };

/* A TIFF block in its own byte order. */
struct tiff {
    const uint8_t *p;
    size_t n;
    bool big;
};

static uint32_t number(const struct tiff *t, size_t at, size_t bytes)
{
    uint32_t v = 0;
    for (size_t i = 0; i < bytes; i++)
        v = v << 8 | t->p[at + (t->big ? i : bytes - 1 - i)];
    return v;
}

/* The single number in an entry; 0: another type. */
static uint32_t entry_value(const struct tiff *t, size_t at)
{
    if (number(t, at + 4, 4) != 1)
        return 0;
    switch (number(t, at + 2, 2)) {
    case TYPE_BYTE:
        return number(t, at + 8, 1);
    case TYPE_SHORT:
        return number(t, at + 8, 2);
    case TYPE_LONG:
        return number(t, at + 8, 4);
    default:
        return 0;
    }
}

uint32_t exif_orientation(const uint8_t *p, size_t n)
{
    while (n >= 6 && !memcmp(p, "Exif\0", 6)) {
        p += 6;
        n -= 6;
    }
    if (n < 8 || (memcmp(p, "II*\0", 4) != 0 && memcmp(p, "MM\0*", 4) != 0))
        return 1;
    const struct tiff t = {p, n, p[0] == 'M'};
    const size_t first = number(&t, 4, 4);
    if (first > n || n - first < 2)
        return 1;
    const size_t count = number(&t, first, 2), room = (n - first - 2) / ENTRY_BYTES;
    for (size_t i = 0; i < count && i < room; i++) {
        const size_t at = first + 2 + i * ENTRY_BYTES;
        if (number(&t, at, 2) == ORIENTATION) {
            const uint32_t v = entry_value(&t, at);
            return v >= 1 && v <= 8 ? v : 1;
        }
    }
    return 1;
}
