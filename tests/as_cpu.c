/*
 * as_cpu: what gcc's __builtin_cpu_supports() and target_clones ask, answered for a lesser
 * processor than this one, so that the loops that others run are tested here, too. Stands in for
 * the file of libgcc that fills these in; linked by -DGRAPEVINE_TEST_CPU=avx2 or sse2 only.
 * AS_CPU_FEATURES is a mask of bits as in gcc's enum processor_features (i386-cpuinfo.h).
 */
struct processor_model {
    unsigned vendor, type, subtype, features[1];
};

extern struct processor_model __cpu_model;
extern unsigned __cpu_features2[3];
int __cpu_indicator_init(void);

struct processor_model __cpu_model = {.vendor = 1, .features = {AS_CPU_FEATURES}};
unsigned __cpu_features2[3];

int __cpu_indicator_init(void)
{
    return 0;
}
