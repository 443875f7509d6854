/* import.h - converts JSON to template values. The tree must outlive the render: strings are not
 * copied. */
#ifndef COMMON_TEMPLATE_IMPORT_H
#define COMMON_TEMPLATE_IMPORT_H
#include "common/template/vm.h"
#include <cjson/cJSON.h>

/* A copy in the arena of the render. */
struct val val_from_json(struct vm *vm, const cJSON *j);
#endif
