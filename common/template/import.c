#include "common/template/import.h"
#include "common/template/template.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct val number(struct vm *vm, const cJSON *j)
{
    const char *text = j->valuestring;
    if (!text) {
        double f = j->valuedouble;
        return f == floor(f) && fabs(f) <= 9007199254740992.0 ? val_int((int64_t)f) : val_float(f);
    }
    if (strpbrk(text, ".eE"))
        return val_float(strtod(text, NULL));
    errno = 0;
    struct val v = val_int(strtoll(text, NULL, 10));
    if (errno == ERANGE) {
        v = val_cstr(vm, text);
        v.type = V_BIGINT;
    }
    return v;
}

struct val val_from_json(struct vm *vm, const cJSON *j)
{
    struct val v = NONE_VALUE;
    vm_charge(vm, 1);
    if (cJSON_IsBool(j))
        return val_bool(cJSON_IsTrue(j));
    if (cJSON_IsNumber(j))
        return number(vm, j);
    if (cJSON_IsString(j))
        return val_cstr(vm, j->valuestring);
    vm_enter(vm);
    if (cJSON_IsArray(j)) {
        v = val_list(V_LIST, list_new(vm, 0));
        for (const cJSON *c = j->child; c; c = c->next)
            list_push(vm, v.l, val_from_json(vm, c));
    } else if (cJSON_IsObject(j)) {
        v = val_dict(dict_new(vm));
        for (const cJSON *c = j->child; c; c = c->next)
            dict_set(vm, v.d, val_cstr(vm, c->string), val_from_json(vm, c));
    }
    vm_leave(vm);
    return v;
}

/* ---------------------------------------------------------------- spelling of numbers */
/* The next number of the tree in text order; `*at`: position of the last one. */
static cJSON *next_number(cJSON **path, int *depth, int max_depth)
{
    cJSON *j = path[*depth];
    for (;;) {
        if (j->child && *depth + 1 < max_depth) {
            j = j->child;
            path[++*depth] = j;
        } else {
            while (*depth > 0 && !path[*depth]->next)
                --*depth;
            if (*depth == 0)
                return NULL;
            j = path[*depth] = path[*depth]->next;
        }
        if (cJSON_IsNumber(j))
            return j;
    }
}

static void keep(cJSON *j, const char *s, size_t n)
{
    bool special = n > 15;
    for (size_t i = 0; i < n; i++)
        special |= s[i] == '.' || s[i] == 'e' || s[i] == 'E';
    if (!special || j->valuestring || !(j->valuestring = cJSON_malloc(n + 1)))
        return;
    memcpy(j->valuestring, s, n);
    j->valuestring[n] = 0;
}

void template_keep_numbers(cJSON *tree, const char *text, size_t n)
{
    enum { MAX_DEPTH = CJSON_NESTING_LIMIT + 2 };
    cJSON *path[MAX_DEPTH] = {tree};
    int depth = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"') {
            for (i++; i < n && text[i] != '"'; i++)
                i += text[i] == '\\';
        } else if (text[i] == '-' || (text[i] >= '0' && text[i] <= '9')) {
            size_t from = i;
            while (i < n && text[i] && strchr("+-.eE0123456789", text[i]))
                i++;
            cJSON *j = cJSON_IsNumber(tree) ? tree : next_number(path, &depth, MAX_DEPTH);
            if (!j)
                return;
            keep(j, text + from, i - from);
            i--;
        }
    }
}
