//! Patterns: `string.find` and the like do the same as the functions of Lua 5.1.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use mlua::{Lua, LuaOptions, StdLib};
use proptest::prelude::*;
use support::{EVALUATE, Script};

/// A piece of a pattern, often one that means something.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[abc]",
        2 => "\\.|%a|%d|%s|%w|%A|%W|%p|%x|%z|%%|%\\.",
        2 => "\\[a-b\\]|\\[\\^a\\]|\\[%w_\\]|\\[\\]a\\]|\\[a-\\]|\\[%a-z\\]|\\[\\^%d\\]",
        1 => "\\(|\\)|\\(\\)|\\^|\\$|-",
        1 => "%b()|%bab|%f\\[a\\]|%f\\[%w\\]|%1|%2",
        1 => "%|\\[|%b|%f|\\[a|%ba|\\\\0|\\[%",
    ]
}

fn pattern() -> impl Strategy<Value = String> {
    let repeated = (piece(), "[*+?-]?").prop_map(|(piece, repeat)| piece + &repeat);
    (prop::bool::ANY, prop::collection::vec(repeated, 0..6)).prop_map(|(is_anchored, pieces)| {
        if is_anchored { format!("^{}", pieces.concat()) } else { pieces.concat() }
    })
}

fn text() -> impl Strategy<Value = String> {
    "([abc1_ ()]|\\\\0|\\\\255|\\\\10){0,12}"
}

fn expressions() -> impl Strategy<Value = String> {
    let call = prop_oneof![
        (-14i32..14).prop_map(|from| format!("TEXT:find(PATTERN, {from})")),
        Just("TEXT:find(PATTERN, 1, true)".to_string()),
        Just("TEXT:find(PATTERN)".to_string()),
        (-14i32..14).prop_map(|from| format!("TEXT:match(PATTERN, {from})")),
        ("[ab%0-9]{0,4}", -1i32..4)
            .prop_map(|(with, max)| format!("TEXT:gsub(PATTERN, '{with}', {max})")),
        Just("TEXT:gsub(PATTERN, function(...) return #{...} == 2 and 7 end)".to_string()),
        Just("TEXT:gsub(PATTERN, {a = 'x', b = false, c = 3, [1] = 'one'})".to_string()),
        Just("TEXT:gsub(PATTERN, {a = {}})".to_string()),
        Just(
            "(function() local t = {} for a, b in TEXT:gmatch(PATTERN) do \
             t[#t + 1] = {a, b} if #t > 20 then break end end return t end)()"
                .to_string()
        ),
    ];
    (call, text(), pattern()).prop_map(|(call, text, pattern)| {
        call.replace("TEXT", &format!("('{text}')")).replace("PATTERN", &format!("'{pattern}'"))
    })
}

/// Evaluates an expression in a state of Lua without our functions.
fn plain(lua: &Lua, expression: &str) -> String {
    let evaluate: mlua::Function = lua.globals().get("evaluate").unwrap();
    evaluate.call(expression).unwrap()
}

/// Leaves out what Lua puts before a message: the chunk, the line.
fn without_position(result: &str) -> String {
    match result.strip_prefix("error: ") {
        Some(message) => format!("error: {}", message.split("]:1: ").last().unwrap_or(message)),
        None => result.to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn searches_result_in_the_same_as_those_of_lua(
        expressions in prop::collection::vec(expressions(), 100),
    ) {
        let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE, LuaOptions::new()).unwrap();
        lua.load(EVALUATE).exec().unwrap();
        let script = Script::new(EVALUATE);
        for expression in expressions {
            let expected = plain(&lua, &expression);
            let result = script.text("evaluate", &expression);
            prop_assert_eq!(result, without_position(&expected), "{}", expression);
        }
    }
}
