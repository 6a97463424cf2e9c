/* jinja.c: see jinja.h. Runs the statements of a template; expressions are in jinja_eval.c. */
#include "runtime/jinja/jinja.h"

#include "base/mem.h"
#include "runtime/jinja/jinja_eval.h"
#include "runtime/jinja/jinja_function.h"
#include "runtime/jinja/jinja_json.h"
#include "runtime/jinja/jinja_statement.h"

struct jinja {
    struct jinja_heap heap;         // of the tree
    const struct jinja_node *first; // NULL: the template is empty
};

static void run_body(struct jinja_run *run, const struct jinja_node *node);

// ---- Assigning ----------------------------------------------------------------------------------

static void assign(struct jinja_run *run, const struct jinja_node *target,
                   struct jinja_value value);

static void assign_tuple(struct jinja_run *run, const struct jinja_node *target,
                         struct jinja_value value) {
    const struct jinja_list *items = jinja_items(run->heap, value);
    uint32_t i = 0;
    const struct jinja_node *name = target->list;
    for (; items && name && i < items->count; name = name->next, i++)
        assign(run, name, items->items[i]);
    if (items && (name || i < items->count))
        jinja_fail(run->heap, "%u value%s not fit the names that are set", items->count,
                   items->count == 1 ? " does" : "s do");
}

static void assign(struct jinja_run *run, const struct jinja_node *target,
                   struct jinja_value value) {
    run->heap->line = target->line;
    if (jinja_failed(run->heap)) return;
    if (target->kind == NODE_NAME) {
        jinja_assign(run, target->name, value);
    } else if (target->kind == NODE_TUPLE) {
        assign_tuple(run, target, value);
    } else {
        const struct jinja_value object = jinja_eval(run, target->a);
        if (object.kind != JINJA_NAMESPACE)
            jinja_fail(run->heap, "only attributes of a namespace can be set");
        jinja_dict_put(run->heap, object, jinja_of_text(target->name), value);
    }
}

// ---- Blocks -------------------------------------------------------------------------------------

// Runs a body in a scope of its own below parent, and returns what it prints.
static struct jinja_value capture(struct jinja_run *run, const struct jinja_node *body) {
    struct jinja_builder text = {0}, *before = run->out;
    run->out = &text;
    run_body(run, body);
    run->out = before;
    return jinja_builder_text(&text);
}

static struct jinja_value capture_block(struct jinja_run *run, const struct jinja_node *body) {
    struct jinja_scope *before = run->scope;
    struct jinja_value text = {0};
    if (jinja_scope_push(run, before)) text = capture(run, body);
    run->scope = before;
    return text;
}

static void print(struct jinja_run *run, struct jinja_value v) {
    v = jinja_str(run->heap, v);
    if (!jinja_failed(run->heap)) jinja_builder_add(run->heap, run->out, v.text);
}

static void run_if(struct jinja_run *run, const struct jinja_node *node) {
    for (const struct jinja_node *branch = node->list; branch; branch = branch->next) {
        if (branch->a && !jinja_is_true(jinja_eval(run, branch->a))) continue;
        if (!jinja_failed(run->heap)) run_body(run, branch->body);
        return;
    }
}

// ---- Loops --------------------------------------------------------------------------------------

// The items for which the condition of the loop holds.
static const struct jinja_list *select_items(struct jinja_run *run, const struct jinja_node *node,
                                             const struct jinja_list *all) {
    struct jinja_scope *before = run->scope;
    const struct jinja_value out = jinja_list_new(run->heap, JINJA_LIST);
    for (uint32_t i = 0; i < all->count && jinja_scope_push(run, before); i++) {
        assign(run, node->a, all->items[i]);
        if (jinja_is_true(jinja_eval(run, node->c))) jinja_list_add(run->heap, out, all->items[i]);
    }
    run->scope = before;
    return jinja_failed(run->heap) ? NULL : out.list;
}

static void run_items(struct jinja_run *run, const struct jinja_node *node,
                      struct jinja_loop *loop) {
    const struct jinja_value value = {.kind = JINJA_LOOP, .loop = loop};
    struct jinja_scope *before = run->scope;
    const uint32_t count = loop->list->count; // the body may lengthen the list
    for (; loop->i < count && loop->i < loop->list->count; loop->i++) {
        if (!jinja_scope_push(run, before)) break;
        jinja_assign(run, jinja_text("loop", 4, false), value);
        assign(run, node->a, loop->list->items[loop->i]);
        run_body(run, node->body);
        const bool breaks = run->flow == JINJA_BREAKS;
        run->flow = JINJA_GOES_ON;
        if (breaks || jinja_failed(run->heap)) break;
    }
    run->scope = before;
}

static void run_for(struct jinja_run *run, const struct jinja_node *node) {
    const struct jinja_value v = jinja_eval(run, node->b);
    struct jinja_scope *before = run->scope;
    const struct jinja_list *list = jinja_items(run->heap, v);
    if (list && node->c) list = select_items(run, node, list);
    struct jinja_loop *loop = jinja_heap_take(run->heap, sizeof *loop);
    if (!list || !loop) return;
    loop->list = list;
    if (list->count > 0)
        run_items(run, node, loop);
    else if (jinja_scope_push(run, before))
        run_body(run, node->list);
    run->scope = before;
}

// ---- Macros -------------------------------------------------------------------------------------

static struct jinja_value new_macro(struct jinja_run *run, const struct jinja_node *node) {
    struct jinja_macro *macro = jinja_heap_take(run->heap, sizeof *macro);
    if (!macro) return (struct jinja_value){0};
    *macro = (struct jinja_macro){node, run->scope};
    return (struct jinja_value){.kind = JINJA_MACRO, .macro = macro};
}

static void assign_parameters(struct jinja_run *run, const struct jinja_node *parameters,
                              const struct jinja_arguments *a) {
    uint32_t i = 0;
    const struct jinja_value missing = {0};
    for (const struct jinja_node *p = parameters; p && !jinja_failed(run->heap); p = p->next, i++) {
        const struct jinja_value *named =
            jinja_dict_find(run->heap, a->named, jinja_of_text(p->name));
        struct jinja_value v = i < a->values->count ? a->values->items[i]
                               : named              ? *named
                                                    : missing;
        if (v.kind == JINJA_UNDEFINED && p->a) v = jinja_eval(run, p->a);
        jinja_assign(run, p->name, v);
    }
    if (i < a->values->count) jinja_fail(run->heap, "a macro has more arguments than parameters");
    const struct jinja_value *caller =
        jinja_dict_find(run->heap, a->named, jinja_literal("caller"));
    if (caller) jinja_assign(run, jinja_text("caller", 6, false), *caller);
}

static struct jinja_value run_macro(struct jinja_run *run, const struct jinja_macro *macro,
                                    const struct jinja_arguments *a) {
    struct jinja_scope *before = run->scope;
    struct jinja_value text = {0};
    const enum jinja_flow flow = run->flow;
    if (jinja_scope_push(run, macro->scope)) {
        assign_parameters(run, macro->node->list, a);
        text = capture(run, macro->node->body);
    }
    run->scope = before;
    run->flow = flow;
    return text;
}

// ---- Statements ---------------------------------------------------------------------------------

static void run_node(struct jinja_run *run, const struct jinja_node *node) {
    struct jinja_value v;
    switch (node->kind) {
    case NODE_TEXT: jinja_builder_add(run->heap, run->out, node->value.text); break;
    case NODE_PRINT: print(run, jinja_eval(run, node->a)); break;
    case NODE_IF: run_if(run, node); break;
    case NODE_FOR: run_for(run, node); break;
    case NODE_SET: assign(run, node->a, jinja_eval(run, node->b)); break;
    case NODE_SET_BLOCK:
        v = capture_block(run, node->body);
        assign(run, node->a, node->b ? jinja_eval_filters(run, node->b, v) : v);
        break;
    case NODE_MACRO: jinja_assign(run, node->name, new_macro(run, node)); break;
    case NODE_CALL_BLOCK: print(run, jinja_eval_call(run, node->a, new_macro(run, node))); break;
    case NODE_FILTER_BLOCK:
        print(run, jinja_eval_filters(run, node->a, capture_block(run, node->body)));
        break;
    case NODE_GROUP: run_body(run, node->body); break;
    case NODE_BREAK: run->flow = JINJA_BREAKS; break;
    case NODE_CONTINUE: run->flow = JINJA_CONTINUES; break;
    default: break;
    }
}

static void run_body(struct jinja_run *run, const struct jinja_node *node) {
    for (; node && run->flow == JINJA_GOES_ON; node = node->next) {
        run->heap->line = node->line;
        if (jinja_heap_enter(run->heap, JINJA_DEPTH)) run_node(run, node);
        jinja_heap_leave(run->heap);
        if (jinja_failed(run->heap)) return;
    }
}

// ---- Templates ----------------------------------------------------------------------------------

enum status jinja_open(struct jinja **out, const char *source, size_t length, struct err *e) {
    ASSERT(out);
    ASSERT(source || length == 0);
    *out = NULL;
    struct jinja *template = mem_alloc(1, sizeof *template);
    if (!template) return err_memory(e, sizeof *template, "a chat template");
    jinja_heap_open(&template->heap, e);
    if (length > JINJA_SOURCE_BYTES)
        jinja_fail(&template->heap, "it is longer than %d KiB", JINJA_SOURCE_BYTES >> 10);
    else
        template->first = jinja_statements(&template->heap, source, length);
    if (e->status != OK) {
        jinja_close(template);
        return e->status;
    }
    *out = template;
    return OK;
}

void jinja_close(struct jinja *template) {
    if (!template) return;
    jinja_heap_close(&template->heap);
    mem_free(template);
}

static void define_variables(struct jinja_run *run, struct jinja_value variables) {
    const char *name;
    for (int i = 0; (name = jinja_function_name(i)); i++)
        jinja_assign(run, jinja_literal(name).text, jinja_function(i));
    for (uint32_t i = 0; variables.kind == JINJA_DICT && i < variables.dict->count; i++)
        if (variables.dict->pairs[i].key.kind == JINJA_TEXT)
            jinja_assign(run, variables.dict->pairs[i].key.text, variables.dict->pairs[i].value);
}

enum status jinja_render(const struct jinja *template, struct jinja_heap *h,
                         struct jinja_value variables, const struct tm *now,
                         struct jinja_text *out) {
    ASSERT(template);
    ASSERT(now);
    struct jinja_builder text = {0};
    struct jinja_run run = {.heap = h, .out = &text, .now = now, .run_macro = run_macro};
    *out = (struct jinja_text){.bytes = ""};
    if (jinja_scope_push(&run, NULL)) define_variables(&run, variables);
    if (jinja_scope_push(&run, run.scope)) run_body(&run, template->first);
    if (!jinja_failed(h)) *out = jinja_builder_text(&text).text;
    return h->error->status;
}
