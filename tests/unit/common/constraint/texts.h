/* texts.h - rows of a constraint with accepted and rejected texts. */
#ifndef TESTS_UNIT_COMMON_CONSTRAINT_TEXTS_H
#define TESTS_UNIT_COMMON_CONSTRAINT_TEXTS_H
#include "common/constraint/constraint.h"
#include "tests/unit/test.h"
#include <string.h>

enum { MAX_TEXTS = 12 };
struct row {
    enum constraint_kind kind;
    const char *text;
    const char *yes[MAX_TEXTS], *no[MAX_TEXTS];
};

static inline bool takes(struct constraint *c, const char *text)
{
    constraint_state s = constraint_next(c, CONSTRAINT_START, text, strlen(text));
    return s != CONSTRAINT_DEAD && constraint_may_end(c, s);
}

static inline void check_texts(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct err e = ERR_INIT;
        struct constraint *c = constraint_new(rows[i].kind, rows[i].text, strlen(rows[i].text), &e);
        if (!c)
            fail_msg("%s: %s", rows[i].text, e.msg);
        for (int k = 0; k < MAX_TEXTS && rows[i].yes[k]; k++)
            if (!takes(c, rows[i].yes[k]))
                fail_msg("%s refuses %s", rows[i].text, rows[i].yes[k]);
        for (int k = 0; k < MAX_TEXTS && rows[i].no[k]; k++)
            if (takes(c, rows[i].no[k]))
                fail_msg("%s takes %s", rows[i].text, rows[i].no[k]);
        constraint_unref(c);
    }
}

struct refused {
    enum constraint_kind kind;
    const char *text, *why; /* a part of the message */
};
static inline void check_refused(const struct refused *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct err e = ERR_INIT;
        struct constraint *c = constraint_new(rows[i].kind, rows[i].text, strlen(rows[i].text), &e);
        if (c)
            fail_msg("taken: %s", rows[i].text);
        if (!strstr(e.msg, rows[i].why))
            fail_msg("%s: %s, not %s", rows[i].text, e.msg, rows[i].why);
    }
}
#define ROWS(rows) rows, sizeof(rows) / sizeof(*(rows))
#endif
