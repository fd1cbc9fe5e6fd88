/*
 * What the object file's own symbols say of a kernel: its name, and where its static shared memory
 * lies. A static variable `tile` of function _Z4copyPf is called _ZZ4copyPfE4tile.
 */
#include "tests/cuda/virtual/block.h"

#include <algorithm>
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <map>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct symbol {
    std::string name;
    uintptr_t at;
    size_t bytes;
};

static std::map<uintptr_t, std::string> functions;
static std::vector<symbol> statics; /* sorted by name */

/* The object file this is part of: the executable, or a module that it has loaded. */
struct image {
    std::string path;
    uintptr_t bias;
};

static int on_image(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct image *image = static_cast<struct image *>(context);
    uintptr_t here = reinterpret_cast<uintptr_t>(&kernel_facts_of);

    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_LOAD || here < begin ||
            here >= begin + info->dlpi_phdr[i].p_memsz) {
            continue;
        }
        image->path = info->dlpi_name[0] != '\0' ? info->dlpi_name : "/proc/self/exe";
        image->bias = info->dlpi_addr;
        return 1;
    }
    return 0;
}

static void read_symbols(const unsigned char *file, uintptr_t bias)
{
    const Elf64_Ehdr *header = reinterpret_cast<const Elf64_Ehdr *>(file);
    const Elf64_Shdr *sections = reinterpret_cast<const Elf64_Shdr *>(file + header->e_shoff);

    for (int s = 0; s < header->e_shnum; s++) {
        if (sections[s].sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *symbols =
            reinterpret_cast<const Elf64_Sym *>(file + sections[s].sh_offset);
        const char *names =
            reinterpret_cast<const char *>(file + sections[sections[s].sh_link].sh_offset);
        for (size_t i = 0; i < sections[s].sh_size / sizeof(*symbols); i++) {
            const char *name = names + symbols[i].st_name;
            uintptr_t at = bias + symbols[i].st_value;
            unsigned type = ELF64_ST_TYPE(symbols[i].st_info);
            if (symbols[i].st_shndx == SHN_UNDEF || symbols[i].st_shndx >= header->e_shnum)
                continue;
            if (type == STT_FUNC) functions.emplace(at, name);
            if (type == STT_OBJECT && sections[symbols[i].st_shndx].sh_type == SHT_NOBITS &&
                strncmp(name, "_ZZ", 3) == 0) {
                statics.push_back({name, at, symbols[i].st_size});
            }
        }
    }
    std::sort(statics.begin(), statics.end(),
              [](const symbol &a, const symbol &b) { return a.name < b.name; });
}

static void open_symbols(void)
{
    struct stat facts;
    struct image self = {};
    int file;

    dl_iterate_phdr(on_image, &self);
    file = open(self.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    if (fstat(file, &facts) == 0) {
        size_t bytes = static_cast<size_t>(facts.st_size);
        void *image = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
        if (image != MAP_FAILED) {
            read_symbols(static_cast<const unsigned char *>(image), self.bias);
            munmap(image, bytes);
        }
    }
    close(file);
}

/* "norm_rows<float>" of "_Z9norm_rowsIfEvPKT_m": without types of result and arguments. */
static std::string plain_name(const std::string &symbol)
{
    int status = 0;
    char *text = abi::__cxa_demangle(symbol.c_str(), NULL, NULL, &status);
    const std::string nameless = "(anonymous namespace)::";
    std::string name = text != NULL ? text : symbol;
    int depth = 0;

    free(text);
    for (size_t at; (at = name.find(nameless)) != std::string::npos;) {
        name.erase(at, nameless.size());
    }
    for (size_t i = 0; i < name.size(); i++) {
        if (name[i] == '<') depth++;
        if (name[i] == '>') depth--;
        if (depth > 0) continue;
        if (name[i] == '(' && i > 0) return name.substr(0, i);
        if (name[i] == ' ') {
            name.erase(0, i + 1);
            i = static_cast<size_t>(-1);
        }
    }
    return name;
}

const kernel_facts &kernel_facts_of(const void *address)
{
    static std::map<const void *, kernel_facts> known;
    auto found = known.find(address);

    if (found != known.end()) return found->second;
    if (functions.empty()) open_symbols();
    kernel_facts &facts = known[address];
    auto function = functions.find(reinterpret_cast<uintptr_t>(address));
    facts.static_bytes = 0;
    facts.name = "a kernel";
    if (function == functions.end()) return facts;
    facts.symbol = function->second;
    facts.name = plain_name(function->second);
    if (facts.symbol.compare(0, 2, "_Z") != 0) return facts;
    std::string prefix = "_ZZ" + facts.symbol.substr(2) + "E";
    for (const symbol &variable : statics) {
        if (variable.name.compare(0, prefix.size(), prefix) != 0) continue;
        facts.statics.push_back({reinterpret_cast<unsigned char *>(variable.at), variable.bytes});
        facts.static_bytes += variable.bytes;
    }
    return facts;
}
