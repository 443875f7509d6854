/* Oniguruma's dialect on PCRE2, and the character classes of the reference. */
#include "common/tokenizer/regex.h"
#include "common/tokenizer/unicode.h"
#include "tests/unit/test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* All matches of a text, each in angle brackets. */
static void matches(const char *pattern, const char *text, const char *want)
{
    struct err e = ERR_INIT;
    struct buf got = BUF_INIT;
    struct regex *r = regex_compile(pattern, strlen(pattern), &e);
    void *m = regex_match_new();
    size_t a, b;
    if (!r)
        fail_msg("%s: %s", pattern, e.msg);
    struct regex_iter it = regex_iter(r, text, strlen(text), m);
    while (regex_next(&it, &a, &b) > 0)
        buf_fmt(&got, "<%.*s>", (int)(b - a), text + a);
    assert_string_equal(got.p ? got.p : "", want);
    buf_free(&got);
    regex_match_free(m);
    regex_free(r);
}

TEST(the_dialect_is_rubys)
{
    matches("\\h+", "beefy 12", "<beef><12>");
    matches("[0-9]{1,2}+", "12345", "<12345>"); /* repeated, not possessive */
    matches("x{,2}y", "xxxy", "<xxy>");
    matches("^.", "ab\ncd", "<a><c>"); /* ^ is the beginning of a line */
    matches("(?m:a.b)", "a\nb", "<a\nb>");
    matches("[^(\\s|[.,!?])]+", "a (b). c", "<a><b><c>");
    matches("[]a]+", "]a]b", "<]a]>");
    matches("a{x", "a{x", "<a{x>");
    matches("", "ab", "<><><>");
    matches("b*", "abc", "<><b><>");
}

TEST(white_space_is_the_unicode_property)
{
    matches("\\s",
            "a\xC2\x85"
            "b\xE1\xA0\x8E"
            "c\xE2\x80\xA8",
            "<\xC2\x85><\xE2\x80\xA8>"); /* not U+180E */
    matches("[^\\S\\n]+", " \n\t", "< ><\t>");
    assert_true(uni_white(0x3000) && !uni_white(0x180E) && !uni_white(0x200B));
}

TEST(letters_newer_than_the_library_are_letters)
{
    matches("\\p{L}+",
            "a\xF0\xB1\x8D\x90"
            "b1",
            "<a\xF0\xB1\x8D\x90"
            "b>"); /* U+31350, extension H */
    matches("\\P{L}+",
            "\xF0\xB1\x8D\x90"
            "12",
            "<12>");
    matches("[^\\p{L}]+",
            "\xF0\xB1\x8D\x90"
            "12",
            "<12>");
    assert_int_equal(uni_category(0x31350), UNI_LO);
    assert_int_equal(uni_category('A'), UNI_LU);
    assert_int_equal(uni_category(0x10FFFF), UNI_CN);
}

TEST(what_cannot_be_said_is_refused)
{
    static const char *const bad[] = {"(?~abc)", "[a", "a)", "(*UTF)a", "\\", "\\p{", "[[:no:]]"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err e = ERR_INIT;
        struct regex *r = regex_compile(bad[i], strlen(bad[i]), &e);
        if (r)
            fail_msg("accepted: %s", bad[i]);
        assert_non_null(strstr(e.msg, "regular expression"));
    }
}

#define HINDI "\xE0\xA4\xB9\xE0\xA4\xBF\xE0\xA4\xA8\xE0\xA5\x8D\xE0\xA4\xA6\xE0\xA5\x80"
#define HAN   "\xE6\xBC\xA2\xE5\xAD\x97"

/* All of these are what Oniguruma says by way of `tokenizers`. */
TEST(marks_belong_to_words)
{
    matches("\\b\\w+\\b", HINDI " x", "<" HINDI "><x>");
    matches("\\w\\B\\w", "ab c", "<ab>");
    matches("[[:alpha:]]+", HINDI, /* without the virama */
            "<\xE0\xA4\xB9\xE0\xA4\xBF\xE0\xA4\xA8><\xE0\xA4\xA6\xE0\xA5\x80>");
    matches("[[:alnum:]]+", "a\xE0\xA5\xA7\xC2\xB2\xE2\x85\xA7", "<a\xE0\xA5\xA7><\xE2\x85\xA7>");
    matches("[[:lower:]]+",
            "ab\xC2\xAA\xE2\x93\x90"
            "A",
            "<ab\xC2\xAA\xE2\x93\x90>");
    matches("[[:upper:]]+",
            "AB\xE2\x85\xA7"
            "a",
            "<AB\xE2\x85\xA7>");
    matches("[[:blank:]]+", " \t\xE3\x80\x80\n", "< \t\xE3\x80\x80>");
    matches("[[:punct:]]+", "!$+<=>^`|~\xE2\x82\xAC_a", "<!$+<=>^`|~\xE2\x82\xAC_>");
    matches("[[:graph:]]+", "a \xE2\x80\x8D\xC2\xA0\xC3\xA9\x01", "<a><\xE2\x80\x8D><\xC3\xA9>");
    matches("[[:print:]]+", "a \xE2\x80\x8D\xC2\xA0\xC3\xA9\x01\n",
            "<a \xE2\x80\x8D\xC2\xA0\xC3\xA9>");
    matches("[[:^alpha:]]+", "a1 b", "<1 >");
    matches("[[:xdigit:]]+", "09afAFg", "<09afAF>");
}

TEST(classes_intersect)
{
    matches("[a-z&&[^aeiou]]+", "hello", "<h><ll>");
    matches("[^a-z&&[^aeiou]]+", "hello1", "<e><o1>");
    matches("[\\p{L}&&[^\\p{Han}]]+", "ab" HAN "cd", "<ab><cd>");
    matches("[a-m&&g-z]+", "afgmnz", "<gm>");
    matches("[a-z&&[^b-y]&&[^z]]+", "abyz", "<a>");
    matches("[a[^b]]+", "abc", "<a><c>");
    matches("[\\W]+", "a -b", "< ->");
    matches("[\\Wa]+", "a -b", "<a ->");
    matches("[[a-c]&&b]", "abc", "<b>");
    matches("[&&a]|[a&&]", "a&", "");
    matches("[a&b]+", "a&b", "<a&b>");
    matches("[a-c&&b]{1,2}+", "bbb", "<bbb>");
    /* Kimi's */
    matches("[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&"
            "[^\\p{Han}]]+(?i:'s|'t)?",
            "Hello" HAN "don't" HAN "W\xC3\xB6rld", "<Hello><don't><W\xC3\xB6rld>");
}

/* U+3002 and U+30FC stand in texts of several scripts: their Script is Common. */
TEST(a_script_has_no_shared_punctuation)
{
    matches("[\\p{Han}]+", HAN "\xE3\x80\x82" HAN, "<" HAN "><" HAN ">");
    matches("\\p{han}+", HAN "\xE3\x80\x82", "<" HAN ">");
    matches("\\P{Han}", HAN "\xE3\x80\x82", "<\xE3\x80\x82>");
    matches("[\\P{Han}]", HAN "\xE3\x80\x82", "<\xE3\x80\x82>");
    matches("[^\\p{^Han}]+", HAN "\xE3\x80\x82", "<" HAN ">");
    matches("\\p{Katakana}+", "\xE3\x82\xA2\xE3\x83\xBC", "<\xE3\x82\xA2>");
}

TEST(categories_have_long_names)
{
    matches("\\p{Letter}+", "ab1", "<ab>");
    matches("\\P{Letter}+", "ab1", "<1>");
    matches("[\\p{Uppercase_Letter}\\p{decimal number}]+", "aB1", "<B1>");
    matches("\\p{^Punctuation}+", "a!", "<a>");
    matches("\\p{Alphabetic}+", "a!", "<a>");
}

/* Superscripts are \w, but not [\w]. */
TEST(a_class_has_its_own_words)
{
    matches("\\w+", "a\xC2\xB2", "<a\xC2\xB2>");
    matches("[\\w]+", "a\xC2\xB2", "<a>");
    matches("[^\\W]+", "a\xC2\xBD", "<a>");
    matches("[^\\w]+", "a\xC2\xBD", "<\xC2\xBD>");
}

/* EXAONE's words with the spaces between them, as in a long list. */
TEST(a_long_run_of_words_is_one_match)
{
    enum { WORDS = 2000000 };
    struct buf b = BUF_INIT, want = BUF_INIT;
    buf_ch(&want, '<');
    for (int i = 0; i < WORDS; i++)
        buf_str(&b, i ? " a" : "a");
    buf_fmt(&want, "%s>", b.p);
    matches("(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+", b.p, want.p);
    buf_free(&b);
    buf_free(&want);
}

/* Loops at the end of a match take nothing back, and elsewhere they do. The look-ahead (?=) changes
 * no match, but what precedes it is translated as it stands. */
TEST(loops_at_the_end_find_the_same)
{
    static const char *const loops[] = {
        "(?:a|ab)*",      "(?:ab?)+|b",           "(a(?:ba)*)+",     "(?:a+b|a)*|b(?:a|b)*",
        "b(?:a(?:b)*)?",  "(?:a(?:bb|a)*|b)*",    "(?:(?:a|ba)*b)*", "(?:a*)*",
        "(?:aab|ab|a)+b", "(?=(?:a|ab)*b)(?:a)*", "(?:(a|ab)*b)+",   "((?:ab)+?)*",
    };
    enum { LOOPS = sizeof(loops) / sizeof(loops[0]), TEXTS = 500, LONGEST = 14 };
    struct err e = ERR_INIT;
    void *m = regex_match_new();
    for (int k = 0; k < LOOPS; k++) {
        char text[LONGEST], other[128];
        size_t a = 0, b = 0, c = 0, d = 0;
        snprintf(other, sizeof(other), "(?:%s)(?=)", loops[k]);
        struct regex *fast = regex_compile(loops[k], strlen(loops[k]), &e);
        struct regex *plain = regex_compile(other, strlen(other), &e);
        assert_true(fast && plain);
        for (int i = 0; i < TEXTS; i++) {
            const size_t n = (size_t)(rand() % LONGEST);
            for (size_t j = 0; j < n; j++)
                text[j] = "aab"[rand() % 3];
            struct regex_iter x = regex_iter(fast, text, n, m), y = regex_iter(plain, text, n, m);
            for (int more = 1; more == 1;) {
                more = regex_next(&x, &a, &b);
                assert_int_equal(more, regex_next(&y, &c, &d));
                if (more && (a != c || b != d))
                    fail_msg("%s in %.*s: %zu to %zu, not %zu to %zu", loops[k], (int)n, text, a, b,
                             c, d);
            }
        }
        regex_free(fast);
        regex_free(plain);
    }
    regex_match_free(m);
}

#define JAIS                                                                                       \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+" \
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"

/* Blanks in pieces: as many matches in four times the text take four times the time, not sixteen;
 * and within a group the same expression is compiled as it stands. */
TEST(blanks_in_pieces_take_linear_time)
{
    enum { SIZE = 1 << 20, TEXTS = 4000, LONGEST = 60 };
    static char text[SIZE];
    struct err e = ERR_INIT;
    struct regex *fast = regex_compile(JAIS, strlen(JAIS), &e);
    struct regex *plain = regex_compile("(?:" JAIS ")", strlen("(?:" JAIS ")"), &e);
    void *m = regex_match_new();
    size_t a, b, c, d;
    memset(text, ' ', SIZE);
    struct regex_iter it = regex_iter(fast, text, SIZE, m);
    const clock_t began = clock();
    while (regex_next(&it, &a, &b) == 1)
        if (clock() - began > 2 * CLOCKS_PER_SEC)
            fail_msg("%zu of %d blanks in 2 s", b, SIZE);
    assert_int_equal(b, SIZE);
    for (int i = 0; i < TEXTS; i++) {
        const size_t n = (size_t)(rand() % LONGEST);
        for (size_t k = 0; k < n; k++)
            text[k] = "      \n\r\ta1!'s"[rand() % 15];
        struct regex_iter x = regex_iter(fast, text, n, m), y = regex_iter(plain, text, n, m);
        for (int more = 1; more == 1;) {
            more = regex_next(&x, &a, &b);
            assert_int_equal(more, regex_next(&y, &c, &d));
            if (more && (a != c || b != d))
                fail_msg("%.*s: %zu to %zu, not %zu to %zu", (int)n, text, a, b, c, d);
        }
    }
    regex_match_free(m);
    regex_free(fast);
    regex_free(plain);
}

TEST(predicates_match_the_reference)
{
    assert_true(uni_numeric(0xB2) && uni_numeric('5') && !uni_numeric('x') && uni_numeric(0x2160));
    assert_true(uni_punct('$') && uni_punct(0x3002) && !uni_punct('a') && !uni_punct(0x20AC));
    assert_true(uni_word('_') && uni_word(0x301) && uni_word(0x200D) && !uni_word('-'));
    assert_true(uni_mark(0x301) && !uni_mark('a'));
}

int main(void) { return tests_run(NULL, NULL); }
