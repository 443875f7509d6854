#include "common/constraint/channels.h"
#include "common/buf.h"
#include "common/constraint/schema.h"
#include "common/json/json.h"
#include <string.h>

enum { MOST_THOUGHTS = 8 };

static term word(struct term_pool *p, const char *text)
{
    return term_bytes_of(p, text, strlen(text));
}

term channel_thoughts(struct term_pool *p, term message)
{
    static const char *const markers[] = {"<|end|>", "<|start|>", "<|channel|>", "<|message|>",
                                          "<|constrain|>"};
    enum { N = sizeof(markers) / sizeof(markers[0]) };
    term any[N];
    for (int i = 0; i < N; i++)
        any[i] = word(p, markers[i]);
    term marker = term_alt_n(p, any, N), role = word(p, "<|start|>assistant");
    term text = term_not(p, term_cat(p, TERM_ALL, term_cat(p, marker, TERM_ALL)));
    term thought = term_cat(p, word(p, "<|channel|>analysis<|message|>"),
                            term_cat(p, text, term_cat(p, word(p, "<|end|>"), role)));
    return term_cat(p, term_opt(p, role),
                    term_cat(p, term_repeat(p, thought, 0, MOST_THOUGHTS), message));
}

term channel_final(struct term_pool *p, term text)
{
    term type = term_opt(p, word(p, " <|constrain|>json"));
    term head = term_cat(p, word(p, "<|channel|>final"), term_cat(p, type, word(p, "<|message|>")));
    return term_cat(p, head, text);
}

/* The header of a call: models write the function's name before or after the channel. */
static term call_head(struct term_pool *p, const char *name)
{
    static const char *const ways[] = {"<|channel|>commentary to=functions.%s <|constrain|>json",
                                       " to=functions.%s<|channel|>commentary <|constrain|>json",
                                       " to=functions.%s<|channel|>commentary json"};
    enum { N = sizeof(ways) / sizeof(ways[0]) };
    term all[N];
    for (int i = 0; i < N; i++) {
        struct buf b = BUF_INIT;
        const char *at = strstr(ways[i], "%s");
        buf_add(&b, ways[i], (size_t)(at - ways[i]));
        buf_fmt(&b, "%s%s", name, at + 2);
        if (b.oom)
            term_no_memory(p);
        all[i] = b.oom ? TERM_NONE : word(p, b.p);
        buf_free(&b);
    }
    return term_cat(p, term_alt_n(p, all, N), word(p, "<|message|>"));
}

/* The schema of the arguments property, with `definitions`. */
static cJSON *arguments_of(const cJSON *call, const cJSON *definitions, bool closed)
{
    const cJSON *of = json_get(call, "properties"), *p = of ? of->child : NULL;
    while (p && !strcmp(p->string, "name"))
        p = p->next;
    cJSON *schema = p ? cJSON_Duplicate(p, true) : NULL;
    cJSON *copy = schema && definitions ? cJSON_Duplicate(definitions, true) : NULL;
    if (copy && !cJSON_AddItemToObject(schema, "$defs", copy))
        cJSON_Delete(copy);
    if (closed && cJSON_IsObject(schema))
        cJSON_AddTrueToObject(schema, "x-closed");
    return schema;
}

term channel_calls(struct term_pool *p, const cJSON *schema, enum json_layout layout, struct err *e)
{
    const cJSON *call, *any = json_get(schema, "anyOf"), *defs = json_get(schema, "$defs");
    term all = TERM_NONE;
    cJSON_ArrayForEach(call, any)
    {
        const cJSON *named = json_get(json_get(call, "properties"), "name");
        const char *name = json_str(named, "const", NULL);
        cJSON *arguments =
            name ? arguments_of(call, defs, json_bool(schema, "x-closed", false)) : NULL;
        if (!arguments)
            return err_set(e, ERR_VALIDATION, "calls in channels: a name and arguments"), TERM_NONE;
        term t = schema_term(p, arguments, layout, e);
        cJSON_Delete(arguments);
        if (t == TERM_NONE)
            return TERM_NONE;
        t = term_cat(p, call_head(p, name), t);
        all = all == TERM_NONE ? t : term_alt(p, all, t);
    }
    if (all == TERM_NONE)
        err_set(e, ERR_VALIDATION, "calls in channels: no functions are given");
    return all;
}
