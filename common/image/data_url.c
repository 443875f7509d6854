#include "common/image/data_url.h"
#include "common/hex.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---------------------------------------------------------------- base64 */
enum { NO_SYMBOL = 0xff };

static void make_values(uint8_t values[256])
{
    static const char symbols[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    memset(values, NO_SYMBOL, 256);
    for (uint8_t i = 0; i < 64; i++)
        values[(uint8_t)symbols[i]] = i;
}

static int wrong_symbol(const uint8_t values[256], const char *s, size_t n, struct err *e)
{
    size_t at = 0;
    while (at < n && values[(uint8_t)s[at]] != NO_SYMBOL)
        at++;
    return err_set(e, ERR_VALIDATION, "base64 encoding is invalid: a wrong symbol at offset %zu",
                   at);
}

/* The last group: 2 or 3 symbols after removing the padding. */
static int decode_rest(const uint8_t values[256], const char *s, size_t n, uint8_t *out,
                       struct err *e)
{
    uint32_t v = 0;
    for (size_t i = 0; i < n; i++) {
        v = v << 6 | values[(uint8_t)s[i]];
    }
    if (n == 2 ? v & 0xf : v & 3)
        return err_set(e, ERR_VALIDATION,
                       "base64 encoding is invalid: the last symbol has bits left over");
    out[0] = (uint8_t)(n == 2 ? v >> 4 : v >> 10);
    if (n == 3)
        out[1] = (uint8_t)(v >> 2);
    return 0;
}

int base64_decode(const char *s, size_t n, uint8_t *out, size_t *len, struct err *e)
{
    uint8_t values[256];
    make_values(values);
    size_t symbols = n, at = 0;
    *len = 0;
    while (symbols > 0 && n - symbols < 2 && s[symbols - 1] == '=')
        symbols--;
    if (n % 4)
        return err_set(e, ERR_VALIDATION,
                       "base64 encoding is invalid: its length is not a multiple of 4");
    const size_t whole = symbols / 4 * 4, rest = symbols - whole;
    for (uint8_t *to = out; at < whole; at += 4, to += 3) {
        const uint32_t a = values[(uint8_t)s[at]], b = values[(uint8_t)s[at + 1]];
        const uint32_t c = values[(uint8_t)s[at + 2]], d = values[(uint8_t)s[at + 3]];
        if ((a | b | c | d) > 63)
            return wrong_symbol(values, s, symbols, e);
        const uint32_t v = a << 18 | b << 12 | c << 6 | d;
        to[0] = (uint8_t)(v >> 16);
        to[1] = (uint8_t)(v >> 8);
        to[2] = (uint8_t)v;
    }
    *len = whole / 4 * 3;
    if (rest == 0)
        return 0;
    for (; at < symbols; at++)
        if (values[(uint8_t)s[at]] == NO_SYMBOL)
            return wrong_symbol(values, s, symbols, e);
    if (decode_rest(values, s + whole, rest, out + *len, e))
        return -1;
    *len += rest - 1;
    return 0;
}

static bool is_blank(char c) { return c && strchr(" \t\n\f\r", c); }

/* Writes strict base64 to `out`, which has space for n + 3 bytes: without blanks, with `+` and `/`,
 * padded. Encoders wrap lines, omit the padding, or escape symbols for URLs. */
static size_t make_strict(const char *s, size_t n, char *out)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '%' && n - i > 2 && hex_digit(s[i + 1]) >= 0 && hex_digit(s[i + 2]) >= 0) {
            c = (char)(hex_digit(s[i + 1]) << 4 | hex_digit(s[i + 2]));
            i += 2;
        }
        if (!is_blank(c))
            out[k++] = (char)(c == '-' ? '+' : c == '_' ? '/' : c);
    }
    for (int i = 0; i < 2 && k > 0 && out[k - 1] == '='; i++)
        k--;
    while (k % 4 > 1)
        out[k++] = '=';
    return k;
}

/* Strict base64 is decoded where it is. */
int base64_decode_lenient(const char *s, size_t n, uint8_t *out, size_t *len, struct err *e)
{
    struct err first = ERR_INIT;
    if (base64_decode(s, n, out, len, &first) == 0)
        return 0;
    char *strict = malloc(n + 3);
    if (!strict)
        return err_nomem(e);
    const int rc = base64_decode(strict, make_strict(s, n, strict), out, len, e);
    free(strict);
    return rc;
}

/* ---------------------------------------------------------------- the URL */
bool data_url_is(const char *url, size_t n) { return n >= 5 && !strncasecmp(url, "data:", 5); }

static bool ends_with_base64(const char *p, size_t n, enum data_url_rule rule)
{
    static const char word[] = "base64";
    const size_t k = sizeof(word) - 1;
    if (n < k ||
        (rule == DATA_URL_TGI ? memcmp(p + n - k, word, k) : strncasecmp(p + n - k, word, k)) != 0)
        return false;
    for (n -= k; rule == DATA_URL_OPENAI && n > 0 && p[n - 1] == ' ';)
        n--;
    return n > 0 && p[n - 1] == ';';
}

static bool is_token(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$&^_.+-/", c));
}

static int copy_mime(const char *p, size_t n, char out[128], struct err *e)
{
    if (n >= 128)
        return err_set(e, ERR_VALIDATION, "the media type of the data URL is too long");
    for (size_t i = 0; i < n; i++) {
        if (!is_token(p[i]))
            return err_set(e, ERR_VALIDATION, "the media type of the data URL is not one");
        out[i] = (char)(p[i] >= 'A' && p[i] <= 'Z' ? p[i] + ('a' - 'A') : p[i]);
    }
    out[n] = '\0';
    return 0;
}

int data_url_decode(const char *url, size_t n, enum data_url_rule rule, size_t max_bytes,
                    struct data_url *out, struct err *e)
{
    *out = (struct data_url){0};
    const char *head = url + 5, *comma = n >= 5 ? memchr(head, ',', n - 5) : NULL;
    if (!comma || !data_url_is(url, n) || (rule == DATA_URL_TGI && memcmp(url, "data:", 5) != 0))
        return err_set(e, ERR_VALIDATION, "the URL is not of the form data:MIME;base64,...");
    const size_t head_bytes = (size_t)(comma - head);
    const char *semicolon = memchr(head, ';', head_bytes);
    if (!semicolon || !ends_with_base64(head, head_bytes, rule) ||
        (rule == DATA_URL_TGI && memchr(semicolon + 1, ';', n - (size_t)(semicolon + 1 - url))))
        return err_set(e, ERR_VALIDATION, "the URL is not of the form data:MIME;base64,...");
    if (copy_mime(head, (size_t)(semicolon - head), out->mime, e))
        return -1;
    const char *text = comma + 1;
    const size_t text_bytes = n - (size_t)(text - url);
    if (text_bytes / 4 * 3 > max_bytes + 2)
        return err_set(e, ERR_VALIDATION, "the data URL holds more than %zu bytes", max_bytes);
    uint8_t *bytes = malloc(text_bytes / 4 * 3 + 3);
    if (!bytes)
        return err_nomem(e);
    if ((rule == DATA_URL_TGI ? base64_decode : base64_decode_lenient)(text, text_bytes, bytes,
                                                                       &out->n, e) == 0) {
        if (out->n <= max_bytes) {
            out->bytes = bytes;
            return 0;
        }
        err_set(e, ERR_VALIDATION, "the data URL holds more than %zu bytes", max_bytes);
    }
    free(bytes);
    *out = (struct data_url){0};
    return -1;
}
