#include "common/constraint/decimal.h"
#include "common/json/exact.h"
#include <stdlib.h>
#include <string.h>

static bool push(struct decimal *d, char c)
{
    if (d->n == DECIMAL_DIGITS)
        return false;
    d->digit[d->n++] = c;
    return true;
}

/* False: not a JSON number, or beyond the limits on digits or exponent. */
static bool decimal_read(struct decimal *d, const char *text)
{
    bool some = false, point = false;
    *d = (struct decimal){.negative = *text == '-'};
    for (text += *text == '-' || *text == '+'; (*text >= '0' && *text <= '9') || *text == '.';
         text++) {
        if (*text == '.') {
            if (point)
                return false;
            point = true;
            continue;
        }
        some = true;
        if (d->n || *text != '0') {
            d->point += !point;
            if (!push(d, *text))
                return false;
        } else {
            d->point -= point; /* leading zeros */
        }
    }
    if (*text == 'e' || *text == 'E') {
        char *end;
        long v = strtol(text + 1, &end, 10);
        if (end == text + 1 || v > 100000 || v < -100000)
            return false;
        d->point += (int)v;
        text = end;
    }
    while (d->n && d->digit[d->n - 1] == '0')
        d->n--;
    d->digit[d->n] = '\0';
    if (!d->n) {
        d->point = 0;
        d->negative = false;
    }
    return some && !*text && d->point <= DECIMAL_POINT && d->point >= -DECIMAL_POINT;
}

bool decimal_of(struct decimal *d, const cJSON *number)
{
    char room[32];
    return decimal_read(d, json_number_text(number, room));
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    const int sign = a->negative ? -1 : 1;
    if (!a->n || !b->n || a->negative != b->negative) {
        int x = !a->n ? 0 : sign, y = !b->n ? 0 : b->negative ? -1 : 1;
        return (x > y) - (x < y);
    }
    if (a->point != b->point)
        return a->point > b->point ? sign : -sign;
    return sign * strcmp(a->digit, b->digit);
}

bool decimal_integer(const struct decimal *d) { return d->point >= d->n; }

static bool same_number(const cJSON *a, const cJSON *b)
{
    struct decimal x, y;
    char u[32], v[32];
    if (decimal_of(&x, a) && decimal_of(&y, b))
        return !decimal_compare(&x, &y);
    return !strcmp(json_number_text(a, u), json_number_text(b, v));
}

bool json_same(const cJSON *a, const cJSON *b)
{
    if ((a->type & 0xff) != (b->type & 0xff))
        return false;
    if (cJSON_IsNumber(a))
        return same_number(a, b);
    if (cJSON_IsString(a))
        return !strcmp(a->valuestring, b->valuestring);
    if (!cJSON_IsArray(a) && !cJSON_IsObject(a))
        return true;
    const cJSON *x, *y = b->child;
    if (cJSON_GetArraySize(a) != cJSON_GetArraySize(b))
        return false;
    cJSON_ArrayForEach(x, a)
    {
        const cJSON *other = cJSON_IsArray(a) ? y : cJSON_GetObjectItemCaseSensitive(b, x->string);
        if (!other || !json_same(x, other))
            return false;
        y = y ? y->next : NULL;
    }
    return true;
}
