/* See cpu.h. The choice is made by a constructor: loops run in tests and in modules, too. */
#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { EXIT_CODE = 2 }; /* wrong usage */

enum cpu_set cpu_used = CPU_BASELINE;

/* What the libraries call the sets; AMX is no limit. OpenBLAS has nothing below SSE3, oneDNN
 * nothing below SSE4.1. */
static const struct {
    const char *name, *onednn, *openblas;
} sets[CPU_SETS] = {
    [CPU_BASELINE] = {"baseline", "SSE41", "Prescott"},
    [CPU_AVX2] = {"avx2", "AVX2", "Haswell"},
    [CPU_AVX512] = {"avx512", "AVX512_CORE_BF16", "SkylakeX"},
    [CPU_AMX] = {"amx", NULL, NULL},
};

/* Of a container: microseconds in a period; 0: as many as there are. */
static uint32_t quota_cores(void)
{
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    long quota = 0, period = 0;

    if (file == NULL) return 0;
    if (fscanf(file, "%ld %ld", &quota, &period) != 2 || quota <= 0 || period <= 0) quota = 0;
    fclose(file);
    return quota == 0 ? 0 : (uint32_t)((quota + period - 1) / period);
}

uint32_t cpu_cores(void)
{
    uint32_t cores = 1, quota = quota_cores();
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = (uint32_t)CPU_COUNT(&set);
    if (quota > 0 && quota < cores) cores = quota;
    return cores > 0 ? cores : 1;
}

#if defined(__x86_64__)
/* Tiles and their bfloat16, in the processor and in what the kernel saves; compilers are too young
 * to ask for it. */
static bool has_amx(void)
{
    const unsigned tile_and_bf16 = 1U << 24 | 1U << 22, saved = 3U << 17;
    unsigned a = 0, b = 0, c = 0, d = 0;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_OSXSAVE) == 0) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & tile_and_bf16) != tile_and_bf16) {
        return false;
    }
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (a & saved) == saved;
}

bool cpu_model(char *text, size_t cap)
{
    enum { FIRST = 0x80000002, LAST = 0x80000004, CACHES = 4, LEVELS = 4 };
    char words[49] = "";
    unsigned r[4];
    size_t at = 0;

    for (unsigned leaf = FIRST; leaf <= LAST; leaf++) {
        if (!__get_cpuid(leaf, &r[0], &r[1], &r[2], &r[3])) return false;
        memcpy(words + 16 * (leaf - FIRST), r, sizeof r);
    }
    at = (size_t)snprintf(text, cap, "%s", words);
    for (unsigned level = 0; level < LEVELS; level++) { /* ways, lines and sets of the caches */
        if (!__get_cpuid_count(CACHES, level, &r[0], &r[1], &r[2], &r[3])) r[1] = r[2] = 0;
        if (at < cap) at += (size_t)snprintf(text + at, cap - at, " %x.%x", r[1], r[2]);
    }
    return words[0] != '\0';
}

enum cpu_set cpu_best(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CPU_BASELINE;
    if (!__builtin_cpu_supports("avx512f")) return CPU_AVX2;
    return has_amx() ? CPU_AMX : CPU_AVX512;
}
#else
bool cpu_model(char *text, size_t cap)
{
    (void)text;
    (void)cap;
    return false;
}

enum cpu_set cpu_best(void)
{
    return CPU_BASELINE;
}
#endif

const char *cpu_name(enum cpu_set set)
{
    return sets[set].name;
}

void cpu_describe(char *text, size_t cap)
{
    if (cpu_used == cpu_best()) {
        snprintf(text, cap, "%s", cpu_name(cpu_used));
    } else {
        snprintf(text, cap, "%s by " CPU_VARIABLE ", of %s", cpu_name(cpu_used),
                 cpu_name(cpu_best()));
    }
}

static void refuse(const char *wanted, const char *why)
{
    fprintf(stderr, "grapevine: " CPU_VARIABLE "=%s: %s\n", wanted, why);
    _exit(EXIT_CODE);
}

__attribute__((constructor)) static void choose(void)
{
    const char *wanted = getenv(CPU_VARIABLE);
    char why[96];
    int set = 0;

    cpu_used = cpu_best();
    if (wanted == NULL || wanted[0] == '\0') return;
    while (set < CPU_SETS && strcmp(wanted, sets[set].name) != 0) {
        set++;
    }
    if (set == CPU_SETS) refuse(wanted, "choose baseline, avx2, avx512 or amx");
    if ((enum cpu_set)set > cpu_used) {
        snprintf(why, sizeof why, "this CPU has %s%s", cpu_name(cpu_used),
                 cpu_used == CPU_BASELINE ? " only" : " at the most");
        refuse(wanted, why);
    }
    cpu_used = (enum cpu_set)set;
}

bool cpu_limit_libraries(void)
{
    static const char onednn[] = "ONEDNN_MAX_CPU_ISA", openblas[] = "OPENBLAS_CORETYPE";

    if (cpu_used == cpu_best()) return false;
    if (getenv(onednn) != NULL && getenv(openblas) != NULL) return false;
    return setenv(onednn, sets[cpu_used].onednn, 0) == 0 &&
           setenv(openblas, sets[cpu_used].openblas, 0) == 0;
}
