/* Any text into the JSON parser; what it takes is written and must be taken again. */
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct json *json, *again;
    struct fault why = {""};
    char *text;

    if (json_parse((const char *)bytes, count, &json, &why) != RC_OK) {
        CHECK(why.text[0] != '\0' && strchr(why.text, '\n') == NULL);
        return 0;
    }
    text = json_format(json);
    CHECK(json_parse(text, strlen(text), &again, NULL) == RC_OK);
    json_destroy(again);
    mem_free(text);
    text = json_format_pretty(json);
    CHECK(json_parse(text, strlen(text), &again, NULL) == RC_OK);
    json_destroy(again);
    mem_free(text);
    json_destroy(json);
    return 0;
}
