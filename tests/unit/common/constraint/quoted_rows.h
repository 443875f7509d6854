/* quoted_rows.h - rows of a schema, instances that must pass, and texts that must not, for tests.
 * They are written with ' for ", so that they can be read. */
#ifndef TESTS_UNIT_COMMON_CONSTRAINT_QUOTED_ROWS_H
#define TESTS_UNIT_COMMON_CONSTRAINT_QUOTED_ROWS_H
#include "common/buf.h"
#include "common/constraint/constraint.h"
#include "tests/unit/test.h"
#include <string.h>

enum { MAX_TEXTS = 14 };
struct row {
    const char *schema;
    const char *yes[MAX_TEXTS], *no[MAX_TEXTS];
};

static bool takes(struct constraint *c, const char *text, size_t n)
{
    constraint_state s = constraint_next(c, CONSTRAINT_START, text, n);
    return s != CONSTRAINT_DEAD && constraint_may_end(c, s);
}

static const char *quoted(struct buf *b, const char *text)
{
    buf_reset(b);
    for (; *text; text++)
        buf_ch(b, *text == '\'' ? '"' : *text);
    return b->p ? b->p : "";
}

static void check_row(const struct row *r)
{
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    quoted(&b, r->schema);
    struct constraint *c = constraint_new(CONSTRAINT_JSON_SCHEMA, b.p, b.len, &e);
    if (!c)
        fail_msg("%s: %s", r->schema, e.msg);
    for (int k = 0; k < MAX_TEXTS && r->yes[k]; k++)
        if (quoted(&b, r->yes[k]), !takes(c, b.p, b.len))
            fail_msg("%s refuses %s", r->schema, r->yes[k]);
    for (int k = 0; k < MAX_TEXTS && r->no[k]; k++)
        if (quoted(&b, r->no[k]), takes(c, b.p, b.len))
            fail_msg("%s takes %s", r->schema, r->no[k]);
    constraint_unref(c);
    buf_free(&b);
}
#define CHECK(rows)                                                                                \
    for (size_t i = 0; i < sizeof(rows) / sizeof(*(rows)); i++)                                    \
    check_row(&(rows)[i])
#endif
