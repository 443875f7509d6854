/* multiversion.h - one loop, compiled for several instruction sets, chosen when the program starts.
 *
 * For plain loops over fixed-width lanes that the compiler vectorises by itself. Kernels written by
 * hand live in backend/cpu/, one file per instruction set. */
#ifndef COMMON_MULTIVERSION_H
#define COMMON_MULTIVERSION_H

/* Sanitizers do not get along with the resolvers, which run before they are ready. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MULTIVERSION __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define MULTIVERSION
#endif
#endif
