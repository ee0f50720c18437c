//! Normalisation of text for full-text search.

use super::accents;

/// Returns the character that stands for a letter in comparisons; `None` if the letter is ignored.
fn fold(letter: char) -> Option<char> {
    let code = letter as u32;
    Some(match code {
        0..=0x20 | 0x7f | 0xa0 | 0x2000..=0x200b | 0x2028 | 0x2029 | 0x3000 => ' ',
        0..0xc0 => letter.to_ascii_lowercase(),
        // Combining marks.
        0x300..=0x36f => return None,
        // Full-width forms of ASCII.
        0xff01..=0xff5e => char::from((code - 0xfee0) as u8).to_ascii_lowercase(),
        _ => {
            let stripped = accents::strip(letter);
            // If lower case takes several characters, the first one carries the letter.
            stripped.to_lowercase().next().unwrap_or(stripped)
        }
    })
}

/// Calls `visit` with each character of the normalised text, and the byte offset of its origin in
/// `text`, until it returns `false`. Bytes that are not UTF-8 are ignored.
pub(super) fn for_each_character(text: &[u8], mut visit: impl FnMut(char, usize) -> bool) {
    let mut offset = 0;
    // Offset of a space before the next character. There is none at the beginning.
    let mut space = None;
    let mut begun = false;
    for chunk in text.utf8_chunks() {
        for (at, letter) in chunk.valid().char_indices() {
            match fold(letter) {
                None => {}
                Some(' ') => space = space.or(begun.then_some(offset + at)),
                Some(folded) => {
                    if let Some(space) = space.take()
                        && !visit(' ', space)
                    {
                        return;
                    }
                    if !visit(folded, offset + at) {
                        return;
                    }
                    begun = true;
                }
            }
        }
        offset += chunk.valid().len() + chunk.invalid().len();
    }
}

/// Returns text in lower case, without accents, and with full-width forms as ASCII. White space
/// becomes single spaces, and is removed at both ends.
pub(super) fn normalise(text: &[u8]) -> String {
    let mut normalised = String::with_capacity(text.len());
    for_each_character(text, |letter, _| {
        normalised.push(letter);
        true
    });
    normalised
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn normalised_text_has_no_case_accents_or_needless_space() {
        for (text, normalised) in [
            ("É t é", "e t e"),
            ("  Tokyo \t\n CABINET ", "tokyo cabinet"),
            ("ＡＢＣ１２３　ｘ", "abc123 x"),
            ("e\u{301}te\u{301}", "ete"),
            ("東京 タワー", "東京 タワー"),
            ("ΆΣ Привет", "ας привет"),
            ("", ""),
        ] {
            assert_eq!(normalise(text.as_bytes()).replace('ς', "σ"), normalised.replace('ς', "σ"));
        }
        assert_eq!(normalise(b"a\xff\xfeB"), "ab");
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing_more(text in ".{0,40}") {
            let once = normalise(text.as_bytes());
            prop_assert_eq!(normalise(once.as_bytes()), once);
        }
    }
}
