// fuzz-sources: common/constraint/*.c common/buf.c common/err.c common/json/json.c
// fuzz-sources: common/json/reader.c common/arena.c common/json/exact.c common/utf8.c
// fuzz-sources: common/tokenizer/unicode.c common/model/thought_marks.c
/* Any pattern, schema or grammar, then any text: it may be refused, but not crash, hang or eat
 * memory; and what may come next must be what can come next. */
#include "common/constraint/constraint.h"
#include <stdlib.h>
#include <string.h>

/* By a letter, so that a kind that is added leaves the files of the corpus what they are. */
static enum constraint_kind kind_of(char letter)
{
    static const char letters[] = {
        [CONSTRAINT_REGEX] = 'r',        [CONSTRAINT_JSON_SCHEMA] = 's',
        [CONSTRAINT_JSON_COMPACT] = 'c', [CONSTRAINT_GBNF] = 'g',
        [CONSTRAINT_LARK] = 'l',         [CONSTRAINT_CALLS] = 't',
        [CONSTRAINT_CALLS_OR] = 'o',
    };
    _Static_assert(sizeof(letters) == CONSTRAINT_KINDS, "a kind of constraint is not fuzzed");
    const char *at = memchr(letters, letter, sizeof(letters));
    return at ? (enum constraint_kind)(at - letters)
              : (enum constraint_kind)((uint8_t)letter % CONSTRAINT_KINDS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct token_set *bytes;
    struct err e = ERR_INIT;
    if (!bytes) {
        static char all[256];
        struct token_text text[256];
        for (int i = 0; i < 256; i++) {
            all[i] = (char)i;
            text[i] = (struct token_text){&all[i], 1};
        }
        bytes = token_set_new(text, 256, NULL, 0);
    }
    if (n < 1 || n > 4096)
        return 0;
    const uint8_t *zero = memchr(data + 1, 0, n - 1);
    size_t len = zero ? (size_t)(zero - data) - 1 : n - 1;
    struct constraint *c = constraint_new(kind_of((char)data[0]), (const char *)data + 1, len, &e);
    if (!c)
        return 0;
    constraint_state s = CONSTRAINT_START;
    for (size_t i = len + 2; i < n && i < len + 66 && s; i++) {
        uint32_t mask[8];
        bool can = !constraint_mask(c, s, bytes, mask, &e);
        bool may = can && mask[data[i] / 32] >> data[i] % 32 & 1;
        s = constraint_next(c, s, data + i, 1);
        if (can && may != (s != CONSTRAINT_DEAD))
            abort();
    }
    constraint_unref(c);
    return 0;
}
