#include "common/tokenizer/unicode.h"
#include "common/tokenizer/unicode_ranges.inc"

#define BIT(c)   (1u << (c))
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Index of the range that contains `cp`; `shift` removes the payload of an entry. */
static size_t range_of(const uint32_t *r, size_t n, unsigned shift, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (r[mid] >> shift <= cp)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

enum uni_category uni_category(uint32_t cp)
{
    if (cp >= 0x4E00 && cp <= 0x9FFF)
        return UNI_LO;
    return category_ranges[range_of(category_ranges, COUNT(category_ranges), 6, cp)] & 31;
}

uint32_t uni_category_set(const char *name, size_t n)
{
    static const char letters[][3] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                      "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                      "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};
    uint32_t set = 0;
    if (n < 1 || n > 2)
        return 0;
    for (unsigned c = 0; c < UNI_CATEGORIES; c++)
        if (letters[c][0] == name[0] && (n == 1 || letters[c][1] == name[1]))
            set |= BIT(c);
    return set;
}

bool uni_newer_range(uint32_t set, size_t *i, uint32_t *first, uint32_t *last)
{
    for (; *i < COUNT(category_ranges); ++*i) {
        uint32_t r = category_ranges[*i];
        if (r & 32 && set & BIT(r & 31)) {
            *first = r >> 6;
            *last = *i + 1 < COUNT(category_ranges) ? (category_ranges[*i + 1] >> 6) - 1 : 0x10FFFF;
            ++*i;
            return true;
        }
    }
    return false;
}

bool uni_white(uint32_t cp)
{
    if (cp < 0x1680)
        return cp == ' ' || (cp >= 9 && cp <= 13) || cp == 0x85 || cp == 0xA0;
    return cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool uni_word(uint32_t cp)
{
    const uint32_t set = BIT(UNI_LU) | BIT(UNI_LL) | BIT(UNI_LT) | BIT(UNI_LM) | BIT(UNI_LO) |
                         BIT(UNI_MN) | BIT(UNI_MC) | BIT(UNI_ME) | BIT(UNI_ND) | BIT(UNI_NL) |
                         BIT(UNI_PC);
    if (set & BIT(uni_category(cp)))
        return true;
    /* Other_Alphabetic symbols (enclosed letters) and the join controls */
    return (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
           (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189) || cp == 0x200C ||
           cp == 0x200D;
}

bool uni_numeric(uint32_t cp)
{
    if (cp < 0x80)
        return cp - '0' < 10;
    return (BIT(UNI_ND) | BIT(UNI_NL) | BIT(UNI_NO)) & BIT(uni_category(cp));
}

bool uni_punct(uint32_t cp)
{
    if (cp < 0x80)
        return cp > ' ' && cp < 0x7F && !(cp - '0' < 10) && !((cp | 32) - 'a' < 26);
    enum uni_category c = uni_category(cp);
    bool differs = old_punct_ranges[range_of(old_punct_ranges, COUNT(old_punct_ranges), 1, cp)] & 1;
    return (c >= UNI_PC && c <= UNI_PO) != differs;
}

bool uni_mark(uint32_t cp)
{
    return (BIT(UNI_MN) | BIT(UNI_MC) | BIT(UNI_ME)) & BIT(uni_category(cp));
}
