#include "common/json/exact.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOUBLE_DIGITS = 15 }; /* digits that every double preserves */

/* ---------------------------------------------------------------- numbers */

bool json_number_changes(const char *text, size_t n)
{
    size_t digits = 0, i = 0;
    for (; i < n && text[i] != 'e' && text[i] != 'E'; i++)
        digits += text[i] >= '0' && text[i] <= '9';
    return digits > DOUBLE_DIGITS || n - i > 3 || (memchr(text, '.', i) && text[i - 1] == '0');
}

const char *json_number_text(const cJSON *number, char room[32])
{
    if (number->valuestring)
        return number->valuestring;
    snprintf(room, 32, "%.15g", number->valuedouble); /* as written, so it is no longer than that */
    if (strtod(room, NULL) != number->valuedouble)
        snprintf(room, 32, "%.17g", number->valuedouble);
    return room;
}

/* ---------------------------------------------------------------- printing */

void json_text_exact(struct buf *b, const char *text)
{
    for (const char *nul; (nul = strstr(text, "\xc0\x80")); text = nul + 2) {
        buf_add(b, text, (size_t)(nul - text));
        buf_ch(b, '\0');
    }
    buf_str(b, text);
}

static void print_string(struct buf *b, const char *text)
{
    buf_ch(b, '"');
    for (const char *c = text; *c; c++) {
        if ((uint8_t)c[0] == 0xc0 && (uint8_t)c[1] == 0x80) {
            buf_str(b, "\\u0000");
            c++;
        } else if (*c == '"' || *c == '\\') {
            buf_ch(b, '\\');
            buf_ch(b, *c);
        } else if ((uint8_t)*c >= 0x20) {
            buf_ch(b, *c);
        } else {
            static const char named[] = "\b\f\n\r\t", letter[] = "bfnrt";
            const char *at = strchr(named, *c);
            if (at)
                buf_fmt(b, "\\%c", letter[at - named]);
            else
                buf_fmt(b, "\\u%04x", (unsigned)*c);
        }
    }
    buf_ch(b, '"');
}

void json_print_exact(struct buf *b, const cJSON *v)
{
    char room[32];
    const cJSON *kid;
    if (cJSON_IsArray(v) || cJSON_IsObject(v)) {
        buf_ch(b, cJSON_IsArray(v) ? '[' : '{');
        cJSON_ArrayForEach(kid, v)
        {
            if (kid != v->child)
                buf_ch(b, ',');
            if (cJSON_IsObject(v)) {
                print_string(b, kid->string);
                buf_ch(b, ':');
            }
            json_print_exact(b, kid);
        }
        buf_ch(b, cJSON_IsArray(v) ? ']' : '}');
    } else if (cJSON_IsString(v)) {
        print_string(b, v->valuestring);
    } else {
        buf_str(b, cJSON_IsNumber(v)  ? json_number_text(v, room)
                   : cJSON_IsTrue(v)  ? "true"
                   : cJSON_IsFalse(v) ? "false"
                                      : "null");
    }
}
