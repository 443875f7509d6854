/* Google's schemas are those of OpenAPI 3.0 with types in capitals and counts as text. */
#include "common/json/json.h"
#include "router/api/gemini/gemini.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ORDERED = 256 };

static void convert(cJSON *s);

/* Renames the members of an object from snake case to camel case. */
static void gemini_rename(cJSON *at)
{
    for (cJSON *k = at->child; k; k = k->next) {
        size_t n = 0;
        for (const char *from = k->string; from && *from; from++) {
            const bool word = *from == '_' && from[1];
            from += word;
            k->string[n] = word && n ? (char)toupper((unsigned char)*from) : *from;
            n++;
        }
        if (n)
            k->string[n] = 0;
    }
}

/* The client's own names and values are inside. */
static bool is_opaque(const char *name)
{
    static const char *const names[] = {"args",           "response",
                                        "parameters",     "parametersJsonSchema",
                                        "responseSchema", "responseJsonSchema"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

void gemini_rename_all(cJSON *at)
{
    gemini_rename(at);
    for (cJSON *k = at->child; k; k = k->next)
        if (!k->string || !is_opaque(k->string))
            gemini_rename_all(k);
}

bool gemini_word(const char *from, char word[GEMINI_WORD])
{
    static const char unset[] = "_unspecified";
    const size_t n = from ? strlen(from) : 0, tail = sizeof(unset) - 1;
    if (!n || n >= GEMINI_WORD)
        return false;
    for (size_t i = 0; i <= n; i++)
        word[i] = (char)tolower((unsigned char)from[i]);
    return n < tail || strcmp(word + n - tail, unset) != 0;
}

/* "STRING" becomes "string". */
static void lower_type(cJSON *s)
{
    const char *type = json_str(s, "type", NULL);
    char word[GEMINI_WORD];
    if (!type || strlen(type) >= GEMINI_WORD)
        return;
    if (gemini_word(type, word))
        json_put(s, "type", cJSON_CreateString(word));
    else
        cJSON_DeleteItemFromObjectCaseSensitive(s, "type");
}

/* Counts are 64 bits wide, which Google's JSON has as text. */
static void read_counts(cJSON *s)
{
    static const char *const names[] = {"minItems",  "maxItems",      "minLength",
                                        "maxLength", "minProperties", "maxProperties"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = json_str(s, names[i], NULL);
        char *end = NULL;
        const double v = text ? strtod(text, &end) : 0;
        if (text && end > text && !*end)
            json_put(s, names[i], cJSON_CreateNumber(v));
    }
}

static void append_null(cJSON *list) { cJSON_AddItemToArray(list, cJSON_CreateNull()); }

/* `nullable` adds null to the types, the values or the alternatives. */
static void allow_null(cJSON *s)
{
    const bool nullable = json_bool(s, "nullable", false);
    const char *type = json_str(s, "type", NULL);
    cJSON *values = cJSON_GetObjectItemCaseSensitive(s, "enum");
    cJSON *ways = cJSON_GetObjectItemCaseSensitive(s, "anyOf");
    cJSON_DeleteItemFromObjectCaseSensitive(s, "nullable");
    if (!nullable)
        return;
    if (type) {
        const char *const types[] = {type, "null"};
        json_put(s, "type", cJSON_CreateStringArray(types, 2));
    }
    if (cJSON_IsArray(values))
        append_null(values);
    if (cJSON_IsArray(ways)) {
        cJSON *way = cJSON_CreateObject();
        cJSON_AddStringToObject(way, "type", "null");
        cJSON_AddItemToArray(ways, way);
    }
}

/* Moves the properties into the order that the schema asks for. */
static void order(cJSON *s)
{
    cJSON *properties = cJSON_GetObjectItemCaseSensitive(s, "properties");
    cJSON *names = cJSON_DetachItemFromObjectCaseSensitive(s, "propertyOrdering");
    cJSON *sorted = cJSON_CreateObject(), *k;
    const bool few =
        cJSON_GetArraySize(names) <= MOST_ORDERED && cJSON_GetArraySize(properties) <= MOST_ORDERED;
    for (const cJSON *n = few && cJSON_IsObject(properties) ? json_first(names) : NULL; n;
         n = n->next)
        if (cJSON_IsString(n) &&
            (k = cJSON_DetachItemFromObjectCaseSensitive(properties, n->valuestring)))
            cJSON_AddItemToObject(sorted, n->valuestring, k);
    while (sorted && sorted->child) { /* the others follow */
        k = cJSON_DetachItemViaPointer(sorted, sorted->child->prev);
        cJSON_InsertItemInArray(properties, 0, k);
    }
    cJSON_Delete(sorted);
    cJSON_Delete(names);
}

static void convert_each(cJSON *list)
{
    for (cJSON *k = list ? list->child : NULL; k; k = k->next)
        convert(k);
}

static void convert(cJSON *s)
{
    static const char *const maps[] = {"properties", "anyOf", "defs", "$defs", "prefixItems"};
    static const char *const schemas[] = {"items", "additionalProperties"};
    if (!cJSON_IsObject(s))
        return;
    gemini_rename(s);
    lower_type(s);
    read_counts(s);
    allow_null(s);
    order(s);
    for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++)
        convert_each(cJSON_GetObjectItemCaseSensitive(s, maps[i]));
    for (size_t i = 0; i < sizeof(schemas) / sizeof(schemas[0]); i++)
        convert(cJSON_GetObjectItemCaseSensitive(s, schemas[i]));
}

cJSON *gemini_schema(const cJSON *given)
{
    cJSON *s = cJSON_Duplicate(given, true);
    convert(s);
    return s;
}
