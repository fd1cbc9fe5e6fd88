/* Any eight specs, separated by newlines: parsed with sane numbers, or refused with one line. */
#include "averaging/strategy/strategy.h"
#include "base/check.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char text[1025];
    char *parts[8] = {NULL}, *rest = text;
    struct strategy strategy;
    struct fault why = {""};
    struct strategy_specs specs;

    if (count > sizeof text - 1) return 0;
    memcpy(text, bytes, count);
    text[count] = '\0';
    for (int i = 0; i < 8 && rest != NULL; i++) {
        parts[i] = strsep(&rest, "\n");
    }
    specs = (struct strategy_specs){parts[0], parts[1], parts[2], parts[3],
                                    parts[4], parts[5], parts[6], parts[7]};
    if (strategy_parse(&specs, &strategy, &why) != RC_OK) {
        CHECK(why.text[0] != '\0');
        return 0;
    }
    CHECK(!strategy.is_averaging || strategy.at_end || strategy.every_steps > 0 ||
          strategy.every_ns > 0);
    CHECK(strategy.exchange != NULL && strategy.codec.ops != NULL && strategy.rule != NULL);
    CHECK(strlen(strategy.text) < sizeof strategy.text);
    CHECK(!strategy.exchange->is_group || strategy.topology.kind != TOPOLOGY_PAIRS);
    return 0;
}
