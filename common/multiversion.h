/* multiversion.h - compiles a loop for several instruction sets and selects one at program start.
 *
 * For plain loops over fixed-width lanes that the compiler vectorises. Hand-written kernels are in
 * backend/cpu/, one file per instruction set. */
#ifndef COMMON_MULTIVERSION_H
#define COMMON_MULTIVERSION_H

/* Not with sanitizers: the ifunc resolvers run before they are initialised. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MULTIVERSION __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
/* With the instruction for fmaf(), which is a call otherwise. */
#define MULTIVERSION_FMA __attribute__((target_clones("fma", "default"), optimize("O3")))
#else
#define MULTIVERSION
#define MULTIVERSION_FMA
#endif
#endif
