/* fake_module.c: images, launches and graphs of the look-alike driver; see fake.h.
 *
 * An image is read as far as a driver of the emulated version on the emulated device would: PTX
 * for its version and target, an ELF file for its architecture. One that passes stands for the
 * kernels it names, taken from the tables that are compiled in. Tested by
 * tests/kernels/test_emulator.c.
 */
#include "tests/emulator/fake.h"

#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EM_CUDA_NUMBER = 190, ABI_CUDA_13 = 8 };

struct CUmod_st {
    struct CUctx_st *context;
    int arch, n_functions;
    struct CUfunc_st functions[FAKE_KERNELS_MAX];
};

struct CUgraphNode_st {
    struct fake_launch launch;
    struct cuda_memory_op op; // instead of the launch; operation 0: none
    struct CUgraphNode_st *next;
};

struct CUgraph_st { // owns its nodes; also what an executable graph is
    struct CUctx_st *context;
    struct CUgraphNode_st *first, *last;
};

struct CUgraphExec_st {
    struct CUgraph_st graph;
};

// ---- Images ------------------------------------------------------------------------------------

static void __attribute__((format(printf, 2, 3))) say(char *log, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(log, 200, format, list);
    va_end(list);
}

// The PTX version, in tenths, that a driver of a CUDA version (12020) reads.
static int ptx_version(int driver) {
    static const struct {
        int driver, ptx;
    } VERSIONS[] = {
        {13000, 90}, {12090, 88}, {12080, 87}, {12070, 86}, {12050, 85}, {12040, 84},
        {12030, 83}, {12020, 82}, {12010, 81}, {12000, 80}, {11080, 78}, {11070, 77},
        {11060, 76}, {11050, 75}, {11040, 74}, {11030, 73}, {11020, 72}, {11010, 71},
        {11000, 70}, {10020, 65}, {10010, 64}, {10000, 63}, {9020, 62},  {9010, 61},
    };
    for (size_t i = 0; i < sizeof VERSIONS / sizeof *VERSIONS; i++)
        if (driver >= VERSIONS[i].driver) return VERSIONS[i].ptx;
    return 60;
}

static unsigned read_ptx(const char *text, int *arch, char *log) {
    int major, minor, device = fake()->options.arch,
                      readable = ptx_version(fake()->options.version);
    const char *version = strstr(text, "\n.version "), *target = strstr(text, "\n.target sm_");
    if (!version || !target || sscanf(version, " .version %d.%d", &major, &minor) != 2 ||
        sscanf(target, " .target sm_%d", arch) != 1) {
        say(log, "no .version or .target");
        return CODE_INVALID_PTX;
    }
    if (major * 10 + minor > readable) {
        say(log, "PTX .version %d.%d does not support, at most %d.%d", major, minor, readable / 10,
            readable % 10);
        return CODE_UNSUPPORTED_PTX_VERSION;
    }
    if (*arch <= device) return DRIVER_SUCCESS;
    say(log, "SM version specified by .target is higher than sm_%d", device);
    return CODE_INVALID_PTX;
}

static unsigned read_cubin(const Elf64_Ehdr *elf, int *arch, char *log) {
    int device = fake()->options.arch, abi = elf->e_ident[EI_ABIVERSION];
    if (elf->e_ident[EI_CLASS] != ELFCLASS64 || elf->e_machine != EM_CUDA_NUMBER) {
        say(log, "an ELF file, but not for a GPU");
        return CODE_INVALID_IMAGE;
    }
    *arch = (int)(abi >= ABI_CUDA_13 ? elf->e_flags >> 8 & 0xff : elf->e_flags & 0xff);
    if (abi >= ABI_CUDA_13 && fake()->options.version < 13000) {
        say(log, "ELF of a newer toolkit");
        return CODE_INVALID_IMAGE;
    }
    if (*arch / 10 == device / 10 && *arch <= device) return DRIVER_SUCCESS;
    say(log, "native code of sm_%d, not sm_%d", *arch, device);
    return CODE_NO_BINARY_FOR_GPU;
}

static bool cubin_names(const Elf64_Ehdr *elf, const char *name) {
    const char *file = (const char *)elf;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + elf->e_shoff);
    const char *names = file + sections[elf->e_shstrndx].sh_offset;
    for (int i = 0; i < elf->e_shnum; i++) {
        const char *section = names + sections[i].sh_name;
        if (!strncmp(section, ".text.", 6) && !strcmp(section + 6, name)) return true;
    }
    return false;
}

static bool is_elf(const void *image) { return !memcmp(image, ELFMAG, SELFMAG); }

static void add_function(struct CUmod_st *m, const struct fake_kernel *k) {
    if (m->n_functions == FAKE_KERNELS_MAX) fake_complain("more kernels than FAKE_KERNELS_MAX");
    if (m->n_functions < FAKE_KERNELS_MAX)
        m->functions[m->n_functions++] = (struct CUfunc_st){k, m};
}

// Takes lines of the form "[.visible ].entry NAME(". A strstr per kernel would read megabytes for
// each, and under the address sanitizer their length besides.
static void find_ptx_functions(struct CUmod_st *m, const char *text) {
    static const char VISIBLE[] = ".visible ", ENTRY[] = ".entry ";
    for (const char *line = text; line; line = strchr(line, '\n')) {
        const char *name = line + (*line == '\n');
        line = name;
        if (!strncmp(name, VISIBLE, sizeof VISIBLE - 1)) name += sizeof VISIBLE - 1;
        if (strncmp(name, ENTRY, sizeof ENTRY - 1)) continue;
        name += sizeof ENTRY - 1;
        const size_t length = strcspn(name, "(");
        for (const struct fake_kernel *k = kernel_table(m->arch); k->name; k++)
            if (!strncmp(name, k->name, length) && !k->name[length]) add_function(m, k);
    }
}

static void find_functions(struct CUmod_st *m, const void *image) {
    if (!is_elf(image)) {
        find_ptx_functions(m, image);
        return;
    }
    for (const struct fake_kernel *k = kernel_table(m->arch); k->name; k++)
        if (cubin_names(image, k->name)) add_function(m, k);
}

static void give_log(const char *log, unsigned n_options, const unsigned *options, void **values) {
    char *buffer = NULL;
    size_t room = 0;
    for (unsigned i = 0; i < n_options; i++) {
        if (options[i] == DRIVER_JIT_ERROR_LOG) buffer = values[i];
        if (options[i] == DRIVER_JIT_ERROR_LOG_BYTES) room = (size_t)(uintptr_t)values[i];
    }
    if (buffer && room) snprintf(buffer, room, "%s", log);
}

// Takes its time, but for what was translated before into the folder that a driver keeps.
static void translate(const char *text) {
    const unsigned ms = fake()->options.jit_ms;
    const struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    const char *folder = fake()->options.jit_folder;
    uint64_t hash = 14695981039346656037u;
    char path[512];
    if (!ms) return;
    for (const char *p = text; *p; p++) hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    snprintf(path, sizeof path, "%s/%016llx", folder, (unsigned long long)hash);
    if (*folder && access(path, F_OK) == 0) return;
    nanosleep(&time, NULL);
    FILE *file = *folder ? fopen(path, "w") : NULL;
    if (file) fclose(file);
}

unsigned cuModuleLoadDataEx(struct CUmod_st **module, const void *image, unsigned n_options,
                            unsigned *options, void **values) {
    unsigned code;
    char log[200] = "";
    struct CUctx_st *c = fake_current(&code);
    if (!c) return code;
    if ((code = fake_fault(FAULT_MODULE))) return code;
    struct CUmod_st *m = calloc(1, sizeof *m);
    if (!m) return DRIVER_OUT_OF_MEMORY;
    m->context = c;
    code = is_elf(image) ? read_cubin(image, &m->arch, log) : read_ptx(image, &m->arch, log);
    give_log(log, n_options, options, values);
    if (!is_elf(image)) translate(image);
    if (code) {
        free(m);
        return code;
    }
    find_functions(m, image);
    pthread_mutex_lock(&c->lock);
    c->n_modules++;
    pthread_mutex_unlock(&c->lock);
    *module = m;
    return DRIVER_SUCCESS;
}

unsigned cuModuleUnload(struct CUmod_st *m) {
    if (!m) return CODE_INVALID_HANDLE;
    pthread_mutex_lock(&m->context->lock);
    m->context->n_modules--;
    pthread_mutex_unlock(&m->context->lock);
    free(m);
    return DRIVER_SUCCESS;
}

unsigned cuModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *m, const char *name) {
    for (int i = 0; m && i < m->n_functions; i++) {
        if (strcmp(m->functions[i].kernel->name, name)) continue;
        *function = &m->functions[i];
        return DRIVER_SUCCESS;
    }
    return m ? CODE_NOT_FOUND : CODE_INVALID_HANDLE;
}

unsigned cuFuncGetAttribute(int *value, unsigned attribute, struct CUfunc_st *function) {
    *value = 1024;
    if (attribute != DRIVER_FUNCTION_MAX_THREADS || !function) return CODE_INVALID_VALUE;
    return DRIVER_SUCCESS;
}

// ---- Launches ----------------------------------------------------------------------------------

static unsigned check_launch(const struct fake_launch *l) {
    const struct simt_dim *g = &l->grid, *b = &l->block;
    const char *name = l->kernel->name;
    if (!g->x || !g->y || !g->z || !b->x || !b->y || !b->z || g->x > INT32_MAX || g->y > 65535 ||
        g->z > 65535 || b->z > 64) {
        fake_complain("%s: no such grid: %u x %u x %u blocks of %u x %u x %u", name, g->x, g->y,
                      g->z, b->x, b->y, b->z);
        return CODE_INVALID_VALUE;
    }
    if (b->x * b->y * b->z > SIMT_THREADS_MAX || l->shared_bytes > FAKE_BLOCK_SHARED) {
        fake_complain("%s: %u threads and %zu bytes of shared memory in a block", name,
                      b->x * b->y * b->z, l->shared_bytes);
        return CODE_INVALID_VALUE;
    }
    if (strstr(name, "_mma") && !fake()->options.tensor_cores) {
        fake_complain("%s: this device has no tensor cores", name);
        return CODE_INVALID_VALUE;
    }
    return DRIVER_SUCCESS;
}

static unsigned make_launch(struct fake_launch *l, const struct CUfunc_st *function,
                            const uint32_t *grid, const uint32_t *block, uint32_t shared_bytes,
                            void **params) {
    if (!function || !params || !params[0]) return CODE_INVALID_VALUE;
    l->kernel = function->kernel;
    l->arch = function->module->arch;
    l->grid = (struct simt_dim){grid[0], grid[1], grid[2]};
    l->block = (struct simt_dim){block[0], block[1], block[2]};
    l->shared_bytes = shared_bytes;
    if (l->kernel->params_bytes > sizeof l->params) return CODE_INVALID_VALUE;
    memcpy(l->params, params[0], l->kernel->params_bytes);
    return check_launch(l);
}

static unsigned check_fault(struct CUstream_st *stream) {
    unsigned code = fake_fault(FAULT_LAUNCH);
    if (code) fake_stream_fail(stream, code);
    return code;
}

unsigned cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
                        unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                        unsigned shared_bytes, struct CUstream_st *stream, void **params,
                        void **extra) {
    struct fake_launch launch;
    const uint32_t grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
    unsigned code = extra ? CODE_INVALID_VALUE
                          : make_launch(&launch, function, grid, block, shared_bytes, params);
    fake_count(&fake()->n_single_launches);
    if (!code) code = check_fault(stream);
    if (!code) code = fake_stream_launch(stream, &launch);
    return code || !fake()->options.blocking ? code : cuStreamSynchronize(stream);
}

void fake_run_launch(struct CUctx_st *c, const struct fake_launch *l) {
    struct simt_report report = {0};
    const struct simt_launch launch = {.kernel = l->kernel->run,
                                       .params = l->params,
                                       .name = l->kernel->name,
                                       .grid = l->grid,
                                       .block = l->block,
                                       .shared_bytes = l->shared_bytes,
                                       .arch = l->arch};
    const ptrdiff_t place = l->kernel - kernel_table(l->arch);
    if (place >= FAKE_KERNELS_MAX) fake_complain("more kernels than FAKE_KERNELS_MAX");
    pthread_mutex_lock(&fake()->lock);
    fake()->n_launches++;
    if (place < FAKE_KERNELS_MAX) fake()->launched[place] = true;
    pthread_mutex_unlock(&fake()->lock);
    unsigned code = fake_fault(FAULT_KERNEL);
    if (code) {
        fake_fail(c, code);
    } else if (!simt_run(c->simt, &launch, &report)) {
        fake_complain("%s", report.text);
        fake_fail(c, DRIVER_LAUNCH_FAILED);
    } else if (!fake_memory_guards_hold(c, l->kernel->name)) {
        fake_fail(c, DRIVER_ILLEGAL_ADDRESS);
    }
    if (fake()->options.lines)
        fake_complain("%s: %llu lines", l->kernel->name, (unsigned long long)report.n_lines);
}

// ---- Graphs ------------------------------------------------------------------------------------

static void count_graphs(struct CUctx_st *c, int by) {
    pthread_mutex_lock(&c->lock);
    c->n_graphs += by;
    pthread_mutex_unlock(&c->lock);
}

static struct CUgraphNode_st *add_node(struct CUgraph_st *g, const struct CUgraphNode_st *from) {
    struct CUgraphNode_st *node = malloc(sizeof *node);
    if (!node) return NULL;
    *node = *from;
    node->next = NULL;
    if (g->last)
        g->last->next = node;
    else
        g->first = node;
    return g->last = node;
}

static void free_nodes(struct CUgraph_st *g) {
    while (g->first) {
        struct CUgraphNode_st *node = g->first;
        g->first = node->next;
        free(node);
    }
}

unsigned cuGraphCreate(struct CUgraph_st **graph, unsigned flags) {
    unsigned code;
    struct CUctx_st *c = fake_current(&code);
    if (!c || flags) return c ? CODE_INVALID_VALUE : code;
    *graph = calloc(1, sizeof **graph);
    if (!*graph) return DRIVER_OUT_OF_MEMORY;
    (*graph)->context = c;
    count_graphs(c, 1);
    return DRIVER_SUCCESS;
}

unsigned cuGraphDestroy(struct CUgraph_st *graph) {
    if (!graph) return CODE_INVALID_HANDLE;
    count_graphs(graph->context, -1);
    free_nodes(graph);
    free(graph);
    return DRIVER_SUCCESS;
}

// Only chains are emulated: every node names the one before it.
static bool is_chain(const struct CUgraph_st *graph, struct CUgraphNode_st *const *dependencies,
                     size_t n_dependencies) {
    if (n_dependencies == (graph->last ? 1 : 0) &&
        (!n_dependencies || dependencies[0] == graph->last))
        return true;
    fake_complain("a graph that is no chain");
    return false;
}

unsigned cuGraphAddKernelNode(struct CUgraphNode_st **node, struct CUgraph_st *graph,
                              struct CUgraphNode_st *const *dependencies, size_t n_dependencies,
                              const struct cuda_kernel_node *params) {
    struct CUgraphNode_st from = {0};
    if (!is_chain(graph, dependencies, n_dependencies)) return CODE_NOT_SUPPORTED;
    unsigned code = make_launch(&from.launch, params->function, params->grid, params->block,
                                params->shared_bytes, params->params);
    if (code) return code;
    *node = add_node(graph, &from);
    return *node ? DRIVER_SUCCESS : DRIVER_OUT_OF_MEMORY;
}

unsigned cuGraphAddBatchMemOpNode(struct CUgraphNode_st **node, struct CUgraph_st *graph,
                                  struct CUgraphNode_st *const *dependencies, size_t n_dependencies,
                                  const struct cuda_memory_node *params) {
    if (params->flags || params->n_ops != 1 || params->context != graph->context)
        return CODE_INVALID_VALUE;
    if (!is_chain(graph, dependencies, n_dependencies)) return CODE_NOT_SUPPORTED;
    const struct CUgraphNode_st from = {.op = params->ops[0]};
    const unsigned code = fake_check_memory_op(&from.op);
    if (code) return code;
    *node = add_node(graph, &from);
    return *node ? DRIVER_SUCCESS : DRIVER_OUT_OF_MEMORY;
}

unsigned cuGraphInstantiateWithFlags(struct CUgraphExec_st **exec, struct CUgraph_st *graph,
                                     unsigned long long flags) {
    unsigned code = flags ? CODE_INVALID_VALUE : fake_fault(FAULT_GRAPH);
    if (code) return code;
    struct CUgraphExec_st *e = calloc(1, sizeof *e);
    if (!e) return DRIVER_OUT_OF_MEMORY;
    e->graph.context = graph->context;
    for (const struct CUgraphNode_st *n = graph->first; n; n = n->next) {
        if (add_node(&e->graph, n)) continue;
        free_nodes(&e->graph);
        free(e);
        return DRIVER_OUT_OF_MEMORY;
    }
    count_graphs(graph->context, 1);
    *exec = e;
    return DRIVER_SUCCESS;
}

unsigned cuGraphExecDestroy(struct CUgraphExec_st *exec) {
    if (!exec) return CODE_INVALID_HANDLE;
    count_graphs(exec->graph.context, -1);
    free_nodes(&exec->graph);
    free(exec);
    return DRIVER_SUCCESS;
}

unsigned cuGraphLaunch(struct CUgraphExec_st *exec, struct CUstream_st *stream) {
    unsigned code = check_fault(stream);
    fake_count(&fake()->n_graph_launches);
    for (const struct CUgraphNode_st *n = exec->graph.first; n && !code; n = n->next)
        code = n->op.operation ? fake_stream_memory(stream, &n->op)
                               : fake_stream_launch(stream, &n->launch);
    return code;
}
