/* unicode.h - general categories, exactly as Hugging Face `tokenizers` classifies characters. */
#ifndef COMMON_TOKENIZER_UNICODE_H
#define COMMON_TOKENIZER_UNICODE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* General categories (Unicode Standard, chapter 4.5) in the order of unicode_ranges.py: unassigned,
 * letters, marks, numbers, punctuation, symbols, separators, other. The second letter is the
 * subclass, as in "Lu" for capital letters. */
enum uni_category {
    UNI_CN,
    UNI_LU,
    UNI_LL,
    UNI_LT,
    UNI_LM,
    UNI_LO,
    UNI_MN,
    UNI_MC,
    UNI_ME,
    UNI_ND,
    UNI_NL,
    UNI_NO,
    UNI_PC,
    UNI_PD,
    UNI_PS,
    UNI_PE,
    UNI_PI,
    UNI_PF,
    UNI_PO,
    UNI_SM,
    UNI_SC,
    UNI_SK,
    UNI_SO,
    UNI_ZS,
    UNI_ZL,
    UNI_ZP,
    UNI_CC,
    UNI_CF,
    UNI_CO,
    UNI_CATEGORIES
};

enum uni_category uni_category(uint32_t cp);
/* "L", "Lu", ...: bit set of categories (1 << UNI_LU | ...); 0: unknown name. */
uint32_t uni_category_set(const char *name, size_t n);
/* The i-th range [*first, *last] of characters newer than Unicode 14 (PCRE2's tables) with a
 * category in `set`; false: no more. *i is the caller's cursor, initially 0. */
bool uni_newer_range(uint32_t set, size_t *i, uint32_t *first, uint32_t *last);

bool uni_white(uint32_t cp);   /* White_Space */
bool uni_word(uint32_t cp);    /* \w: letters, marks, decimal digits, connectors, join controls */
bool uni_numeric(uint32_t cp); /* N* */
/* ASCII punctuation and symbols, and P* of the reference's old tables */
bool uni_punct(uint32_t cp);
bool uni_mark(uint32_t cp); /* M* */
#endif
