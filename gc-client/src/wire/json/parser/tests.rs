//! What is JSON, what is not, and what it means, beside a parser that many use.

use std::io::{self, Read};

use expect_test::expect;
use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::*;
use crate::arbitrary;

/// Gives one byte, then two, three, four, one, and so on; or all at once.
struct Pieces<'b> {
    bytes: &'b [u8],
    last: usize,
    is_whole: bool,
}

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.last = self.last % 4 + 1;
        let most = if self.is_whole { into.len() } else { self.last };
        let count = into.len().min(most).min(self.bytes.len());
        into[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes = &self.bytes[count..];
        Ok(count)
    }
}

type Reading<'p, T> = &'p dyn Fn(&mut Parser<'_, Pieces<'_>>) -> Result<T, WireError>;

/// Calls with a parser of the text as a whole, and in pieces: what comes of it must be the same.
fn parse<T: PartialEq + std::fmt::Debug>(bytes: &[u8], read: Reading<'_, T>) -> Result<T, String> {
    let [whole, in_pieces] = [true, false].map(|is_whole| {
        let source = &mut Source::of_list(Pieces { bytes, last: 0, is_whole });
        read(&mut Parser::new(source)).map_err(|error| error.to_string())
    });
    assert_eq!(whole, in_pieces);
    whole
}

/// Passes over one value. A semicolon must follow: a number has no end of its own.
fn pass(text: &[u8]) -> Result<(), String> {
    parse(&[text, b";"].concat(), &|json| {
        json.pass()?;
        json.next()?;
        json.take(b';')
    })
}

fn string(text: &str) -> Result<String, String> {
    let bytes = parse(text.as_bytes(), &|json| {
        let mut text = Vec::new();
        json.string(|bytes| {
            text.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(text)
    });
    bytes.map(|bytes| String::from_utf8(bytes).unwrap())
}

fn lines<T: std::fmt::Display>(said: impl IntoIterator<Item = (&'static str, Result<T, String>)>) -> String {
    let line = |(text, said)| match said {
        Ok(value) => format!("{text:<28} {value}\n"),
        Err(error) => format!("{text:<28} error: {error}\n"),
    };
    said.into_iter().map(line).collect()
}

#[test]
fn what_is_no_json_is_an_error_where_it_stands() {
    let texts = [
        "{\"a\": [1, {}, [ ], \"x\"]}",
        "",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{\"a\":1]",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{\"a\":}",
        "{a:1}",
        "{1:1}",
        "nul ",
        "truE",
        "01",
        "-",
        "1.",
        "1.e1",
        "1e",
        "1e+",
        "+1",
        ".5",
        "\"\\x\"",
        "\"\\u12g4\"",
    ];
    let said = texts.map(|text| (text, pass(text.as_bytes()).map(|()| "passed")));
    expect![[r#"
        {"a": [1, {}, [ ], "x"]}     passed
                                     error: JSON: expected a value, found ';' (after 0 bytes)
        [1,]                         error: JSON: expected a value, found ']' (after 3 bytes)
        [,1]                         error: JSON: expected a value, found ',' (after 1 bytes)
        [1 2]                        error: JSON: expected a comma or the end, found a number (after 3 bytes)
        [1}                          error: JSON: expected a comma or the end, found '}' (after 2 bytes)
        {"a":1]                      error: JSON: expected a comma or the end, found ']' (after 6 bytes)
        {"a":1,}                     error: JSON: a key that is no string (after 7 bytes)
        {"a" 1}                      error: JSON: expected :, found a number (after 5 bytes)
        {"a":}                       error: JSON: expected a value, found '}' (after 5 bytes)
        {a:1}                        error: JSON: a key that is no string (after 1 bytes)
        {1:1}                        error: JSON: a key that is no string (after 1 bytes)
        nul                          error: JSON: expected null, found the byte 0x20 (after 3 bytes)
        truE                         error: JSON: expected true, found 'E' (after 3 bytes)
        01                           error: JSON: expected ;, found a number (after 1 bytes)
        -                            error: JSON: expected a digit, found ';' (after 1 bytes)
        1.                           error: JSON: expected a digit, found ';' (after 2 bytes)
        1.e1                         error: JSON: expected a digit, found 'e' (after 2 bytes)
        1e                           error: JSON: expected a digit, found ';' (after 2 bytes)
        1e+                          error: JSON: expected a digit, found ';' (after 3 bytes)
        +1                           error: JSON: expected a value, found '+' (after 0 bytes)
        .5                           error: JSON: expected a value, found '.' (after 0 bytes)
        "\x"                         error: JSON: expected an escape, found 'x' (after 2 bytes)
        "\u12g4"                     error: JSON: expected a hex digit, found 'g' (after 5 bytes)
    "#]]
    .assert_eq(&lines(said));
}

#[test]
fn control_characters_are_escaped_and_there_is_no_byte_order_mark() {
    for control in 0..0x20 {
        let said = pass(&[b'"', control, b'"']);
        assert_eq!(
            said,
            Err("JSON: a string with a control character (after 1 bytes)".to_owned()),
            "{control}"
        );
    }
    assert_eq!(pass(b"\"\x7f\""), Ok(()));
    expect!["JSON: expected a value, found the byte 0xef (after 0 bytes)"]
        .assert_eq(&pass("\u{feff}1".as_bytes()).unwrap_err());
}

#[test]
fn strings_are_what_they_mean() {
    let texts = [
        r#""""#,
        r#""plain""#,
        r#""\"\\\/\b\f\n\r\t""#,
        r#""caf\u00E9 \ud83d\ude00""#,
        r#""\ud83d""#,
        r#""\ud83dx""#,
        r#""\ud83d\u0041""#,
        r#""\ude00""#,
        r#""12345678\"12345678""#,
        r#""1234567\\""#,
    ];
    let said = texts.map(|text| (text, string(text).map(|meant| format!("{meant:?}"))));
    expect![[r#"
        ""                           ""
        "plain"                      "plain"
        "\"\\\/\b\f\n\r\t"           "\"\\/\u{8}\u{c}\n\r\t"
        "caf\u00E9 \ud83d\ude00"     "café 😀"
        "\ud83d"                     error: JSON: expected \, found a string (after 7 bytes)
        "\ud83dx"                    error: JSON: expected \, found 'x' (after 7 bytes)
        "\ud83d\u0041"               error: JSON: half a surrogate pair (after 13 bytes)
        "\ude00"                     error: JSON: half a surrogate pair (after 7 bytes)
        "12345678\"12345678"         "12345678\"12345678"
        "1234567\\"                  "1234567\\"
    "#]]
    .assert_eq(&lines(said));
    // Where it is not wanted, half a pair does no harm: it may stand in what the server only passes on.
    assert_eq!(pass(br#""\ud83d""#), Ok(()));
}

#[test]
fn numbers_are_whole_or_nothing() {
    let texts = ["0 ", "7,", "18446744073709551615]", "18446744073709551616]", "-1 ", "-0 ", "1.0 ", "1e2 "];
    let number = |text: &'static str| {
        let number = parse(text.as_bytes(), &|json| json.number());
        (text, number.map(|number| format!("{number:?}")))
    };
    expect![[r#"
        0                            Some(0)
        7,                           Some(7)
        18446744073709551615]        Some(18446744073709551615)
        18446744073709551616]        None
        -1                           None
        -0                           None
        1.0                          None
        1e2                          None
    "#]]
    .assert_eq(&lines(texts.map(number)));
}

#[test]
fn a_key_that_is_too_long_is_none() {
    let keys = |text: &str| {
        let mut source = Source::of_list(text.as_bytes());
        let mut json = Parser::new(&mut source);
        let mut inside = json.object("an object").unwrap();
        let mut keys = Vec::new();
        while json.member(&mut inside).unwrap() {
            keys.push(json.key().len());
            json.pass().unwrap();
        }
        keys
    };
    let key = |bytes: usize| format!("\"{}\":[]", "k".repeat(bytes));
    let text = [317, KEY_BYTES_MAX, KEY_BYTES_MAX + 1, 100_000, 3].map(key).join(",");
    assert_eq!(keys(&format!("{{{text}}}")), [317, KEY_BYTES_MAX, 0, 0, 3]);
}

#[test]
fn nesting_has_a_limit() {
    let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
    assert_eq!(pass(nested(DEPTH_MAX).as_bytes()), Ok(()));
    expect!["JSON: a value that is nested deeper than Kubernetes decodes (after 10000 bytes)"]
        .assert_eq(&pass(nested(DEPTH_MAX + 1).as_bytes()).unwrap_err());
}

#[test]
fn a_copy_is_what_came_unless_it_is_too_long() {
    let copy = |text: &'static str| {
        let copy = parse(text.as_bytes(), &|json| json.copy(12));
        (text, copy.map(|copy| copy.map_or("too long".into(), |copy| String::from_utf8(copy).unwrap())))
    };
    expect![[r#"
          {"a":[1, 2]} ,             {"a":[1, 2]}
        "123\u0041",                 "123\u0041"
        "1234567890",                "1234567890"
        "12345678901",               too long
    "#]]
    .assert_eq(&lines(
        ["  {\"a\":[1, 2]} ,", "\"123\\u0041\",", "\"1234567890\",", "\"12345678901\","].map(copy),
    ));
}

/// Byte for byte, without tricks.
fn plain_length_of(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| **byte != b'"' && **byte != b'\\' && **byte >= 0x20).count()
}

proptest! {
    #[test]
    fn what_serde_json_writes_is_passed_and_copied(value in arbitrary::json("[a-c\"\\\\\n]{0,3}")) {
        for text in [value.to_string(), format!("{value:#}")] {
            prop_assert_eq!(pass(text.as_bytes()), Ok(()));
            let text = text + ",";
            let copy = parse(text.as_bytes(), &|json| json.copy(1 << 20));
            prop_assert_eq!(serde_json::from_slice::<Value>(&copy.unwrap().unwrap()).unwrap(), value.clone());
        }
    }

    #[test]
    fn what_serde_json_refuses_is_refused(value in arbitrary::json("[a-c\"\\\\\n]{0,3}"), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut text = json!([value]).to_string().into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        let ours = pass(&text);
        let theirs = serde_json::from_slice::<IgnoredAny>(&text);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} {:?}", ours, theirs);
    }

    #[test]
    fn a_string_is_read_as_serde_json_reads_it(text in prop_oneof![any::<String>(), "[ -~\u{0}-\u{20}é😀]{0,30}"]) {
        let written = Value::from(text.clone()).to_string();
        prop_assert_eq!(string(&written), Ok(text.clone()));
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
        prop_assert_eq!(string(&format!("\"{escaped}\"")), Ok(text));
    }

    #[test]
    fn plain_text_ends_at_the_first_byte_that_is_not(
        bytes in prop::collection::vec(prop_oneof![8 => any::<u8>(), 1 => Just(b'"'), 1 => Just(b'\\'), 30 => 0x1e_u8..0x24], 0..40),
    ) {
        prop_assert_eq!(plain_length(&bytes), plain_length_of(&bytes));
        for from in 0..bytes.len() {
            prop_assert_eq!(plain_length(&bytes[from..]), plain_length_of(&bytes[from..]));
        }
    }
}
