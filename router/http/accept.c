#include "router/http/accept.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { KEY_LEN = 24, GUID_LEN = 36, BLOCK = 64, DIGEST = 20 };

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static uint32_t rotate(uint32_t v, int n) { return v << n | v >> (32 - n); }

static uint32_t load(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* FIPS 180-4, 6.1.2. */
static void sha1_block(uint32_t h[5], const unsigned char *p)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int t = 0; t < 16; t++)
        w[t] = load(p + 4 * (size_t)t);
    for (int t = 16; t < 80; t++)
        w[t] = rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    for (int t = 0; t < 80; t++) {
        uint32_t f = t < 20   ? ((b & c) | (~b & d)) + 0x5a827999u
                     : t < 40 ? (b ^ c ^ d) + 0x6ed9eba1u
                     : t < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcu
                              : (b ^ c ^ d) + 0xca62c1d6u;
        uint32_t next = rotate(a, 5) + f + e + w[t];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

/* SHA-1 of the 60 bytes of a key and the protocol's constant: two blocks with padding. */
static void sha1_60(const char *text, unsigned char out[DIGEST])
{
    uint32_t h[5] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u};
    unsigned char p[2 * BLOCK] = {0};
    memcpy(p, text, KEY_LEN + GUID_LEN);
    p[KEY_LEN + GUID_LEN] = 0x80;
    p[2 * BLOCK - 2] = (KEY_LEN + GUID_LEN) * 8 >> 8;
    p[2 * BLOCK - 1] = (KEY_LEN + GUID_LEN) * 8 & 255;
    sha1_block(h, p);
    sha1_block(h, p + BLOCK);
    for (int i = 0; i < DIGEST; i++)
        out[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}

static void base64(const unsigned char in[DIGEST], char out[WS_ACCEPT_LEN + 1])
{
    for (size_t i = 0; i < WS_ACCEPT_LEN / 4; i++) {
        uint32_t v = (uint32_t)in[3 * i] << 16 | (uint32_t)in[3 * i + 1] << 8 |
                     (3 * i + 2 < DIGEST ? in[3 * i + 2] : 0);
        for (size_t k = 0; k < 4; k++)
            out[4 * i + k] = alphabet[v >> (18 - 6 * k) & 63];
    }
    out[WS_ACCEPT_LEN - 1] = '=';
    out[WS_ACCEPT_LEN] = 0;
}

bool ws_accept(const char *key, char out[WS_ACCEPT_LEN + 1])
{
    char text[KEY_LEN + GUID_LEN + 1];
    unsigned char digest[DIGEST];
    /* 16 bytes are 22 base64 characters; the last one has four bits that must be zero */
    if (!key || strlen(key) != KEY_LEN || strspn(key, alphabet) != KEY_LEN - 2 ||
        strcmp(key + KEY_LEN - 2, "==") != 0 || !strchr("AQgw", key[KEY_LEN - 3]))
        return false;
    snprintf(text, sizeof(text), "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    sha1_60(text, digest);
    base64(digest, out);
    return true;
}
