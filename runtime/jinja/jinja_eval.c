/* jinja_eval.c: see jinja_eval.h. */
#include "runtime/jinja/jinja_eval.h"

#include "runtime/jinja/jinja_access.h"
#include "runtime/jinja/jinja_filter.h"
#include "runtime/jinja/jinja_function.h"
#include "runtime/jinja/jinja_method.h"
#include "runtime/jinja/jinja_operator.h"
#include "runtime/jinja/jinja_test.h"

#include <string.h>

static const struct jinja_value UNDEFINED = {.kind = JINJA_UNDEFINED};

// ---- Variables ----------------------------------------------------------------------------------

bool jinja_scope_push(struct jinja_run *run, struct jinja_scope *parent) {
    struct jinja_scope *scope = jinja_heap_take(run->heap, sizeof *scope);
    if (!scope) return false;
    scope->parent = parent;
    run->scope = scope;
    return true;
}

static struct jinja_variable *find(struct jinja_heap *h, struct jinja_scope *scope,
                                   struct jinja_text name) {
    for (uint32_t i = 0; i < scope->count && jinja_heap_spend(h, 16); i++) {
        const struct jinja_text other = scope->variables[i].name;
        if (other.length == name.length && memcmp(other.bytes, name.bytes, name.length) == 0)
            return &scope->variables[i];
    }
    return NULL;
}

void jinja_assign(struct jinja_run *run, struct jinja_text name, struct jinja_value value) {
    struct jinja_scope *scope = run->scope;
    struct jinja_variable *old = find(run->heap, scope, name);
    if (old) old->value = value;
    if (old || jinja_failed(run->heap)) return;
    if (scope->count == scope->capacity) {
        struct jinja_variable *variables =
            jinja_heap_grow(run->heap, scope->variables, &scope->capacity, sizeof *variables);
        if (!variables) return;
        scope->variables = variables;
    }
    scope->variables[scope->count++] = (struct jinja_variable){name, value};
}

static struct jinja_value look_up(struct jinja_run *run, struct jinja_text name) {
    for (struct jinja_scope *scope = run->scope; scope; scope = scope->parent) {
        const struct jinja_variable *found = find(run->heap, scope, name);
        if (found) return found->value;
    }
    return UNDEFINED;
}

// ---- Calls --------------------------------------------------------------------------------------

// Room for the arguments of one call.
struct argument_room {
    struct jinja_list values;
    struct jinja_arguments arguments;
};

static bool eval_arguments(struct jinja_run *run, const struct jinja_node *list,
                           struct argument_room *room) {
    struct jinja_dict *named = jinja_heap_take(run->heap, sizeof *named);
    if (!named) return false;
    *room = (struct argument_room){0};
    room->arguments = (struct jinja_arguments){&room->values, {.kind = JINJA_DICT, .dict = named}};
    const struct jinja_value values = {.kind = JINJA_LIST, .list = &room->values};
    for (; list && !jinja_failed(run->heap); list = list->next) {
        const struct jinja_value v = jinja_eval(run, list->a);
        if (list->name.length > 0)
            jinja_dict_put(run->heap, room->arguments.named, jinja_of_text(list->name), v);
        else
            jinja_list_add(run->heap, values, v);
    }
    return !jinja_failed(run->heap);
}

static void fail_call(struct jinja_run *run, const struct jinja_node *callee,
                      enum jinja_kind kind) {
    const struct jinja_text name = callee->name;
    jinja_fail(run->heap, "%.*s() is called, but it is %s",
               (int)(name.length < 40 ? name.length : 40), name.length ? name.bytes : "",
               jinja_kind_name(kind));
}

struct jinja_value jinja_eval_call(struct jinja_run *run, const struct jinja_node *node,
                                   struct jinja_value caller) {
    struct argument_room room;
    const struct jinja_value callee = jinja_eval(run, node->a);
    if (!eval_arguments(run, node->list, &room)) return UNDEFINED;
    if (caller.kind != JINJA_UNDEFINED)
        jinja_dict_put(run->heap, room.arguments.named, jinja_literal("caller"), caller);
    run->heap->line = node->line;
    switch (callee.kind) {
    case JINJA_FUNCTION:
        return jinja_function_call(run->heap, callee.function, run->now, &room.arguments);
    case JINJA_METHOD: return jinja_method_call(run->heap, callee.method, &room.arguments);
    case JINJA_MACRO: return run->run_macro(run, callee.macro, &room.arguments);
    default: fail_call(run, node->a, callee.kind); return UNDEFINED;
    }
}

static struct jinja_value eval_filter(struct jinja_run *run, const struct jinja_node *node,
                                      struct jinja_value v) {
    struct argument_room room;
    if (!eval_arguments(run, node->list, &room)) return UNDEFINED;
    run->heap->line = node->line;
    return jinja_filter(run->heap, node->name, v, &room.arguments);
}

struct jinja_value jinja_eval_filters(struct jinja_run *run, const struct jinja_node *node,
                                      struct jinja_value v) {
    if (jinja_heap_enter(run->heap, JINJA_DEPTH)) {
        if (node->a) v = jinja_eval_filters(run, node->a, v);
        v = eval_filter(run, node, v);
    }
    jinja_heap_leave(run->heap);
    return v;
}

static struct jinja_value eval_test(struct jinja_run *run, const struct jinja_node *node) {
    struct argument_room room;
    const struct jinja_value v = jinja_eval(run, node->a);
    if (!eval_arguments(run, node->list, &room)) return UNDEFINED;
    run->heap->line = node->line;
    return jinja_bool(jinja_test(run->heap, node->name, v, &room.arguments));
}

// ---- Expressions --------------------------------------------------------------------------------

static struct jinja_value eval_list(struct jinja_run *run, const struct jinja_node *node) {
    const struct jinja_value out =
        jinja_list_new(run->heap, node->kind == NODE_LIST ? JINJA_LIST : JINJA_TUPLE);
    for (const struct jinja_node *item = node->list; item && !jinja_failed(run->heap);
         item = item->next)
        jinja_list_add(run->heap, out, jinja_eval(run, item));
    return out;
}

static struct jinja_value eval_dict(struct jinja_run *run, const struct jinja_node *node) {
    const struct jinja_value out = jinja_dict_new(run->heap, JINJA_DICT);
    for (const struct jinja_node *key = node->list; key && !jinja_failed(run->heap);
         key = key->next->next) {
        const struct jinja_value name = jinja_eval(run, key);
        jinja_dict_put(run->heap, out, name, jinja_eval(run, key->next));
    }
    return out;
}

static struct jinja_value eval_slice(struct jinja_run *run, const struct jinja_node *node) {
    const struct jinja_value v = jinja_eval(run, node->a);
    const struct jinja_range range = {
        .first = node->b ? jinja_eval(run, node->b) : UNDEFINED,
        .end = node->c ? jinja_eval(run, node->c) : UNDEFINED,
        .step = node->d ? jinja_eval(run, node->d) : UNDEFINED,
    };
    return jinja_failed(run->heap) ? UNDEFINED : jinja_slice(run->heap, v, &range);
}

static struct jinja_value eval_choice(struct jinja_run *run, const struct jinja_node *node) {
    if (jinja_is_true(jinja_eval(run, node->b))) return jinja_eval(run, node->a);
    return node->c ? jinja_eval(run, node->c) : UNDEFINED;
}

static struct jinja_value eval_two(struct jinja_run *run, const struct jinja_node *node) {
    const struct jinja_value a = jinja_eval(run, node->a), b = jinja_eval(run, node->b);
    run->heap->line = node->line;
    if (jinja_failed(run->heap)) return UNDEFINED;
    if (node->kind == NODE_ITEM) return jinja_item(run->heap, a, b);
    if (node->kind == NODE_COMPARE) return jinja_bool(jinja_relate(run->heap, node->name, a, b));
    return jinja_operate(run->heap, node->name, a, b);
}

static struct jinja_value eval_node(struct jinja_run *run, const struct jinja_node *node) {
    struct jinja_value a;
    switch (node->kind) {
    case NODE_LITERAL: return node->value;
    case NODE_NAME: return look_up(run, node->name);
    case NODE_LIST:
    case NODE_TUPLE: return eval_list(run, node);
    case NODE_DICT: return eval_dict(run, node);
    case NODE_ATTRIBUTE: return jinja_attribute(run->heap, jinja_eval(run, node->a), node->name);
    case NODE_SLICE: return eval_slice(run, node);
    case NODE_CALL: return jinja_eval_call(run, node, UNDEFINED);
    case NODE_FILTER:
        a = jinja_eval(run, node->a);
        return jinja_failed(run->heap) ? UNDEFINED : eval_filter(run, node, a);
    case NODE_TEST: return eval_test(run, node);
    case NODE_NOT: return jinja_bool(!jinja_is_true(jinja_eval(run, node->a)));
    case NODE_NEGATE: return jinja_negate(run->heap, jinja_eval(run, node->a));
    case NODE_AND:
        a = jinja_eval(run, node->a);
        return jinja_is_true(a) ? jinja_eval(run, node->b) : a;
    case NODE_OR:
        a = jinja_eval(run, node->a);
        return jinja_is_true(a) ? a : jinja_eval(run, node->b);
    case NODE_CHOICE: return eval_choice(run, node);
    default: return eval_two(run, node);
    }
}

struct jinja_value jinja_eval(struct jinja_run *run, const struct jinja_node *node) {
    struct jinja_value v = UNDEFINED;
    if (jinja_heap_enter(run->heap, JINJA_DEPTH)) v = eval_node(run, node);
    jinja_heap_leave(run->heap);
    return jinja_failed(run->heap) ? UNDEFINED : v;
}
