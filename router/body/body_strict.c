/* What cJSON lets pass and no other parser does: a body that only we can read would be judged by
 * nobody in front of us. */
#include "router/body/body.h"

static size_t digits(const char *s, size_t n, size_t i)
{
    size_t k = i;
    while (k < n && s[k] >= '0' && s[k] <= '9')
        k++;
    return k - i;
}

/* -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?   Its length, 0 where it is none. */
static size_t number(const char *s, size_t n, size_t from)
{
    size_t i = from + (s[from] == '-'), k = digits(s, n, i);
    if (k == 0 || (k > 1 && s[i] == '0'))
        return 0;
    i += k;
    if (i < n && s[i] == '.') {
        if ((k = digits(s, n, i + 1)) == 0)
            return 0;
        i += 1 + k;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        i += 1 + (i + 1 < n && (s[i + 1] == '+' || s[i + 1] == '-'));
        if ((k = digits(s, n, i)) == 0)
            return 0;
        i += k;
    }
    return i - from;
}

const char *body_strict(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (s[i] == '"') {
            for (i++; i < n && s[i] != '"'; i += s[i] == '\\' ? 2 : 1)
                if ((unsigned char)s[i] < ' ')
                    return "control character (\\u0000-\\u001F) found while parsing a string";
            i++;
        } else if (s[i] == '-' || (s[i] >= '0' && s[i] <= '9')) {
            size_t k = number(s, n, i);
            if (k == 0)
                return "invalid number";
            i += k;
        } else if ((unsigned char)s[i] > ' ' || s[i] == ' ' || s[i] == '\t' || s[i] == '\r' ||
                   s[i] == '\n') {
            i++;
        } else {
            return "control character found between values";
        }
    }
    return NULL;
}
