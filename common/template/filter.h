/* filter.h - a command-line filter for chat templates: one JSON object per line in, one out.
 *
 *   {"messages", "tools"?, "documents"?, "add_generation_prompt"?, "continue_final_message"?,
 *    "bos_token"?, "eos_token"?, "variables"?, "now"?}  ->  {"text"} or {"error"}
 *
 * continue_final_message is true or the name of a member of the last message. now is the time for
 * strftime_now(): Unix seconds, or local time as "2025-01-15T12:34:56". */
#ifndef COMMON_TEMPLATE_FILTER_H
#define COMMON_TEMPLATE_FILTER_H
#include "common/err.h"
#include <stdio.h>

/* Runs until the end of `in`. Errors of a line are written as its answer. -1: the template is
 * invalid, or a stream failed. */
int template_filter(const char *template_path, FILE *in, FILE *out, struct err *e);
#endif
