/* amx.h - may this process use AMX? Any thread. */
#ifndef MODEL_SERVER_BACKEND_CPU_AMX_H
#define MODEL_SERVER_BACKEND_CPU_AMX_H

/* The CPU_AMX_ bits (kernels.h) of what the CPU has and Linux lets this process use. Tile registers
 * make a thread's state 8 KiB larger, so Linux has to be asked for them once; this does. */
unsigned amx_detect(void);
#endif
