#include "common/constraint/calls.h"
#include "common/json/json.h"
#include <string.h>

enum { BLANKS_MOST = 2 };

static term marker(struct term_pool *p, const char *text)
{
    return text && *text ? term_bytes_of(p, text, strlen(text)) : TERM_NONE;
}

static term some_blanks(struct term_pool *p)
{
    struct byte_set blank = {0};
    byte_set_add(&blank, ' ', ' ');
    byte_set_add(&blank, '\t', '\n');
    byte_set_add(&blank, '\r', '\r');
    return term_repeat(p, term_set(p, &blank), 0, BLANKS_MOST);
}

/* A call of `way` with its closing marker: the text after the opening one. */
static term inside(struct term_pool *p, const cJSON *way, enum json_layout layout, struct err *e)
{
    const term close = marker(p, json_str(way, "close", "")), blanks = some_blanks(p);
    if (!json_get(way, "schema") || close == TERM_NONE)
        return err_set(e, ERR_VALIDATION, "calls have `open`, `close` and `schema`"), TERM_NONE;
    const term call = schema_term(p, json_get(way, "schema"), layout, e);
    return call == TERM_NONE ? TERM_NONE
                             : term_cat(p, blanks, term_cat(p, call, term_cat(p, blanks, close)));
}

term calls_term(struct term_pool *p, const cJSON *spec, enum json_layout layout, struct err *e)
{
    const term open = marker(p, json_str(spec, "open", ""));
    if (open == TERM_NONE)
        return err_set(e, ERR_VALIDATION, "calls have `open`, `close` and `schema`"), TERM_NONE;
    const term call = inside(p, spec, layout, e);
    if (call == TERM_NONE)
        return TERM_NONE;
    const term text = term_not(p, term_cat(p, TERM_ALL, term_cat(p, open, TERM_ALL)));
    const term one = term_cat(p, open, term_cat(p, call, text));
    return term_cat(p, text, term_repeat(p, one, 0, TERM_UNBOUNDED));
}

/* `around`[i] and blanks, or nothing. */
static term around(struct term_pool *p, const cJSON *way, int i)
{
    const cJSON *v = cJSON_GetArrayItem(json_get(way, "around"), i);
    const term t = marker(p, cJSON_IsString(v) ? v->valuestring : "");
    return t == TERM_NONE ? TERM_EMPTY : term_opt(p, term_cat(p, t, some_blanks(p)));
}

static term calls_of(struct term_pool *p, const cJSON *way, enum json_layout layout, struct err *e)
{
    const term open = marker(p, json_str(way, "open", "")), blanks = some_blanks(p);
    if (open == TERM_NONE)
        return schema_term(p, json_get(way, "schema"), layout, e);
    if (!json_get(way, "schema"))
        return term_cat(p, blanks, term_cat(p, open, TERM_ALL));
    const term call = inside(p, way, layout, e);
    if (call == TERM_NONE)
        return TERM_NONE;
    const term one = term_cat(p, open, term_cat(p, call, blanks));
    const term all = term_cat(p, one, term_repeat(p, one, 0, TERM_UNBOUNDED));
    return term_cat(p, blanks, term_cat(p, around(p, way, 0), term_cat(p, all, around(p, way, 1))));
}

term calls_or(struct term_pool *p, term answer, const cJSON *ways, enum json_layout layout,
              struct err *e)
{
    const cJSON *way;
    cJSON_ArrayForEach(way, ways)
    {
        if (!json_get(way, "schema") && !json_get(way, "open"))
            return err_set(e, ERR_VALIDATION, "calls have `open` or `schema`"), TERM_NONE;
        const term calls = calls_of(p, way, layout, e);
        if (calls == TERM_NONE)
            return TERM_NONE;
        answer = term_alt(p, answer, calls);
    }
    return answer;
}
