/* hex.h - hexadecimal digits. */
#ifndef COMMON_HEX_H
#define COMMON_HEX_H

/* The value of a digit of either case; -1: c is none. */
static inline int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    const int letter = c | 0x20;
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

#endif
