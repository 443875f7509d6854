/* decimal.h - exact decimal values of JSON numbers, and equality of JSON values. */
#ifndef COMMON_CONSTRAINT_DECIMAL_H
#define COMMON_CONSTRAINT_DECIMAL_H
#include <cjson/cJSON.h>
#include <stdbool.h>

enum { DECIMAL_DIGITS = 320, DECIMAL_POINT = 400 };
/* 0.d1 d2 ... dn x 10^point, d1 and dn not 0; n = 0: zero. */
struct decimal {
    bool negative;
    int n, point;
    char digit[DECIMAL_DIGITS + 1]; /* '0' to '9', NUL-terminated */
};
/* The value of a number, from its text. False: it is beyond the limits on digits or exponent. */
bool decimal_of(struct decimal *d, const cJSON *number);
int decimal_compare(const struct decimal *a, const struct decimal *b); /* <0, 0, >0 */
bool decimal_integer(const struct decimal *d);

/* Equality of JSON Schema: 1 equals 1.0, and the order of members is ignored. */
bool json_same(const cJSON *a, const cJSON *b);
#endif
