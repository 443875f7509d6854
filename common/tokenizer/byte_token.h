/* byte_token.h - tokens of single bytes of tokenizers with byte fallback, such as <0xE4>. */
#ifndef COMMON_TOKENIZER_BYTE_TOKEN_H
#define COMMON_TOKENIZER_BYTE_TOKEN_H
#include "common/hex.h"
#include <stddef.h>
#include <string.h>

/* The byte of a token of n bytes; -1: it is no such token. Like the tokenizers library, which
 * parses the digits as a number, it takes a plus for a leading zero. */
static inline int byte_token(const char *s, size_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    const int high = s[3] == '+' ? 0 : hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

#endif
