/* Memory use as Linux tells it. */
#include "peer/watch/usage.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

uint64_t usage_rss_bytes(void)
{
    struct fault why;
    void *text = NULL;
    size_t bytes;
    unsigned long long pages = 0;
    const char *second;

    if (file_read("/proc/self/statm", 4096, &text, &bytes, &why) != RC_OK) return 0;
    second = strchr(text, ' ');
    if (second != NULL) pages = strtoull(second, NULL, 10);
    mem_free(text);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t usage_peak_rss_bytes(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return (uint64_t)usage.ru_maxrss * 1024;
}
