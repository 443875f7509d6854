/* attr.c - obj.name, obj[key], obj[a:b:c] under the rules of Jinja's immutable sandbox. `.` tries
 * an attribute first and then an item, `[]` the other way round. Missing ones are undefined. Names
 * of Python internals and mutating methods are undefined, with the reason as their error. */
#include "common/template/eval.h"
#include <string.h>

static struct val bound(struct vm *vm, const struct builtin *fn, struct val self)
{
    struct callable *c = VM_NEW(vm, struct callable, 1);
    *c = (struct callable){fn, self};
    return (struct val){.type = V_CALLABLE, .c = c};
}

static bool is(const char *name, size_t n, const char *s)
{
    return strlen(s) == n && !memcmp(name, s, n);
}

/* Data attributes; V_MISSING: none with this name. */
static struct val data_attr(struct vm *vm, struct val obj, const char *name, size_t n)
{
    const struct val *v;
    switch (obj.type) {
    case V_LOOP:
        return loop_attr(vm, obj, name, n);
    case V_MACRO:
        return macro_attr(vm, obj, name, n);
    case V_NAMESPACE:
        v = dict_find(vm, obj.d, name, n);
        return v ? *v : MISSING;
    case V_CYCLER:
        if (is(name, n, "current"))
            return obj.cycler->v->v[obj.cycler->at];
        return MISSING;
    case V_TUPLE:
        if (obj.l->group && is(name, n, "grouper"))
            return obj.l->v[0];
        if (obj.l->group && is(name, n, "list"))
            return obj.l->v[1];
        return MISSING;
    default:
        return MISSING;
    }
}

static struct val attribute(struct vm *vm, struct val obj, const char *name, size_t n)
{
    struct val v = data_attr(vm, obj, name, n);
    if (v.type != V_MISSING)
        return n && name[0] == '_' ? val_unsafe(vm, obj, name, n) : v;
    const struct builtin *m = method_find(obj, name, n);
    if (m)
        return bound(vm, m, obj);
    if (method_mutates(obj, name, n) ||
        (n > 4 && !memcmp(name, "__", 2) && !memcmp(name + n - 2, "__", 2)))
        return val_unsafe(vm, obj, name, n);
    return MISSING;
}

static bool index_of(struct val key, int64_t n, int64_t *i)
{
    if (!val_as_int(key, i))
        return false;
    if (*i < 0)
        *i += n;
    return *i >= 0 && *i < n;
}

/* obj[key]; V_MISSING: a TypeError or LookupError in Python. */
static struct val item(struct vm *vm, struct val obj, struct val key)
{
    int64_t i;
    if (obj.type == V_DICT) {
        if (key.type == V_LIST || key.type == V_DICT)
            return MISSING;
        const struct val *v = dict_get(vm, obj.d, key);
        return v ? *v : MISSING;
    }
    if (val_indexable(obj) && index_of(key, obj.l->n, &i))
        return obj.l->v[i];
    if (obj.type == V_STR && index_of(key, obj.s->n_chars, &i))
        return str_slice(vm, obj, i, i + 1);
    return MISSING;
}

struct val vm_attr(struct vm *vm, struct val obj, const char *name, size_t n)
{
    if (obj.type == V_UNDEFINED)
        vm_fail_undefined(vm, obj);
    struct val v = attribute(vm, obj, name, n);
    if (v.type == V_MISSING && obj.type == V_DICT) {
        const struct val *e = dict_find(vm, obj.d, name, n);
        if (e)
            return *e;
    }
    return v.type != V_MISSING ? v : val_undefined(vm, NULL, obj, val_str(vm, name, n));
}

struct val vm_attr_only(struct vm *vm, struct val obj, struct val name)
{
    struct val v = attribute(vm, obj, name.s->p, name.s->n);
    return v.type != V_MISSING ? v : val_undefined(vm, NULL, obj, name);
}

struct val vm_item(struct vm *vm, struct val obj, struct val key)
{
    if (obj.type == V_UNDEFINED)
        vm_fail_undefined(vm, obj);
    struct val v = item(vm, obj, key);
    if (v.type == V_MISSING && key.type == V_STR)
        v = attribute(vm, obj, key.s->p, key.s->n);
    return v.type != V_MISSING ? v : val_undefined(vm, NULL, obj, key);
}

/* ---------------------------------------------------------------- slices */
static int64_t slice_bound(struct vm *vm, struct val v, int64_t n, int64_t low, int64_t high,
                           int64_t def)
{
    int64_t i;
    if (v.type == V_NONE)
        return def;
    if (!val_as_int(v, &i))
        vm_type_error(vm, "slice indices must be integers or None or have an __index__ method");
    if (i < 0)
        i += n;
    return i < low ? low : i > high ? high : i;
}

struct val vm_slice(struct vm *vm, struct val obj, struct val from, struct val to, struct val stepv)
{
    int64_t step = 1, n;
    if (obj.type == V_UNDEFINED)
        vm_fail_undefined(vm, obj);
    if (obj.type == V_DICT)
        vm_type_error(vm, "unhashable type: 'slice'");
    if (obj.type != V_STR && !val_indexable(obj))
        vm_type_error(vm, "'%s' object is not subscriptable", val_type(obj));
    if (stepv.type != V_NONE && !val_as_int(stepv, &step))
        vm_type_error(vm, "slice indices must be integers or None or have an __index__ method");
    if (step == 0)
        vm_type_error(vm, "slice step cannot be zero");
    n = obj.type == V_STR ? obj.s->n_chars : obj.l->n;
    bool back = step < 0;
    int64_t low = back ? -1 : 0, high = back ? n - 1 : n;
    int64_t a = slice_bound(vm, from, n, low, high, back ? high : 0);
    int64_t b = slice_bound(vm, to, n, low, high, back ? -1 : high);
    if (obj.type == V_STR && step == 1)
        return str_slice(vm, obj, a, b < a ? a : b);
    const struct list *src = obj.type == V_STR ? val_items(vm, obj) : obj.l;
    struct list *l = list_new(vm, 0);
    if (step > n + 1 || step < -n - 1)
        step = back ? -n - 1 : n + 1; /* at most one item, without overflow */
    for (int64_t i = a; back ? i > b : i < b; i += step)
        list_push(vm, l, src->v[i]);
    if (obj.type == V_RANGE) {
        l->start = obj.l->start + a * obj.l->step;
        l->stop = obj.l->start + b * obj.l->step;
        l->step = obj.l->step * step;
    }
    if (obj.type != V_STR)
        return val_list(obj.type, l);
    struct strbuf text = {0};
    for (uint32_t i = 0; i < l->n; i++)
        sb_add(vm, &text, l->v[i].s->p, l->v[i].s->n);
    return val_markup(vm, sb_val(vm, &text), obj.s->markup);
}
