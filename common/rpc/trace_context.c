/* W3C Trace Context: the header, and new identifiers. */
#include "common/clock.h"
#include "common/hash.h"
#include "common/rpc/trace.h"
#include <string.h>
#include <sys/random.h>

/* Lower case only, as specified. */
static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool hex(const char *s, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int hi = digit(s[2 * i]), lo = hi < 0 ? -1 : digit(s[2 * i + 1]);
        if (lo < 0)
            return false;
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    return true;
}

static bool zero(const uint8_t *p, size_t n)
{
    while (n && !p[n - 1])
        n--;
    return n == 0;
}

bool trace_parse(const char *s, struct trace_context *out)
{
    struct trace_context c = {.sampled = false};
    uint8_t version, flags;
    size_t n = s ? strnlen(s, TRACE_PARENT_LEN + 1) : 0;
    *out = c;
    if (n < TRACE_PARENT_LEN || s[2] != '-' || s[35] != '-' || s[52] != '-')
        return false;
    if (!hex(s, &version, 1) || !hex(s + 3, c.trace_id, 16) || !hex(s + 36, c.span_id, 8) ||
        !hex(s + 53, &flags, 1))
        return false;
    bool longer = s[TRACE_PARENT_LEN] != 0;
    if (version == 0xff || (longer && (version == 0 || s[TRACE_PARENT_LEN] != '-')) ||
        zero(c.trace_id, 16) || zero(c.span_id, 8))
        return false;
    c.sampled = flags & 1;
    *out = c;
    return true;
}

bool trace_known(const struct trace_context *c) { return !zero(c->trace_id, sizeof(c->trace_id)); }

/* key=value without the list's separators. */
static bool member(const char *s, size_t n)
{
    static const char key_chars[] = "abcdefghijklmnopqrstuvwxyz0123456789_-*/@";
    size_t key = 0;
    while (key < n && s[key] && strchr(key_chars, s[key]))
        key++;
    if (key == 0 || key + 1 >= n || s[key] != '=')
        return false;
    for (size_t i = key + 1; i < n; i++)
        if (s[i] < ' ' || s[i] > '~' || s[i] == '=')
            return false;
    return true;
}

bool trace_state_valid(const char *s)
{
    enum { MOST_MEMBERS = 32 };
    size_t n = s ? strnlen(s, TRACE_STATE_MAX + 1) : 0, members = 0;
    if (n > TRACE_STATE_MAX)
        return false;
    for (size_t i = 0, end; i < n;
         i = end + 1) { /* blanks around members, and empty members, are allowed */
        end = i + strcspn(s + i, ",");
        size_t to = end;
        i += strspn(s + i, " \t");
        while (to > i && (s[to - 1] == ' ' || s[to - 1] == '\t'))
            to--;
        if (to > i && (++members > MOST_MEMBERS || !member(s + i, to - i)))
            return false;
    }
    return members > 0;
}

static char *print(char *p, const uint8_t *v, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *p++ = digits[v[i] >> 4];
        *p++ = digits[v[i] & 15];
    }
    return p;
}

void trace_print(const struct trace_context *c, char out[TRACE_PARENT_LEN + 1])
{
    static const uint8_t version = 0;
    char *p = print(out, &version, 1);
    *p++ = '-';
    p = print(p, c->trace_id, 16);
    *p++ = '-';
    p = print(p, c->span_id, 8);
    memcpy(p, c->sampled ? "-01" : "-00", 4);
}

static void draw(uint8_t *p, size_t n)
{
    do
        if (getrandom(p, n, 0) != (ssize_t)n) { /* no entropy yet: use the time */
            uint64_t h = hash_mix((uint64_t)clock_ns());
            for (size_t i = 0; i < n; i++, h = hash_mix(h + i))
                p[i] = (uint8_t)h;
        }
    while (zero(p, n));
}

struct trace_context trace_child(const struct trace_context *parent)
{
    struct trace_context c = {.sampled = true};
    if (parent && trace_known(parent))
        c = *parent;
    else
        draw(c.trace_id, sizeof(c.trace_id));
    draw(c.span_id, sizeof(c.span_id));
    return c;
}
