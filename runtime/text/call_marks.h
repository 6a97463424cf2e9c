/* call_marks.h: the marks that the families of models write around calls of tools, and which family
 * a chat template belongs to.
 *
 * Marks are constants. Any thread. Tested by tests/runtime/test_calls.c.
 */
#ifndef TANDEM_RUNTIME_TEXT_CALL_MARKS_H
#define TANDEM_RUNTIME_TEXT_CALL_MARKS_H

#include <stdbool.h>
#include <stddef.h>

enum call_shape {
    CALL_JSON,     // {"name": N, "arguments": {...}}, or a list of these
    CALL_KEYED,    // [{N: {...}}, ...]
    CALL_NAMED,    // N, a mark, {...}
    CALL_TAGS,     // <function=N> <parameter=K> V </parameter> </function>, or other tags
    CALL_PAIRS,    // N <arg_key>K</arg_key> <arg_value>V</arg_value>
    CALL_QUOTED,   // call:N{K:<|"|>V<|"|>}
    CALL_PYTHON,   // [N(K=V, ...), ...] with values as Python writes them
    CALL_CHANNELS, // a message to=functions.N, which chat_reply.h splits
};
struct call_tags {
    const char *call, *call_end; // before the name of a tool, and at the end of the call
    const char *argument, *argument_end;
    const char *quote;       // behind a name, before other attributes and >
    bool lines;              // values stand on lines of their own
    bool types;              // an attribute says whether the value is a string
    bool joined;             // nothing stands between tags
    const char *wrapped_end; // of an argument whose value stands in <![CDATA[; NULL: none does
};
struct call_marks {          // texts that a family lacks are NULL
    const char *sign, *with; // a template with these texts uses the marks
    enum call_shape shape;
    const struct call_tags *tags; // CALL_TAGS
    const char *open;             // before calls
    const char *lead;             // before or at the beginning of each of several calls, after open
    const char *between;          // CALL_NAMED: between a name and its arguments
    const char *end;              // after each call
    const char *close;            // after all calls
    const char *id;        // CALL_JSON: the key of a number that comes first, written as a string;
                           // CALL_NAMED: the mark between an id of the call and the name
    const char *id_behind; // before an id that may come. CALL_JSON: its key, behind the arguments;
                           // CALL_NAMED: a mark, behind the name
    const char *name;      // CALL_JSON: the key of the name, where it is not "name"
    const char *arguments; // CALL_JSON: the key of the arguments
    bool list;             // CALL_JSON, CALL_KEYED, CALL_PYTHON: the calls are a list
    bool bare;             // CALL_JSON: an answer that begins with { is a call too
    bool loose;            // open may be missing: CALL_TAGS: before the call of a tool that is
                           // there, CALL_NAMED: before lead
    bool in_thoughts;      // calls may come within a thought, which ends there
    bool last;             // the reply ends behind the calls
    bool numbered;         // CALL_NAMED: names are functions.N:I, calls being numbered from 0
};
// The marks that a template uses; NULL: none that is known, or those that no shape fits.
const struct call_marks *call_marks_find(const char *source, size_t length);

#endif
