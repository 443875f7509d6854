/* params.h - companions to the rows of params.def: the C type of each, and properties of its kind.
 *
 *     #define PARAM(kind, type, name, ...) PARAM_C_##type name;
 *     #include "common/params.def" */
#ifndef COMMON_PARAMS_H
#define COMMON_PARAMS_H
#include <float.h>
#include <stdbool.h>
#include <stdint.h>

#define PARAM_C_F32 float
#define PARAM_C_U32 uint32_t
#define PARAM_C_I32 int32_t
/* The type of the value before the range check. */
#define PARAM_V_F32 float
#define PARAM_V_U32 int64_t
#define PARAM_V_I32 int64_t

/* Does it change the distribution from which the token is drawn? */
#define PARAM_CUTS_CUT     1
#define PARAM_CUTS_PENALTY 0
#define PARAM_CUTS_SETTING 0
/* Does it change an answer by itself? */
#define PARAM_ACTS_CUT     1
#define PARAM_ACTS_PENALTY 1
#define PARAM_ACTS_SETTING 0
/* Must the host sample the token if it is set? */
#define PARAM_HOST_ANYWHERE 0
#define PARAM_HOST_HOST     1

/* Fields below this number are text-generation-inference's: every shard supports them. */
enum { PARAM_OWN_FIELDS = 100 };
/* NextTokenChooserParameters.logprob_token_ids: a list, so not a row. */
enum { PARAM_LOGPROB_TOKEN_IDS = 121, MOST_LOGPROB_IDS = 256 };

/* The bit of an own field in a set such as Info.sampling_fields; 0 for other numbers. */
static inline uint64_t param_bit(uint32_t number)
{
    return number >= PARAM_OWN_FIELDS && number < PARAM_OWN_FIELDS + 64
               ? UINT64_C(1) << (number - PARAM_OWN_FIELDS)
               : 0;
}
#endif
