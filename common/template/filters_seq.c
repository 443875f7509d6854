/* Filters of lists, dicts and iterables. */
#include "common/template/filters.h"
#include "common/template/text.h"
#include <string.h>

/* ---------------------------------------------------------------- keys and attributes */
static struct val fold(struct vm *vm, struct val v, bool case_sensitive)
{
    return v.type == V_STR && !case_sensitive ? text_case(vm, v, CASE_LOWER) : v;
}

/* Resolves "a.b.0" step by step; `def` (or V_NONE) replaces an undefined result. */
static struct val get_path(struct vm *vm, struct val v, struct val path, struct val def)
{
    if (path.type == V_NONE || path.type == V_MISSING)
        return v;
    if (path.type != V_STR) {
        v = vm_item(vm, v, path);
        return v.type == V_UNDEFINED && def.type != V_NONE && def.type != V_MISSING ? def : v;
    }
    const char *p = path.s->p, *end = p + path.s->n;
    for (;;) {
        const char *dot = memchr(p, '.', (size_t)(end - p));
        size_t n = (size_t)((dot ? dot : end) - p), digits = 0;
        int64_t i = 0;
        while (digits < n && p[digits] >= '0' && p[digits] <= '9' && digits < 18)
            i = i * 10 + (p[digits++] - '0');
        v = vm_item(vm, v, n && digits == n ? val_int(i) : val_str(vm, p, n));
        if (v.type == V_UNDEFINED && def.type != V_NONE && def.type != V_MISSING)
            v = def;
        if (!dot)
            return v;
        p = dot + 1;
    }
}

/* Sort key: a list of the comma-separated attributes of an item. */
static struct val sort_key(struct vm *vm, struct val v, struct val attribute, bool case_sensitive)
{
    struct list *l = list_new(vm, 1);
    struct list *paths = list_new(vm, 1);
    if (attribute.type == V_STR)
        paths = text_split(vm, attribute, val_cstr(vm, ","), -1);
    else
        list_push(vm, paths, attribute);
    for (uint32_t i = 0; i < paths->n; i++)
        list_push(vm, l, fold(vm, get_path(vm, v, paths->v[i], NONE_VALUE), case_sensitive));
    return val_list(V_LIST, l);
}

static struct list *copy(struct vm *vm, const struct list *from)
{
    struct list *l = list_new(vm, from->n);
    for (uint32_t i = 0; i < from->n; i++)
        list_push(vm, l, from->v[i]);
    return l;
}

/* ---------------------------------------------------------------- generators */
/* Copies the arguments, because a generator reads them after the call. */
static const struct args *keep_args(struct vm *vm, const struct args *a)
{
    struct args *k = VM_NEW(vm, struct args, 1);
    *k = *a;
    k->v = a->n ? VM_NEW(vm, struct val, a->n) : NULL;
    if (a->n)
        memcpy(k->v, a->v, a->n * sizeof(*k->v));
    return k;
}

static struct val generator(struct vm *vm,
                            struct val (*run)(struct vm *, struct val, const struct args *, int),
                            struct val source, const struct args *a, int how)
{
    struct gen *g = VM_NEW(vm, struct gen, 1);
    *g = (struct gen){.run = run, .source = source, .a = keep_args(vm, a), .how = how};
    return (struct val){.type = V_GENERATOR, .g = g};
}

static struct args tail(const struct args *a, uint32_t from)
{
    struct args t = *a;
    t.v += from;
    t.n -= from;
    return t;
}

static const struct str *row_name(struct vm *vm, struct val v, const char *kind)
{
    if (v.type != V_STR)
        vm_fail(vm, FAULT_UNKNOWN, "No %s named %s.", kind, val_repr_c(vm, v));
    return v.s;
}

static const struct val *keyword(const struct args *a, const char *name)
{
    for (uint32_t i = 0; i < a->n_kw; i++)
        if (val_is(a->kw[i].name, name))
            return &a->kw[i].v;
    return NULL;
}

static struct val map_attribute(struct vm *vm, const struct list *in, const struct args *a)
{
    const struct val *attr = keyword(a, "attribute"), *def = keyword(a, "default");
    struct list *l = list_new(vm, 0);
    for (uint32_t i = 0; i < a->n_kw; i++)
        if (!val_is(a->kw[i].name, "attribute") && !val_is(a->kw[i].name, "default"))
            vm_type_error(vm, "Unexpected keyword argument %s", val_repr_c(vm, a->kw[i].name));
    for (uint32_t i = 0; i < in->n; i++)
        list_push(vm, l, get_path(vm, in->v[i], *attr, def ? *def : NONE_VALUE));
    return val_list(V_LIST, l);
}

static struct val run_map(struct vm *vm, struct val source, const struct args *a, int how)
{
    (void)how;
    struct list *l = list_new(vm, 0);
    if (!val_truthy(vm, source))
        return val_list(V_LIST, l);
    const struct list *in = val_items(vm, source);
    if (!a->n && keyword(a, "attribute"))
        return map_attribute(vm, in, a);
    if (!a->n)
        vm_type_error(vm, "map requires a filter argument");
    const struct str *name = row_name(vm, a->v[0], "filter");
    const struct builtin *f = filter_find(name->p, name->n);
    struct args rest = tail(a, 1);
    if (!f && in->n)
        vm_fail(vm, FAULT_UNKNOWN, "No filter named '%.*s'.", (int)name->n, name->p);
    for (uint32_t i = 0; i < in->n; i++)
        list_push(vm, l, builtin_call(vm, f, in->v[i], &rest));
    return val_list(V_LIST, l);
}

FILTER(filter_map) { return generator(vm, run_map, self, a, 0); }

enum { SELECT = 1, BY_ATTR = 2 };

static struct val run_select(struct vm *vm, struct val source, const struct args *a, int how)
{
    struct list *l = list_new(vm, 0);
    uint32_t off = how & BY_ATTR ? 1 : 0;
    if (!val_truthy(vm, source))
        return val_list(V_LIST, l);
    if (a->n < off)
        vm_type_error(vm, "Missing parameter for attribute name");
    const struct list *in = val_items(vm, source);
    const struct builtin *test = NULL;
    struct args rest = {0};
    if (a->n > off) {
        const struct str *name = row_name(vm, a->v[off], "test");
        rest = tail(a, off + 1);
        if (!(test = test_find(name->p, name->n)) && in->n)
            vm_fail(vm, FAULT_UNKNOWN, "No test named '%.*s'.", (int)name->n, name->p);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        struct val v = off ? get_path(vm, in->v[i], a->v[0], NONE_VALUE) : in->v[i];
        if (test)
            v = builtin_call(vm, test, v, &rest);
        if (val_truthy(vm, v) == !!(how & SELECT))
            list_push(vm, l, in->v[i]);
    }
    return val_list(V_LIST, l);
}

FILTER(filter_select) { return generator(vm, run_select, self, a, SELECT); }
FILTER(filter_reject) { return generator(vm, run_select, self, a, 0); }
FILTER(filter_selectattr) { return generator(vm, run_select, self, a, SELECT | BY_ATTR); }
FILTER(filter_rejectattr) { return generator(vm, run_select, self, a, BY_ATTR); }

static struct val run_unique(struct vm *vm, struct val source, const struct args *a, int how)
{
    (void)how;
    struct list *l = list_new(vm, 0);
    const struct list *in = val_items(vm, source);
    struct dict *seen = dict_new(vm);
    for (uint32_t i = 0; i < in->n; i++) {
        struct val k =
            fold(vm, get_path(vm, in->v[i], a->v[1], NONE_VALUE), arg_bool(vm, a, 0, false));
        if (dict_get(vm, seen, k))
            continue;
        dict_set(vm, seen, k, NONE_VALUE);
        list_push(vm, l, in->v[i]);
    }
    return val_list(V_LIST, l);
}

FILTER(filter_unique) { return generator(vm, run_unique, self, a, 0); }

static struct val run_items(struct vm *vm, struct val source, const struct args *a, int how)
{
    (void)a, (void)how;
    struct list *l = list_new(vm, 0);
    if (source.type != V_DICT && source.type != V_UNDEFINED)
        vm_type_error(vm, "Can only get item pairs from a mapping.");
    for (uint32_t i = 0; source.type == V_DICT && i < source.d->n; i++)
        list_push(vm, l, val_pair(vm, source.d->e[i].k, source.d->e[i].v));
    return val_list(V_LIST, l);
}

FILTER(filter_items) { return generator(vm, run_items, self, a, 0); }

static struct val run_batch(struct vm *vm, struct val source, const struct args *a, int how)
{
    (void)how;
    struct list *l = list_new(vm, 0), *row = NULL;
    const struct list *in = val_items(vm, source);
    int64_t width = arg_int(vm, a, 0, 0);
    for (uint32_t i = 0; i < in->n; i++) {
        if (!row || row->n == width)
            list_push(vm, l, val_list(V_LIST, row = list_new(vm, 0)));
        list_push(vm, row, in->v[i]);
    }
    bool fill = arg_given(a, 1) && a->v[1].type != V_NONE;
    while (row && fill && row->n < width)
        list_push(vm, row, a->v[1]);
    return val_list(V_LIST, l);
}

FILTER(filter_batch) { return generator(vm, run_batch, self, a, 0); }

static struct val run_slice(struct vm *vm, struct val source, const struct args *a, int how)
{
    (void)how;
    struct list *l = list_new(vm, 0);
    const struct list *in = val_items(vm, source);
    int64_t slices = arg_int(vm, a, 0, 0);
    if (slices == 0)
        vm_type_error(vm, "integer division or modulo by zero");
    bool fill = arg_given(a, 1) && a->v[1].type != V_NONE;
    uint32_t at = 0;
    for (int64_t i = 0; i < slices; i++) {
        bool longer = i < in->n % slices;
        struct list *row = list_new(vm, 0);
        for (int64_t k = in->n / slices + longer; k > 0; k--)
            list_push(vm, row, in->v[at++]);
        if (fill && !longer)
            list_push(vm, row, a->v[1]);
        list_push(vm, l, val_list(V_LIST, row));
    }
    return val_list(V_LIST, l);
}

FILTER(filter_slice) { return generator(vm, run_slice, self, a, 0); }

static struct val run_reverse(struct vm *vm, struct val source, const struct args *a, int how)
{
    (void)a, (void)how;
    const struct list *in = val_items(vm, source);
    struct list *l = list_new(vm, in->n);
    for (uint32_t i = in->n; i > 0; i--)
        list_push(vm, l, in->v[i - 1]);
    return val_list(V_LIST, l);
}

FILTER(filter_reverse)
{
    if (self.type == V_STR)
        return vm_slice(vm, self, NONE_VALUE, NONE_VALUE, val_int(-1));
    if (self.type == V_GENERATOR)
        return run_reverse(vm, self, a, 0);
    if (!val_iterable(self))
        vm_type_error(vm, "argument must be iterable");
    struct val v = generator(vm, run_reverse, self, a, 0);
    v.g->name = self.type == V_LIST    ? "list_reverseiterator"
                : self.type == V_RANGE ? "range_iterator"
                : self.type == V_DICT  ? "dict_reversekeyiterator"
                                       : "reversed";
    return v;
}

/* ---------------------------------------------------------------- reductions */
FILTER(filter_default)
{
    bool empty = self.type == V_UNDEFINED || (arg_bool(vm, a, 1, false) && !val_truthy(vm, self));
    return !empty ? self : arg_given(a, 0) ? a->v[0] : val_cstr(vm, "");
}

FILTER(filter_attr)
{
    if (self.type == V_UNDEFINED)
        vm_fail_undefined(vm, self);
    return vm_attr_only(vm, self, text_need(vm, a->v[0], "attribute name"));
}

FILTER(filter_first)
{
    (void)a;
    if (self.type == V_GENERATOR) {
        struct list *l = gen_run(vm, self.g);
        if (self.g->at < l->n)
            return l->v[self.g->at++];
    } else {
        struct list *l = val_items(vm, self);
        if (l->n)
            return l->v[0];
    }
    return val_undefined(vm, "No first item, sequence was empty.", MISSING, MISSING);
}

FILTER(filter_last)
{
    (void)a;
    if (self.type == V_GENERATOR || !val_iterable(self))
        vm_type_error(vm, "'%s' object is not reversible", val_type(self));
    struct list *l = val_items(vm, self);
    if (l->n)
        return l->v[l->n - 1];
    return val_undefined(vm, "No last item, sequence was empty.", MISSING, MISSING);
}

FILTER(filter_length) { return (void)a, val_int(val_length(vm, self)); }
FILTER(filter_list) { return (void)a, val_list(V_LIST, copy(vm, val_items(vm, self))); }

FILTER(filter_join)
{
    struct val sep = arg_given(a, 0) ? val_to_str(vm, a->v[0]) : val_cstr(vm, "");
    const struct list *in = val_items(vm, self);
    struct strbuf b = {0};
    for (uint32_t i = 0; i < in->n; i++) {
        if (i)
            sb_add(vm, &b, sep.s->p, sep.s->n);
        bool by_attr = arg_given(a, 1) && a->v[1].type != V_NONE;
        val_print(vm, &b, by_attr ? get_path(vm, in->v[i], a->v[1], NONE_VALUE) : in->v[i]);
    }
    return sb_val(vm, &b);
}

static struct val extreme(struct vm *vm, struct val self, const struct args *a, bool max)
{
    const struct list *in = val_items(vm, self);
    struct val best = MISSING, best_key = MISSING;
    for (uint32_t i = 0; i < in->n; i++) {
        bool unordered = false;
        struct val k =
            fold(vm, get_path(vm, in->v[i], a->v[1], NONE_VALUE), arg_bool(vm, a, 0, false));
        int c = i ? val_cmp(vm, k, best_key, max ? ">" : "<", &unordered) : 0;
        if (i && (unordered || (max ? c <= 0 : c >= 0)))
            continue;
        best = in->v[i];
        best_key = k;
    }
    return in->n ? best
                 : val_undefined(vm, "No aggregated item, sequence was empty.", MISSING, MISSING);
}

FILTER(filter_max) { return extreme(vm, self, a, true); }
FILTER(filter_min) { return extreme(vm, self, a, false); }

FILTER(filter_sum)
{
    const struct list *in = val_items(vm, self);
    struct val sum = arg_given(a, 1) ? a->v[1] : val_int(0);
    if (sum.type == V_STR)
        vm_type_error(vm, "sum() can't sum strings [use ''.join(seq) instead]");
    for (uint32_t i = 0; i < in->n; i++)
        sum = op_binary(vm, 0 /* + */, sum, get_path(vm, in->v[i], a->v[0], NONE_VALUE));
    return sum;
}

/* ---------------------------------------------------------------- order */
FILTER(filter_sort)
{
    struct list *l = copy(vm, val_items(vm, self));
    struct val *keys = VM_NEW(vm, struct val, l->n + 1);
    struct val attribute = arg_given(a, 2) ? a->v[2] : NONE_VALUE;
    for (uint32_t i = 0; i < l->n; i++)
        keys[i] = sort_key(vm, l->v[i], attribute, arg_bool(vm, a, 1, false));
    list_sort(vm, keys, l->v, l->n, arg_bool(vm, a, 0, false));
    return val_list(V_LIST, l);
}

FILTER(filter_dictsort)
{
    bool by_value = arg_given(a, 1) && val_is(a->v[1], "value");
    if (arg_given(a, 1) && !by_value && !val_is(a->v[1], "key"))
        vm_type_error(vm, "You can only sort by either \"key\" or \"value\"");
    if (self.type == V_UNDEFINED)
        vm_fail_undefined(vm, self);
    if (self.type != V_DICT)
        vm_fail(vm, FAULT_UNDEFINED, "'%s object' has no attribute 'items'", val_type(self));
    struct list *l = list_new(vm, self.d->n);
    struct val *keys = VM_NEW(vm, struct val, self.d->n + 1);
    for (uint32_t i = 0; i < self.d->n; i++) {
        const struct entry *e = &self.d->e[i];
        list_push(vm, l, val_pair(vm, e->k, e->v));
        keys[i] = fold(vm, by_value ? e->v : e->k, arg_bool(vm, a, 0, false));
    }
    list_sort(vm, keys, l->v, l->n, arg_bool(vm, a, 2, false));
    return val_list(V_LIST, l);
}

FILTER(filter_groupby)
{
    struct list *l = copy(vm, val_items(vm, self)), *groups = list_new(vm, 0), *now = NULL;
    struct val *keys = VM_NEW(vm, struct val, l->n + 1);
    for (uint32_t i = 0; i < l->n; i++)
        keys[i] = fold(vm, get_path(vm, l->v[i], a->v[0], a->v[1]), arg_bool(vm, a, 2, false));
    list_sort(vm, keys, l->v, l->n, false);
    for (uint32_t i = 0; i < l->n; i++) {
        if (!i || !val_eq(vm, keys[i - 1], keys[i])) {
            now = list_new(vm, 0);
            struct val pair =
                val_pair(vm, get_path(vm, l->v[i], a->v[0], a->v[1]), val_list(V_LIST, now));
            pair.l->group = true;
            list_push(vm, groups, pair);
        }
        list_push(vm, now, l->v[i]);
    }
    return val_list(V_LIST, groups);
}
