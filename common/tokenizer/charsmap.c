#include "common/tokenizer/charsmap.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

static int digit64(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes base64 to `out`, which has 3/4 of the text's size; SIZE_MAX: invalid. */
static size_t base64(const char *s, unsigned char *out)
{
    size_t n = 0;
    uint32_t bits = 0;
    unsigned have = 0;
    for (; *s && *s != '='; s++) {
        int d = digit64(*s);
        if (d < 0)
            return SIZE_MAX;
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[n++] = (unsigned char)(bits >> have);
        }
    }
    return n;
}

static uint32_t le32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

struct charsmap *charsmap_load(const char *text, struct err *e)
{
    unsigned char *raw = malloc(strlen(text) + 4);
    struct charsmap *m = calloc(1, sizeof *m);
    size_t n = raw ? base64(text, raw) : 0, trie;
    if (!raw || !m) {
        err_nomem(e);
        goto fail;
    }
    if (n == SIZE_MAX || n < 4 || (trie = le32(raw)) > n - 4 || trie % 4 || !trie) {
        err_set(e, ERR_VALIDATION, "precompiled_charsmap: not a compiled character map");
        goto fail;
    }
    m->units = trie / 4;
    m->text_n = n - 4 - trie;
    m->unit = malloc(trie);
    m->text = malloc(m->text_n + 1);
    if (!m->unit || !m->text) {
        err_nomem(e);
        goto fail;
    }
    for (size_t i = 0; i < m->units; i++)
        m->unit[i] = le32(raw + 4 + i * 4);
    memcpy(m->text, raw + 4 + trie, m->text_n);
    m->text[m->text_n] = 0;
    if (!utf8_valid(m->text, m->text_n)) {
        err_set(e, ERR_VALIDATION, "precompiled_charsmap: replacements are not UTF-8");
        goto fail;
    }
    free(raw);
    return m;
fail:
    free(raw);
    charsmap_free(m);
    return NULL;
}

void charsmap_free(struct charsmap *m)
{
    if (!m)
        return;
    free(m->unit);
    free(m->text);
    free(m);
}

static size_t child_base(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6); }

const char *charsmap_find(const struct charsmap *m, const char *s, size_t n, size_t *len)
{
    size_t node = child_base(m->unit[0]);
    for (size_t i = 0; i < n && s[i]; i++) {
        node ^= (unsigned char)s[i];
        if (node >= m->units || (m->unit[node] & (1u << 31 | 0xFF)) != (unsigned char)s[i])
            return NULL;
        uint32_t unit = m->unit[node];
        node ^= child_base(unit);
        if (node >= m->units)
            return NULL;
        if (unit >> 8 & 1) {
            size_t at = m->unit[node] & ~(1u << 31);
            if (at > m->text_n || (at < m->text_n && ((unsigned char)m->text[at] & 0xC0) == 0x80))
                return NULL;
            *len = strlen(m->text + at);
            return m->text + at;
        }
    }
    return NULL;
}
