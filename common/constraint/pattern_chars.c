/* pattern_chars.c - named character sets, from tables built once per process. */
#include "common/constraint/pattern_chars.h"
#include "common/tokenizer/unicode.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { NEXT_LINE = 0x85, BYTE_ORDER_MARK = 0xfeff };

/* Code points at which the category changes: all code points are scanned once per process. */
static struct category_run {
    uint32_t first;
    enum uni_category category;
} * runs;
static uint32_t n_runs;
static pthread_once_t runs_once = PTHREAD_ONCE_INIT;

static void find_runs(void)
{
    uint32_t cap = 0;
    for (uint32_t cp = 0; cp <= CHAR_LAST; cp++) {
        enum uni_category category = uni_category(cp);
        if (n_runs && runs[n_runs - 1].category == category)
            continue;
        if (n_runs == cap) {
            cap = cap ? cap * 2 : 4096;
            struct category_run *more = realloc(runs, cap * sizeof(*more));
            if (!more) {
                n_runs = 0;
                return;
            }
            runs = more;
        }
        runs[n_runs++] = (struct category_run){cp, category};
    }
}

void pattern_add_category(struct term_pool *p, struct chars *c, uint32_t set)
{
    pthread_once(&runs_once, find_runs);
    term_work(p, n_runs / 8);
    for (uint32_t i = 0; i < n_runs; i++)
        if (set >> runs[i].category & 1)
            chars_add(c, runs[i].first, i + 1 < n_runs ? runs[i + 1].first - 1 : CHAR_LAST);
    chars_tidy(c);
}

/* Unicode 16, PropertyValueAliases.txt: long names of the categories, and the short ones. */
static const char *const aliases[][2] = {
    {"Cased_Letter", "LC"},
    {"Close_Punctuation", "Pe"},
    {"Connector_Punctuation", "Pc"},
    {"Control", "Cc"},
    {"cntrl", "Cc"},
    {"Currency_Symbol", "Sc"},
    {"Dash_Punctuation", "Pd"},
    {"Decimal_Number", "Nd"},
    {"digit", "Nd"},
    {"Enclosing_Mark", "Me"},
    {"Final_Punctuation", "Pf"},
    {"Format", "Cf"},
    {"Initial_Punctuation", "Pi"},
    {"Letter", "L"},
    {"Letter_Number", "Nl"},
    {"Line_Separator", "Zl"},
    {"Lowercase_Letter", "Ll"},
    {"Mark", "M"},
    {"Combining_Mark", "M"},
    {"Math_Symbol", "Sm"},
    {"Modifier_Letter", "Lm"},
    {"Modifier_Symbol", "Sk"},
    {"Nonspacing_Mark", "Mn"},
    {"Number", "N"},
    {"Open_Punctuation", "Ps"},
    {"Other", "C"},
    {"Other_Letter", "Lo"},
    {"Other_Number", "No"},
    {"Other_Punctuation", "Po"},
    {"Other_Symbol", "So"},
    {"Paragraph_Separator", "Zp"},
    {"Private_Use", "Co"},
    {"Punctuation", "P"},
    {"punct", "P"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Spacing_Mark", "Mc"},
    {"Symbol", "S"},
    {"Titlecase_Letter", "Lt"},
    {"Unassigned", "Cn"},
    {"Uppercase_Letter", "Lu"},
};

static bool is(const char *text, size_t n, const char *name)
{
    return strlen(name) == n && !memcmp(text, name, n);
}

uint32_t pattern_category(const char *text, size_t n)
{
    static const char *const keys[] = {"gc=", "General_Category="};
    for (int i = 0; i < 2; i++) {
        size_t len = strlen(keys[i]);
        if (n > len && !memcmp(text, keys[i], len)) {
            text += len;
            n -= len;
            break;
        }
    }
    for (size_t i = 0; i < sizeof(aliases) / sizeof(*aliases); i++)
        if (is(text, n, aliases[i][0])) {
            text = aliases[i][1];
            n = strlen(text);
            break;
        }
    if (is(text, n, "LC"))
        return 1u << UNI_LU | 1u << UNI_LL | 1u << UNI_LT;
    return uni_category_set(text, n);
}

void pattern_add_shorthand(struct term_pool *p, struct chars *c, char letter, bool unicode)
{
    if (unicode && letter != 's') {
        uint32_t digits = 1u << UNI_ND;
        uint32_t word = uni_category_set("L", 1) | uni_category_set("M", 1) | 1u << UNI_PC;
        pattern_add_category(p, c, letter == 'd' ? digits : digits | word);
        return;
    }
    if (letter == 'd' || letter == 'w')
        chars_add(c, '0', '9');
    if (letter == 'w') {
        chars_add(c, 'A', 'Z');
        chars_add(c, 'a', 'z');
        chars_add(c, '_', '_');
    }
    if (letter == 's') {
        chars_add(c, '\t', '\r');
        chars_add(c, ' ', ' ');
        for (uint32_t cp = 0x80; cp <= 0x3000; cp++)
            if (uni_white(cp) && (unicode || cp != NEXT_LINE))
                chars_add(c, cp, cp);
        if (!unicode)
            chars_add(c, BYTE_ORDER_MARK, BYTE_ORDER_MARK);
    }
}

/* ---------------------------------------------------------------- case */

enum { CASED_LAST = 0x1e943 }; /* the last character with a case mapping */
static struct cased {
    uint32_t cp, other;
} * cased;
static uint32_t n_cased;
static pthread_once_t cased_once = PTHREAD_ONCE_INIT;

static void find_cased(void)
{
    enum { MOST = 4096 };
    cased = malloc(MOST * sizeof(*cased));
    for (utf8proc_int32_t cp = 'A'; cased && cp <= CASED_LAST; cp++) {
        utf8proc_int32_t low = utf8proc_tolower(cp), up = utf8proc_toupper(cp);
        if (low != cp && n_cased < MOST)
            cased[n_cased++] = (struct cased){(uint32_t)cp, (uint32_t)low};
        if (up != cp && n_cased < MOST)
            cased[n_cased++] = (struct cased){(uint32_t)cp, (uint32_t)up};
    }
}

static bool holds(const struct chars *c, uint32_t n, uint32_t cp)
{
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (c->at[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && c->at[lo].first <= cp;
}

void pattern_fold(struct term_pool *p, struct chars *c)
{
    pthread_once(&cased_once, find_cased);
    /* twice: two capitals may share a lower-case letter */
    for (int round = 0; round < 2; round++) {
        chars_tidy(c);
        uint32_t n = c->n;
        term_work(p, n_cased / 4);
        for (uint32_t i = 0; i < n_cased && !c->overflow; i++)
            if (holds(c, n, cased[i].cp) && !holds(c, n, cased[i].other))
                chars_add(c, cased[i].other, cased[i].other);
    }
    chars_tidy(c);
}
