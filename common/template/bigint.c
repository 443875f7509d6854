/* bigint.c - limbs of nine decimal digits, least significant first. */
#include "common/template/bigint.h"
#include "common/template/ast.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMB = 1000000000, LIMB_DIGITS = 9, MAX_LIMBS = BIG_DIGITS / LIMB_DIGITS + 2 };

struct big {
    bool negative;
    uint32_t n; /* no leading zero limb; 0: zero */
    uint32_t d[2 * MAX_LIMBS];
};

_Noreturn static void too_long(struct vm *vm)
{
    vm_fail(vm, FAULT_LIMIT, "Exceeds the limit (%d digits) for integers", BIG_DIGITS);
}

static void trim(struct big *b)
{
    while (b->n && !b->d[b->n - 1])
        b->n--;
    b->negative &= b->n > 0;
}

static struct big *from_text(struct vm *vm, const char *p, size_t n)
{
    struct big *b = VM_NEW(vm, struct big, 1);
    *b = (struct big){.negative = n && *p == '-'};
    if (n && (*p == '-' || *p == '+'))
        p++, n--;
    if (n > BIG_DIGITS)
        too_long(vm);
    while (n) {
        size_t k = n < LIMB_DIGITS ? n : LIMB_DIGITS;
        uint32_t v = 0;
        for (size_t i = n - k; i < n; i++)
            v = v * 10 + (uint32_t)(p[i] - '0');
        b->d[b->n++] = v;
        n -= k;
    }
    trim(b);
    return b;
}

static struct big *from_val(struct vm *vm, struct val v)
{
    char text[24];
    if (v.type == V_BIGINT)
        return from_text(vm, v.s->p, v.s->n);
    int n =
        snprintf(text, sizeof(text), "%lld", v.type == V_BOOL ? (long long)v.b : (long long)v.i);
    return from_text(vm, text, (size_t)n);
}

static struct val to_val(struct vm *vm, const struct big *b)
{
    if (b->n > MAX_LIMBS)
        too_long(vm);
    char *text = vm_alloc(vm, (size_t)(b->n + 1) * LIMB_DIGITS + 2), *end;
    int at = sprintf(text, "%s%u", b->negative ? "-" : "", b->n ? b->d[b->n - 1] : 0);
    for (uint32_t i = b->n; i-- > 1;)
        at += sprintf(text + at, "%09u", b->d[i - 1]);
    if (at - b->negative > BIG_DIGITS)
        too_long(vm);
    if (b->n <= 3) {
        errno = 0;
        long long small = strtoll(text, &end, 10);
        if (!errno)
            return val_int(small);
    }
    struct val v = val_wrap(vm, text, (size_t)at);
    v.type = V_BIGINT;
    return v;
}

static int cmp_size(const struct big *a, const struct big *b)
{
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    for (uint32_t i = a->n; i-- > 0;)
        if (a->d[i] != b->d[i])
            return a->d[i] < b->d[i] ? -1 : 1;
    return 0;
}

/* |a| + |b| */
static void add_sizes(const struct big *a, const struct big *b, struct big *r)
{
    uint32_t n = a->n > b->n ? a->n : b->n, carry = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t s = (i < a->n ? a->d[i] : 0) + (i < b->n ? b->d[i] : 0) + carry;
        carry = s >= LIMB;
        r->d[i] = carry ? s - LIMB : s;
    }
    r->n = n;
    if (carry)
        r->d[r->n++] = 1;
}

/* |a| - |b|, |a| >= |b| */
static void sub_sizes(const struct big *a, const struct big *b, struct big *r)
{
    uint32_t borrow = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t less = (i < b->n ? b->d[i] : 0) + borrow;
        borrow = a->d[i] < less;
        r->d[i] = a->d[i] + (borrow ? LIMB : 0) - less;
    }
    r->n = a->n;
}

static void add(const struct big *a, const struct big *b, bool minus, struct big *r)
{
    bool nb = b->negative != minus;
    if (a->negative == nb) {
        add_sizes(a, b, r);
        r->negative = nb;
    } else if (cmp_size(a, b) >= 0) {
        sub_sizes(a, b, r);
        r->negative = a->negative;
    } else {
        sub_sizes(b, a, r);
        r->negative = nb;
    }
    trim(r);
}

static void mul(struct vm *vm, const struct big *a, const struct big *b, struct big *r)
{
    if (a->n + b->n > MAX_LIMBS + 1)
        too_long(vm);
    vm_charge(vm, (uint64_t)a->n * b->n / 16 + 1);
    memset(r->d, 0, (a->n + b->n + 1) * sizeof(r->d[0]));
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t carry = 0;
        for (uint32_t j = 0; j < b->n || carry; j++) {
            carry += r->d[i + j] + (uint64_t)a->d[i] * (j < b->n ? b->d[j] : 0);
            r->d[i + j] = (uint32_t)(carry % LIMB);
            carry /= LIMB;
        }
    }
    r->n = a->n + b->n;
    r->negative = a->negative != b->negative;
    trim(r);
}

/* *rest -= |b| * q, shifted by `at` limbs; must not be negative. */
static void take(struct big *rest, const struct big *b, uint32_t q, uint32_t at)
{
    uint64_t carry = 0;
    for (uint32_t i = 0; i < b->n || carry; i++) {
        carry += (uint64_t)q * (i < b->n ? b->d[i] : 0);
        uint32_t less = (uint32_t)(carry % LIMB);
        carry /= LIMB;
        if (rest->d[at + i] < less) {
            rest->d[at + i] += LIMB;
            carry++;
        }
        rest->d[at + i] -= less;
    }
    trim(rest);
}

/* Is |b| * q, shifted by `at` limbs, at most `rest`? */
static bool fits(const struct big *rest, const struct big *b, uint32_t q, uint32_t at,
                 struct big *product)
{
    uint64_t carry = 0;
    uint32_t n = at;
    memset(product->d, 0, at * sizeof(product->d[0]));
    for (uint32_t i = 0; i < b->n || carry; i++) {
        carry += (uint64_t)q * (i < b->n ? b->d[i] : 0);
        product->d[n++] = (uint32_t)(carry % LIMB);
        carry /= LIMB;
    }
    product->n = n;
    product->negative = false;
    trim(product);
    return cmp_size(product, rest) <= 0;
}

/* |a| / |b|, rounded towards 0; *rest: the remainder. Each quotient limb by bisection, in thirty
 * steps. */
static void divide(struct vm *vm, const struct big *a, const struct big *b, struct big *quotient,
                   struct big *rest)
{
    struct big *product = VM_NEW(vm, struct big, 1);
    *rest = *a;
    rest->negative = false;
    quotient->n = a->n;
    quotient->negative = false;
    for (uint32_t at = a->n; at-- > 0;) {
        uint32_t lo = 0, hi = LIMB - 1;
        quotient->d[at] = 0;
        if (at + b->n > rest->n)
            continue;
        vm_charge(vm, (uint64_t)rest->n * 4);
        while (lo < hi) {
            uint32_t mid = lo + (hi - lo + 1) / 2;
            if (fits(rest, b, mid, at, product))
                lo = mid;
            else
                hi = mid - 1;
        }
        quotient->d[at] = lo;
        take(rest, b, lo, at);
    }
    trim(quotient);
}

/* Rounds down, as in Python; the remainder has the sign of b. */
static struct val floor_divide(struct vm *vm, int op, const struct big *a, const struct big *b)
{
    static const struct big one = {.n = 1, .d = {1}};
    struct big *q = VM_NEW(vm, struct big, 1), *m = VM_NEW(vm, struct big, 1);
    struct big *r = VM_NEW(vm, struct big, 1);
    if (!b->n)
        vm_type_error(vm, op == OP_MOD ? "integer modulo by zero"
                                       : "integer division or modulo by zero");
    divide(vm, a, b, q, m);
    q->negative = q->n && a->negative != b->negative;
    m->negative = m->n && a->negative;
    bool down = m->n && a->negative != b->negative;
    if (op == OP_MOD) {
        if (down)
            add(m, b, false, r);
        return to_val(vm, down ? r : m);
    }
    if (down)
        add(q, &one, true, r);
    return to_val(vm, down ? r : q);
}

static struct val power(struct vm *vm, struct val base, struct val exponent)
{
    int64_t n;
    struct val r = val_int(1);
    if (!val_as_int(exponent, &n)) {
        bool small =
            base.type != V_BIGINT && (base.type == V_BOOL || (base.i >= -1 && base.i <= 1));
        if (!small)
            too_long(vm);
        /* for 0, 1, -1 only the parity matters */
        n = (exponent.s->p[exponent.s->n - 1] - '0') % 2 + 2;
    }
    for (; n; n >>= 1) {
        if (n & 1)
            r = op_binary(vm, OP_MUL, r, base);
        if (n > 1)
            base = op_binary(vm, OP_MUL, base, base);
    }
    return r;
}

struct val big_op(struct vm *vm, int op, struct val a, struct val b)
{
    if (op == OP_POW)
        return power(vm, a, b);
    const struct big *x = from_val(vm, a), *y = from_val(vm, b);
    struct big *r = VM_NEW(vm, struct big, 1);
    vm_charge(vm, x->n + y->n);
    switch (op) {
    case OP_ADD:
    case OP_SUB:
        add(x, y, op == OP_SUB, r);
        return to_val(vm, r);
    case OP_MUL:
        mul(vm, x, y, r);
        return to_val(vm, r);
    default:
        return floor_divide(vm, op, x, y);
    }
}

struct val big_parse(struct vm *vm, const char *p, unsigned base)
{
    struct val v = val_int(0), by = val_int(base);
    bool negative = *p == '-';
    p += *p == '-' || *p == '+';
    if (strlen(p) > (size_t)4 * BIG_DIGITS)
        too_long(vm);
    for (; *p; p++) {
        int d = isdigit((unsigned char)*p) ? *p - '0' : tolower((unsigned char)*p) - 'a' + 10;
        v = op_binary(vm, OP_ADD, op_binary(vm, OP_MUL, v, by), val_int(d));
    }
    return negative ? op_neg(vm, v, true) : v;
}

const char *big_digits(struct vm *vm, struct val v, unsigned base)
{
    struct big *b = from_val(vm, v);
    size_t most = (size_t)b->n * 30 + 2;
    char *out = vm_alloc(vm, most), *p = out + most - 1;
    *p = 0;
    vm_charge(vm, (uint64_t)b->n * b->n * 2);
    do {
        uint64_t rest = 0;
        for (uint32_t i = b->n; i-- > 0;) {
            rest = rest * LIMB + b->d[i];
            b->d[i] = (uint32_t)(rest / base);
            rest %= base;
        }
        trim(b);
        *--p = "0123456789abcdefghijklmnopqrstuvwxyz"[rest];
    } while (b->n);
    return p;
}

double big_to_double(struct vm *vm, struct val v)
{
    return strtod(vm_printf(vm, "%.*s", (int)v.s->n, v.s->p), NULL);
}

struct val big_from_double(struct vm *vm, double f)
{
    const char *text = vm_printf(vm, "%.0f", f < 0 ? -__builtin_floor(-f) : __builtin_floor(f));
    return to_val(vm, from_text(vm, text, strlen(text)));
}
