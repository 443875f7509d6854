/* schema_ref.c - resolves references: pointers, anchors, and `$id`s inside the document. */
#include "common/buf.h"
#include "common/constraint/schema_impl.h"
#include "common/json/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_URI = 2048 };

/* ---------------------------------------------------------------- addresses */

static size_t scheme_length(const char *uri)
{
    size_t n = strspn(uri, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    return n && uri[n] == ':' ? n + 1 : 0;
}

/* Resolves `to` against `base`, without a fragment (RFC 3986, 5.2, without dot segments). */
static void join(char out[MAX_URI], const char *base, const char *to)
{
    size_t n = strcspn(to, "#"), keep = scheme_length(base);
    if (!strncmp(base + keep, "//", 2))
        keep += 2 + strcspn(base + keep + 2, "/?#");
    if (scheme_length(to)) {
        keep = 0;
    } else if (!n) {
        keep = strcspn(base, "#");
    } else if (*to != '/') { /* after the last slash of the path */
        size_t end = strcspn(base, "?#");
        while (end > keep && base[end - 1] != '/')
            end--;
        keep = end;
    }
    snprintf(out, MAX_URI, "%.*s%.*s", (int)keep, base, (int)n, to);
}

/* How a keyword contains schemas. */
enum holds {
    NOTHING,
    A_SCHEMA, /* or a list of them */
    BY_NAME
};

static enum holds holds(const cJSON *v)
{
    static const char *const one[] = {"allOf",
                                      "anyOf",
                                      "oneOf",
                                      "not",
                                      "if",
                                      "then",
                                      "else",
                                      "items",
                                      "prefixItems",
                                      "contains",
                                      "additionalItems",
                                      "additionalProperties",
                                      "propertyNames",
                                      "unevaluatedItems",
                                      "unevaluatedProperties",
                                      "contentSchema",
                                      NULL};
    static const char *const named[] = {
        "$defs",        "definitions", "properties", "patternProperties", "dependentSchemas",
        "dependencies", NULL};
    for (int i = 0; v->string && one[i]; i++)
        if (!strcmp(v->string, one[i]))
            return A_SCHEMA;
    for (int i = 0; v->string && named[i]; i++)
        if (!strcmp(v->string, named[i]))
            return BY_NAME;
    return NOTHING;
}

int schema_draft(const cJSON *root)
{
    static const struct {
        const char *part;
        int draft;
    } rows[] = {
        {"draft-03", 4}, {"draft-04", 4}, {"draft-06", 6}, {"draft-07", 7}, {"2019-09", 2019}};
    const char *uri = json_str(root, "$schema", "");
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (strstr(uri, rows[i].part))
            return rows[i].draft;
    return 2020;
}

static const char *id_key(int draft) { return draft == 4 ? "id" : "$id"; }

/* The identifier of a schema, under the draft's name; NULL: none, or one beside a `$ref` that hides
 * it. */
static const char *id_of(const struct schema *s, const cJSON *at)
{
    if (s->draft <= 7 && json_get(at, "$ref"))
        return NULL;
    return json_str(at, id_key(s->draft), NULL);
}

/* A traversal of the document. */
struct ref_walk {
    struct schema *s;
    const cJSON *ref;   /* searched to find its base */
    const char *uri;    /* or the schema with this address */
    const char *anchor; /* and inside it; NULL: none */
    const cJSON *found;
    char base[MAX_URI]; /* of `ref`, when found */
    int dynamic;        /* number of dynamic anchors with this name */
    int recursive;      /* number of schemas with `$recursiveAnchor` */
};

static bool has_anchor(struct ref_walk *w, const cJSON *at)
{
    const char *own = json_str(at, "$anchor", NULL);
    const char *dynamic = json_str(at, "$dynamicAnchor", NULL), *id = id_of(w->s, at);
    if (w->anchor && id && *id == '#' && !strcmp(id + 1, w->anchor)) /* up to draft 7 */
        return true;
    if (dynamic && w->anchor && !strcmp(dynamic, w->anchor)) {
        w->dynamic++;
        return true;
    }
    return w->anchor && own && !strcmp(own, w->anchor);
}

static void walk(struct ref_walk *w, const cJSON *at, const char *base);

static void walk_under(struct ref_walk *w, const cJSON *v, enum holds how, const char *base)
{
    const cJSON *kid;
    if (how == A_SCHEMA && v->child)
        walk(w, v, base);
    else if (how == BY_NAME)
        cJSON_ArrayForEach(kid, v) walk_under(w, kid, A_SCHEMA, base);
}

static void walk(struct ref_walk *w, const cJSON *at, const char *base)
{
    char *own = NULL;
    const char *id = id_of(w->s, at);
    const cJSON *kid;
    term_work(w->s->p, 1);
    w->recursive += cJSON_IsTrue(json_get(at, "$recursiveAnchor"));
    if (id && *id != '#') {
        if (!(own = malloc(MAX_URI))) {
            term_no_memory(w->s->p);
            return;
        }
        join(own, base, id);
        base = own;
    }
    if (w->uri && !strcmp(base, w->uri)) {
        bool here = w->anchor ? has_anchor(w, at) : at == w->s->root || (id && *id != '#');
        if (here && !w->found)
            w->found = at;
    } else if (!w->uri && w->anchor) {
        has_anchor(w, at);
    }
    cJSON_ArrayForEach(kid, at)
    {
        if (w->ref && cJSON_IsString(kid) && kid->valuestring == w->ref->valuestring && !w->found) {
            w->found = kid;
            snprintf(w->base, sizeof(w->base), "%s", base);
        }
        walk_under(w, kid, cJSON_IsArray(at) ? A_SCHEMA : holds(kid), base);
    }
    free(own);
}

bool schema_has_ids(const cJSON *at, int draft)
{
    const cJSON *kid;
    cJSON_ArrayForEach(kid, at) if (json_str(kid, id_key(draft), NULL) ||
                                    schema_has_ids(kid, draft)) return true;
    return false;
}

/* ---------------------------------------------------------------- pointers */

static void unescape(char *to, const char *s, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned v;
        if (s[i] == '%' && i + 2 < n && sscanf(s + i + 1, "%2x", &v) == 1) {
            to[len++] = (char)v;
            i += 2;
        } else {
            to[len++] = s[i];
        }
    }
    to[len] = '\0';
    char *out = to;
    for (const char *in = to; *in; in++) {
        if (*in == '~' && (in[1] == '0' || in[1] == '1'))
            *out++ = *++in == '0' ? '~' : '/';
        else
            *out++ = *in;
    }
    *out = '\0';
}

static const cJSON *by_pointer(struct schema *s, const cJSON *at, const char *to)
{
    char key[1024];
    while (*to == '/' && at) {
        size_t n = strcspn(++to, "/");
        if (n >= sizeof(key))
            return NULL;
        unescape(key, to, n);
        to += n;
        term_work(s->p, (uint64_t)cJSON_GetArraySize(at) / 8);
        at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, atoi(key))
                               : cJSON_GetObjectItemCaseSensitive(at, key);
    }
    return *to ? NULL : at;
}

/* ---------------------------------------------------------------- both */

const cJSON *schema_resolve(struct schema *s, const cJSON *ref)
{
    const char *to = cJSON_GetStringValue(ref);
    struct ref_walk w = {.s = s, .ref = ref};
    if (!to || strlen(to) >= MAX_URI / 2)
        return schema_fail(s, ref, "no reference"), NULL;
    const char *fragment = strchr(to, '#');
    fragment = fragment ? fragment + 1 : "";
    if (!strcmp(to, "#") || !strncmp(to, "#/", 2)) {
        if (!s->has_ids) {
            const cJSON *at = by_pointer(s, s->root, to + 1);
            return at ? at : (schema_fail(s, ref, "an unresolved reference"), NULL);
        }
    }
    const char *id = id_of(s, s->root);
    join(w.base, "", id ? id : ""); /* if it is under no known keyword */
    walk(&w, s->root, "");
    struct ref_walk where = {.s = s, .uri = NULL};
    char uri[MAX_URI];
    join(uri, w.base, to);
    where.uri = uri;
    where.anchor = *fragment && *fragment != '/' ? fragment : NULL;
    walk(&where, s->root, "");
    if (!where.found && *to != '#' && !where.anchor && strcmp(uri, ""))
        return schema_fail(s, ref, "only references inside the schema are supported"), NULL;
    const cJSON *at =
        where.found && *fragment == '/' ? by_pointer(s, where.found, fragment) : where.found;
    if (where.dynamic && ref->string && !strcmp(ref->string, "$dynamicRef")) {
        struct ref_walk all = {.s = s, .anchor = fragment};
        walk(&all, s->root, "");
        if (all.dynamic > 1)
            return schema_fail(s, ref, "`$dynamicRef` with several anchors is not supported"), NULL;
    }
    if (ref->string && !strcmp(ref->string, "$recursiveRef") && where.recursive > 1 &&
        cJSON_IsTrue(json_get(at, "$recursiveAnchor")))
        return schema_fail(s, ref, "`$recursiveRef` with several anchors is not supported"), NULL;
    if (!at && *to != '#')
        return schema_fail(s, ref, "only references inside the schema are supported"), NULL;
    return at ? at : (schema_fail(s, ref, "an unresolved reference"), NULL);
}
