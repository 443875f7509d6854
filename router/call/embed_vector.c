#include "router/call/embed_vector.h"
#include "router/call/embed_body.h"
#include <string.h>

enum { BITS = 8, HALF = 128 };

enum vector_type vector_type_of(const char *word)
{
    static const char *const words[VECTOR_TYPES] = {"float", "binary", "ubinary"};
    int t = 0;
    while (t < VECTOR_TYPES && strcmp(words[t], word) != 0)
        t++;
    return (enum vector_type)t;
}

/* Eight signs from x on, of which there are n. */
static uint8_t signs(const float *x, uint32_t n, enum vector_type type)
{
    unsigned byte = 0;
    for (uint32_t k = 0; k < BITS; k++)
        byte = byte << 1 | (k < n && x[k] > 0);
    return (uint8_t)(type == VECTOR_BINARY ? byte - HALF : byte);
}

void vector_write(struct buf *out, const float *x, uint32_t n, enum vector_type type, bool base64)
{
    enum { PIECE = 3 * 256 }; /* base64 of whole groups has no padding between pieces */
    uint8_t bytes[PIECE];
    if (type == VECTOR_FLOAT && !base64) {
        texts_json(out, x, n);
        return;
    }
    buf_ch(out, base64 ? '"' : '[');
    if (type == VECTOR_FLOAT) /* little-endian, as all supported machines */
        buf_base64(out, x, n * sizeof(*x));
    for (uint32_t i = 0, some = 0; type != VECTOR_FLOAT && i < n; i += BITS) {
        const uint8_t byte = bytes[some++] = signs(x + i, n - i, type);
        if (!base64)
            buf_fmt(out, "%s%d", i ? "," : "", type == VECTOR_BINARY ? (int8_t)byte : byte);
        if (base64 && (some == PIECE || n - i <= BITS)) {
            buf_base64(out, bytes, some);
            some = 0;
        } else if (some == PIECE) {
            some = 0;
        }
    }
    buf_ch(out, base64 ? '"' : ']');
}
