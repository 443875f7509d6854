/* The n-th allocation fails, for n = 1, 2, 3 until none does: a mask is right, or an error. */
#include "common/constraint/constraint.h"
#include "tests/unit/test.h"
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 300, WORDS = (VOCAB + 31) / 32, END = 0, STEPS = 8 };

/* The linker sends every allocation of this program through here. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
static long left = -1; /* until one fails; -1: never */
static long allocation;

static bool fails(void)
{
    left -= left > 0;
    if (left)
        return false;
    left = -1;
    return true;
}

void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return fails() ? NULL : __real_realloc(p, n); }

static struct token_set *vocabulary(void)
{
    static char bytes[VOCAB][3];
    static struct token_text text[VOCAB];
    for (int i = 1; i < VOCAB; i++) {
        bytes[i][0] = (char)i;
        bytes[i][1] = "ab1\""[i % 4];
        text[i] = (struct token_text){bytes[i], i < 256 ? 1 : 2};
    }
    text[END].n = 0;
    return token_set_new(text, VOCAB, (uint32_t[]){END}, 1);
}

/* The masks of a text; how many there are before an error, which is a lack of memory. */
static int masks(enum constraint_kind kind, const char *form, const char *text,
                 const struct token_set *set, uint32_t out[STEPS][WORDS])
{
    struct err e = ERR_INIT;
    struct constraint *c = constraint_new(kind, form, strlen(form), &e);
    constraint_state at = CONSTRAINT_START;
    int n = 0;
    for (; c && n < STEPS && !constraint_mask(c, at, set, out[n], &e); n++)
        at = constraint_next(c, at, text + n, 1);
    constraint_unref(c);
    if (n < STEPS && (e.kind != ERR_SYSTEM || strstr(e.msg, "memory") == NULL))
        fail_msg("%s: allocation %ld fails, mask %d: %s", form, allocation, n, e.msg);
    return n;
}

TEST(a_mask_is_right_or_an_error)
{
    static const struct {
        enum constraint_kind kind;
        const char *form, *text;
    } of[] = {
        {CONSTRAINT_REGEX, "[a-z ]{5,20}", "once upo"},
        {CONSTRAINT_REGEX, "(a|b)*a(a|b){30}", "abababab"},
        {CONSTRAINT_JSON_SCHEMA, "{\"enum\":[\"aaaaaaab\",\"aaaaaaac\",7]}", "\"aaaaaaa"},
        {CONSTRAINT_JSON_COMPACT, "{\"type\":\"string\",\"pattern\":\"^[ab]*1$\",\"maxLength\":90}",
         "\"abababa"},
    };
    struct token_set *set = vocabulary();
    for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
        uint32_t want[STEPS][WORDS], got[STEPS][WORDS];
        assert_int_equal(masks(of[i].kind, of[i].form, of[i].text, set, want), STEPS);
        allocation = 0;
        for (bool failed = true; failed;) {
            left = ++allocation;
            const int n = masks(of[i].kind, of[i].form, of[i].text, set, got);
            failed = left < 0;
            left = -1;
            if (memcmp(want, got, (size_t)n * sizeof(*want)) != 0)
                fail_msg("%s: allocation %ld fails: another mask", of[i].form, allocation);
        }
        assert_true(allocation > 20);
    }
    token_set_free(set);
}

int main(void) { return tests_run(NULL, NULL); }
