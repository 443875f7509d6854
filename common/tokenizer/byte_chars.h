/* byte_chars.h - GPT-2's byte alphabet: each byte as a printable character, so that byte strings
 * can be stored as text. Printable Latin-1 maps to itself, other bytes to U+0100 and up, in
 * order. */
#ifndef COMMON_TOKENIZER_BYTE_CHARS_H
#define COMMON_TOKENIZER_BYTE_CHARS_H
#include <stdint.h>

static inline uint32_t byte_to_char(unsigned char b)
{
    if (b <= 0x20)
        return 0x100u + b;
    if (b < 0x7F)
        return b;
    if (b <= 0xA0)
        return 0x121u + (b - 0x7Fu);
    return b == 0xAD ? 0x143 : b;
}

/* -1: the character represents no byte. */
static inline int char_to_byte(uint32_t cp)
{
    if (cp >= 0x100 && cp <= 0x120)
        return (int)(cp - 0x100);
    if (cp >= 0x121 && cp <= 0x142)
        return (int)(cp - 0x121 + 0x7F);
    if (cp == 0x143)
        return 0xAD;
    return (cp > 0x20 && cp < 0x7F) || (cp > 0xA0 && cp < 0x100 && cp != 0xAD) ? (int)cp : -1;
}
#endif
