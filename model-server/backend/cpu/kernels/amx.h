/* amx.h - whether this process may use AMX. Any thread. */
#ifndef MODEL_SERVER_BACKEND_CPU_KERNELS_AMX_H
#define MODEL_SERVER_BACKEND_CPU_KERNELS_AMX_H

/* The CPU_AMX_ bits (kernels.h) that the CPU has and Linux allows. Tile registers enlarge a
 * thread's state by 8 KiB, so a process has to request them once; this function does. */
unsigned amx_detect(void);
#endif
