/* Any text as every kind of quantity, and as a shard of the data. */
#include "base/check.h"
#include "base/units.h"
#include "replica/data/shard_spec.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char text[256], formatted[64];
    struct shard_spec spec;
    struct fault why;
    uint64_t value = 0;
    double share = 0.0;

    if (count >= sizeof text) return 0;
    memcpy(text, bytes, count);
    text[count] = '\0';
    if (units_parse_count(text, &value)) units_format_count(value, formatted, sizeof formatted);
    if (units_parse_duration(text, &value)) units_format_count(value, formatted, 8);
    if (units_parse_rate(text, &value)) units_format_bytes(value, formatted, sizeof formatted);
    if (units_parse_share(text, &share)) CHECK(isfinite(share) && share >= 0.0);
    if (shard_spec_parse("iid", text, &spec, &why) == RC_OK) CHECK(spec.index < spec.count);
    if (shard_spec_parse(text, "0/2", &spec, &why) == RC_OK) CHECK(spec.kind <= SHARD_ALL);
    return 0;
}
