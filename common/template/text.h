/* text.h - string operations shared by filters and methods. Results are new values. */
#ifndef COMMON_TEMPLATE_TEXT_H
#define COMMON_TEMPLATE_TEXT_H
#include "common/template/vm.h"

enum text_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE, CASE_SWAP, CASE_FOLD };
struct val text_case(struct vm *vm, struct val s, enum text_case how);

enum { TRIM_LEFT = 1, TRIM_RIGHT = 2, TRIM_BOTH = 3 };
/* `chars`: the characters to strip; V_NONE or V_MISSING: white space. */
struct val text_trim(struct vm *vm, struct val s, struct val chars, int ends);
struct val text_replace(struct vm *vm, struct val s, struct val old, struct val with,
                        int64_t count);
struct list *text_split(struct vm *vm, struct val s, struct val sep, int64_t max);
struct list *text_rsplit(struct vm *vm, struct val s, struct val sep, int64_t max);
struct list *text_lines(struct vm *vm, struct val s, bool keep_ends);
struct val text_join(struct vm *vm, struct val sep,
                     const struct list *parts); /* parts are strings */
/* Code point index of `sub` in s[from:to], -1: absent. */
int64_t text_find(struct vm *vm, struct val s, struct val sub, int64_t from, int64_t to, bool last);
int64_t text_count(struct vm *vm, struct val s, struct val sub);
bool text_is_cased(struct vm *vm, struct val s, enum text_case how); /* islower(), isupper() */
/* v if it is a string, otherwise TypeError */
struct val text_need(struct vm *vm, struct val v, const char *what);
#endif
