#include "common/constraint/calls.h"
#include "common/json.h"
#include <string.h>

enum { BLANKS_MOST = 2 };

static term marker(struct term_pool *p, const cJSON *spec, const char *which)
{
    const char *text = json_str(spec, which, "");
    return *text ? term_bytes_of(p, text, strlen(text)) : TERM_NONE;
}

term calls_term(struct term_pool *p, const cJSON *spec, enum json_layout layout, struct err *e)
{
    struct byte_set blank = {0};
    const cJSON *schema = json_get(spec, "schema");
    const term open = marker(p, spec, "open"), close = marker(p, spec, "close");
    if (!schema || open == TERM_NONE || close == TERM_NONE)
        return err_set(e, ERR_VALIDATION, "calls have `open`, `close` and `schema`"), TERM_NONE;
    const term call = schema_term(p, schema, layout, e);
    if (call == TERM_NONE)
        return TERM_NONE;
    byte_set_add(&blank, ' ', ' ');
    byte_set_add(&blank, '\t', '\n');
    byte_set_add(&blank, '\r', '\r');
    const term blanks = term_repeat(p, term_set(p, &blank), 0, BLANKS_MOST);
    const term text = term_not(p, term_cat(p, TERM_ALL, term_cat(p, open, TERM_ALL)));
    const term inside = term_cat(p, blanks, term_cat(p, call, term_cat(p, blanks, close)));
    const term one = term_cat(p, open, term_cat(p, inside, text));
    return term_cat(p, text, term_repeat(p, one, 0, TERM_UNBOUNDED));
}
