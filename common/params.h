/* params.h - what goes with the rows of params.def: the C type of each, and whether a row of that
 * kind counts.
 *
 *     #define PARAM(kind, type, name, ...) PARAM_C_##type name;
 *     #include "common/params.def"
 */
#ifndef COMMON_PARAMS_H
#define COMMON_PARAMS_H
#include <float.h>
#include <stdbool.h>
#include <stdint.h>

#define PARAM_C_F32 float
#define PARAM_C_U32 uint32_t
#define PARAM_C_I32 int32_t
/* ... and what `taken` looks at, before it is known to be in range. */
#define PARAM_V_F32 float
#define PARAM_V_U32 int64_t
#define PARAM_V_I32 int64_t

/* Does it change which token is drawn? */
#define PARAM_CUTS_CUT     1
#define PARAM_CUTS_PENALTY 0
#define PARAM_CUTS_SETTING 0
/* Does it change an answer by itself? */
#define PARAM_ACTS_CUT     1
#define PARAM_ACTS_PENALTY 1
#define PARAM_ACTS_SETTING 0
/* Must the host choose the token where it is given? */
#define PARAM_HOST_ANYWHERE 0
#define PARAM_HOST_HOST     1

/* Fields below this number are text-generation-inference's: every shard knows them. */
enum { PARAM_OWN_FIELDS = 100 };
/* NextTokenChooserParameters.logprob_token_ids, a list and so no row. */
enum { PARAM_LOGPROB_TOKEN_IDS = 121, MOST_LOGPROB_IDS = 256 };

/* A set of own fields, as Info.sampling_fields names them; numbers that no row has are not in it.
 */
static inline uint64_t param_bit(uint32_t number)
{
    return number >= PARAM_OWN_FIELDS && number < PARAM_OWN_FIELDS + 64
               ? UINT64_C(1) << (number - PARAM_OWN_FIELDS)
               : 0;
}
#endif
