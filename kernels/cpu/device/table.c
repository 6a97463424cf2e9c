/* table.c: chooses the kernels of the CPU backend by the instructions of this CPU.
 *
 * The plain C table comes first; each instruction-set level that the CPU has overwrites entries,
 * weakest first. The only place that names the levels' functions. Owns nothing; any thread. Tested
 * by tests/kernels/check_ops.c, which runs every level.
 */
#include "kernels/cpu/device/table.h"

#include "kernels/cpu/arm/arm.h"
#include "kernels/cpu/matmul_work.h"
#include "kernels/cpu/x86/attention_x86.h"
#include "kernels/cpu/x86/x86.h"
#include "kernels/op_command.h"

#if HAVE_X86
// True if level isa includes a level that pays on some CPUs only.
static bool takes(enum cpu_isa isa, enum cpu_isa level) {
    return isa == level || (isa > level && cpu_has_isa(level) && cpu_isa_pays(level));
}

// A CPU can have a level without the one below it (AVX-512 without AVX-VNNI), so each is checked.
static void add_levels(struct cpu_table *table, enum cpu_isa isa) {
    if (isa >= ISA_AVX2 && cpu_has_isa(ISA_AVX2)) {
        cpu_matmul_avx2(table);
        cpu_ops_avx2(table);
    }
    if (isa >= ISA_AVXVNNI && cpu_has_isa(ISA_AVXVNNI)) {
        cpu_matmul_avxvnni(table);
        table->attention = attention_avxvnni;
    }
    if (isa >= ISA_AVX512 && cpu_has_isa(ISA_AVX512)) {
        cpu_matmul_avx512(table);
        table->attention = attention_avx512;
    }
    if (isa >= ISA_VBMI && cpu_has_isa(ISA_VBMI)) cpu_matmul_vbmi(table);
    if (takes(isa, ISA_ZEN4)) cpu_matmul_zen4(table);
    if (takes(isa, ISA_AVX512BF16)) cpu_matmul_avx512bf16(table);
}
#elif HAVE_ARM
static void add_levels(struct cpu_table *table, enum cpu_isa isa) {
    if (isa >= ISA_NEON && cpu_has_isa(ISA_NEON)) {
        cpu_matmul_neon(table);
        cpu_matmul_float_neon(table);
        cpu_ops_neon(table);
    }
    if (isa >= ISA_DOTPROD && cpu_has_isa(ISA_DOTPROD)) cpu_matmul_dotprod(table);
    if (isa >= ISA_I8MM && cpu_has_isa(ISA_I8MM)) cpu_matmul_i8mm(table);
}
#else
static void add_levels(struct cpu_table *table, enum cpu_isa isa) { (void)table, (void)isa; }
#endif

void cpu_table_init(struct cpu_table *table, enum cpu_isa isa) {
    ASSERT(cpu_has_isa(isa));
    cpu_table_ref(table);
    add_levels(table, isa);
}

enum status cpu_table_open(struct cpu_table *table, enum cpu_isa isa, struct err *e) {
    ASSERT(isa < ISA_COUNT);
    if (!cpu_has_isa(isa)) {
        err_set(e, ERR_UNSUPPORTED, "this CPU cannot run the instructions that were asked for");
        err_expected(e, "at most %s", cpu_isa_name(cpu_best_isa()));
        err_actual(e, "%s", cpu_isa_name(isa));
        return err_fix(e, "use --isa %s or leave it out", cpu_isa_name(cpu_best_isa()));
    }
    cpu_table_init(table, isa);
    return OK;
}

const void *cpu_first_weight(const struct cpu_table *table, const struct lane *lane,
                             const struct op_command *command) {
    const struct matmul_kernel *kernel = table->matmul_kernel[command->weight];
    if (!kernel) return NULL;
    if (command->op == OP_matmul) return matmul_first_weight(lane, &command->args.matmul, kernel);
    return matmul_experts_first_weight(lane, &command->args.matmul_experts, kernel);
}

void cpu_run_op(const struct cpu_table *table, const struct lane *lane,
                const struct op_command *command) {
    switch (command->op) {
#define OP(name, ...)                           \
    case OP_##name:                             \
        table->name(lane, &command->args.name); \
        break;
#define OP_W(name, ...)                                          \
    case OP_##name:                                              \
        table->name[command->weight](lane, &command->args.name); \
        break;
#include "kernels/ops.def"
#undef OP
#undef OP_W
    case OP_COUNT: break;
    }
}
