/* bigint.h - exact integers of up to BIG_DIGITS decimal digits (as many as Python prints).
 *
 * A value is V_INT where it fits 64 bits, else V_BIGINT with its decimal digits. Work is charged by
 * the product of the lengths. FAULT_LIMIT: the result has more digits. */
#ifndef COMMON_TEMPLATE_BIGINT_H
#define COMMON_TEMPLATE_BIGINT_H
#include "common/template/vm.h"

enum { BIG_DIGITS = 4300 };
/* OP_ADD to OP_POW but OP_DIV, of V_BOOL, V_INT and V_BIGINT, with Python's signs. b >= 0 for
 * OP_POW. */
struct val big_op(struct vm *vm, int op, struct val a, struct val b);
/* Of the digits of a base of 2 to 36, with a sign or none; all are valid. */
struct val big_parse(struct vm *vm, const char *digits, unsigned base);
/* The magnitude's digits in that base. */
const char *big_digits(struct vm *vm, struct val v, unsigned base);
double big_to_double(struct vm *vm, struct val v);
struct val big_from_double(struct vm *vm, double f); /* finite; towards 0 */
#endif
