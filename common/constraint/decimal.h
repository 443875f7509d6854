/* decimal.h - numbers of JSON by their exact value, and whether two values are equal. */
#ifndef COMMON_CONSTRAINT_DECIMAL_H
#define COMMON_CONSTRAINT_DECIMAL_H
#include <cjson/cJSON.h>
#include <stdbool.h>

enum { DECIMAL_DIGITS = 320, DECIMAL_POINT = 400 };
/* 0.d1 d2 ... dn x 10^point, d1 and dn not 0; n = 0: zero. */
struct decimal {
    bool negative;
    int n, point;
    char digit[DECIMAL_DIGITS + 1]; /* '0' to '9', ended by NUL */
};
/* false: no number of JSON, or one with more digits or a point farther away than the bounds. */
bool decimal_read(struct decimal *d, const char *text);
bool decimal_of(struct decimal *d, const cJSON *number);
int decimal_compare(const struct decimal *a, const struct decimal *b); /* <0, 0, >0 */
bool decimal_integer(const struct decimal *d);

/* Equal as JSON Schema means it: 1 is 1.0, the order of an object's members does not matter. */
bool json_same(const cJSON *a, const cJSON *b);
#endif
