/* The tests that follow `is`. */
#include "common/template/text.h"
#include <string.h>

#define TEST(name) static struct val name(struct vm *vm, struct val self, const struct args *a)
#define ANSWER(x)  return (void)vm, (void)a, val_bool(x)

static struct val modulo(struct vm *vm, struct val v, struct val by)
{
    return op_binary(vm, 5 /* % */, v, by);
}

TEST(is_odd) { ANSWER(val_eq(vm, modulo(vm, self, val_int(2)), val_int(1))); }
TEST(is_even) { ANSWER(val_eq(vm, modulo(vm, self, val_int(2)), val_int(0))); }
TEST(is_divisibleby) { ANSWER(val_eq(vm, modulo(vm, self, a->v[0]), val_int(0))); }
TEST(is_defined) { ANSWER(self.type != V_UNDEFINED); }
TEST(is_undefined) { ANSWER(self.type == V_UNDEFINED); }
TEST(is_none) { ANSWER(self.type == V_NONE); }
TEST(is_boolean) { ANSWER(self.type == V_BOOL); }
TEST(is_true) { ANSWER(self.type == V_BOOL && self.b); }
TEST(is_false) { ANSWER(self.type == V_BOOL && !self.b); }
TEST(is_integer) { ANSWER(self.type == V_INT || self.type == V_BIGINT); }
TEST(is_float) { ANSWER(self.type == V_FLOAT); }
TEST(is_number) { ANSWER(val_is_number(self, NULL) || self.type == V_BIGINT); }
TEST(is_string) { ANSWER(self.type == V_STR); }
TEST(is_mapping) { ANSWER(self.type == V_DICT); }
TEST(is_iterable) { ANSWER(val_iterable(self)); }
TEST(is_escaped) { ANSWER(self.type == V_STR && self.s->markup); }
TEST(is_lower) { ANSWER(text_is_cased(vm, val_to_str(vm, self), CASE_LOWER)); }
TEST(is_upper) { ANSWER(text_is_cased(vm, val_to_str(vm, self), CASE_UPPER)); }

TEST(is_sequence) /* supports len() and [] */
{
    ANSWER(self.type == V_STR || self.type == V_DICT || self.type == V_UNDEFINED ||
           val_indexable(self));
}

TEST(is_callable)
{
    ANSWER(self.type == V_CALLABLE || self.type == V_MACRO || self.type == V_LOOP ||
           self.type == V_JOINER || self.type == V_UNDEFINED);
}

TEST(is_sameas)
{
    struct val o = a->v[0];
    if (self.type != o.type)
        ANSWER(false);
    switch (self.type) {
    case V_NONE:
        ANSWER(true);
    case V_BOOL:
        ANSWER(self.b == o.b);
    case V_INT:
        ANSWER(self.i == o.i && self.i >= -5 && self.i <= 256); /* Python's cached small integers */
    case V_FLOAT:
        ANSWER(false);
    default:
        ANSWER(self.s == o.s);
    }
}

TEST(is_filter) { ANSWER(self.type == V_STR && filter_find(self.s->p, self.s->n)); }
TEST(is_test) { ANSWER(self.type == V_STR && test_find(self.s->p, self.s->n)); }
TEST(is_in) { ANSWER(op_contains(vm, self, a->v[0])); }
TEST(is_eq) { ANSWER(val_eq(vm, self, a->v[0])); }
TEST(is_ne) { ANSWER(!val_eq(vm, self, a->v[0])); }

static int order(struct vm *vm, struct val self, const struct args *a, const char *op,
                 bool *unordered)
{
    *unordered = false;
    return val_cmp(vm, self, a->v[0], op, unordered);
}

#define ORDER(name, op)                                                                            \
    TEST(name)                                                                                     \
    {                                                                                              \
        bool unordered;                                                                            \
        int c = order(vm, self, a, #op, &unordered);                                               \
        return val_bool(!unordered && c op 0);                                                     \
    }
ORDER(is_lt, <)
ORDER(is_le, <=)
ORDER(is_gt, >)
ORDER(is_ge, >=)

static const struct builtin tests[] = {
    {"defined", is_defined, ""},
    {"undefined", is_undefined, ""},
    {"none", is_none, ""},
    {"boolean", is_boolean, ""},
    {"true", is_true, ""},
    {"false", is_false, ""},
    {"integer", is_integer, ""},
    {"float", is_float, ""},
    {"number", is_number, ""},
    {"string", is_string, ""},
    {"mapping", is_mapping, ""},
    {"sequence", is_sequence, ""},
    {"iterable", is_iterable, ""},
    {"callable", is_callable, ""},
    {"sameas", is_sameas, "other"},
    {"escaped", is_escaped, ""},
    {"lower", is_lower, ""},
    {"upper", is_upper, ""},
    {"odd", is_odd, ""},
    {"even", is_even, ""},
    {"divisibleby", is_divisibleby, "num"},
    {"filter", is_filter, ""},
    {"test", is_test, ""},
    {"in", is_in, "seq"},
    {"eq", is_eq, "other"},
    {"equalto", is_eq, "other"},
    {"==", is_eq, "other"},
    {"ne", is_ne, "other"},
    {"!=", is_ne, "other"},
    {"lt", is_lt, "other"},
    {"lessthan", is_lt, "other"},
    {"<", is_lt, "other"},
    {"le", is_le, "other"},
    {"<=", is_le, "other"},
    {"gt", is_gt, "other"},
    {"greaterthan", is_gt, "other"},
    {">", is_gt, "other"},
    {"ge", is_ge, "other"},
    {">=", is_ge, "other"},
};

const struct builtin *test_find(const char *name, size_t n)
{
    return builtin_find(tests, sizeof(tests) / sizeof(*tests), name, n);
}
