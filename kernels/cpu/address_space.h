/*
 * address_space: OpenBLAS takes a buffer for each of its threads when it is loaded, and for each
 * thread that multiplies. Where the address space is limited (ulimit -v) and there is no room for
 * one, it tries again for ever, deaf to signals: so there is a look before it may.
 */
#ifndef GRAPEVINE_KERNELS_CPU_ADDRESS_SPACE_H
#define GRAPEVINE_KERNELS_CPU_ADDRESS_SPACE_H

#include <stdbool.h>
#include <stdint.h>

/* Of one thread, on the processors where it is largest. */
#define BLAS_BUFFER_BYTES (UINT64_C(129) << 20)

/** Is there room for `bytes` more? Always where it is not limited. */
bool address_space_has(uint64_t bytes);
/** The limit in MiB; 0: there is none. */
uint64_t address_space_limit_mib(void);

#endif
