/* filter.h - chat templates as a filter: one JSON object a line in, one out.
 *
 *   {"messages", "tools"?, "documents"?, "add_generation_prompt"?, "continue_final_message"?,
 *    "bos_token"?, "eos_token"?, "variables"?, "now"?}  ->  {"text"} or {"error"}
 *
 * continue_final_message is true or the name of a member of the last message; now is what
 * strftime_now() sees: Unix seconds or local time as "2025-01-15T12:34:56". */
#ifndef COMMON_TEMPLATE_FILTER_H
#define COMMON_TEMPLATE_FILTER_H
#include "common/err.h"
#include <stdio.h>

/* Until the end of `in`. An error of one line is its answer; -1: the template or a stream is
 * broken. */
int template_filter(const char *template_path, FILE *in, FILE *out, struct err *e);
#endif
