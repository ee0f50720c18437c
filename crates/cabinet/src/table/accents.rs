//! Letters without their accents, in lower case.
//!
//! This is the canonical decomposition of Unicode 14 without combining marks. Letters with a stroke
//! become the letters without it. Only Latin and Greek are covered: elsewhere (Cyrillic, kana) a
//! mark makes another letter.

/// Runs of characters: the code point of the first one, and the replacement of each.
const RUNS: [(u32, &str); 4] = [
    // Latin-1 to Latin Extended-B.
    (
        0xc0,
        "aaaaaaæceeeeiiiiðnooooo×ouuuuyþßaaaaaaæceeeeiiiiðnooooo÷ouuuuyþy\
         aaaaaaccccccccddddeeeeeeeeeegggggggghhhhiiiiiiiiiiĳĳjjkkĸllllllŀ\
         ŀllnnnnnnŉŋŋooooooœœrrrrrrssssssssttttttuuuuuuuuuuuuwwyyyzzzzzzſ\
         ƀɓƃƃƅƅɔƈƈɖɗƌƌƍǝəɛƒƒɠɣƕɩɨƙƙƚƛɯɲƞɵooƣƣƥƥʀƨƨʃƪƫƭƭʈuuʊʋƴƴƶƶʒƹƹƺƻƽƽƾƿ\
         ǀǁǂǃǆǆǆǉǉǉǌǌǌaaiioouuuuuuuuuuǝaaaaææǥǥggkkooooʒʒjǳǳǳggƕƿnnaaææøø\
         aaaaeeeeiiiioooorrrruuuussttȝȝhhƞȡȣȣȥȥaaeeooooooooyyȴȵȶȷȸȹⱥȼȼƚⱦȿ\
         ɀɂɂƀʉʌɇɇɉɉɋɋɍɍɏɏ",
    ),
    // Greek and Coptic.
    (
        0x370,
        "ͱͱͳͳʹ\u{375}ͷͷ\u{378}\u{379}ͺͻͼͽ;ϳ\u{380}\u{381}\u{382}\u{383}\u{384}\u{a8}α·εηι\u{38b}ο\u{38d}υωιαβγδεζηθικλμνξοπρ\u{3a2}στυφχψωιυαεηι\
         υαβγδεζηθικλμνξοπρςστυφχψωιυουω",
    ),
    // Latin Extended Additional.
    (
        0x1e00,
        "aabbbbbbccddddddddddeeeeeeeeeeffgghhhhhhhhhhiiiikkkkkkllllllllmm\
         mmmmnnnnnnnnoooooooopppprrrrrrrrssssssssssttttttttuuuuuuuuuuvvvv\
         wwwwwwwwwwxxxxyyzzzzzzhtwyẚſẜẝßẟaaaaaaaaaaaaaaaaaaaaaaaaeeeeeeee\
         eeeeeeeeiiiioooooooooooooooooooooooouuuuuuuuuuuuuuyyyyyyyyỻỻỽỽỿỿ",
    ),
    // Greek Extended.
    (
        0x1f00,
        "ααααααααααααααααεεεεεε\u{1f16}\u{1f17}εεεεεε\u{1f1e}\u{1f1f}ηηηηηηηηηηηηηηηηιιιιιιιιιιιιιιιι\
         οοοοοο\u{1f46}\u{1f47}οοοοοο\u{1f4e}\u{1f4f}υυυυυυυυ\u{1f58}υ\u{1f5a}υ\u{1f5c}υ\u{1f5e}υωωωωωωωωωωωωωωωωααεεηηιιοουυωω\u{1f7e}\u{1f7f}\
         ααααααααααααααααηηηηηηηηηηηηηηηηωωωωωωωωωωωωωωωωααααα\u{1fb5}ααααααα\u{1fbd}ι\u{1fbf}\
         \u{1fc0}\u{a8}ηηη\u{1fc5}ηηεεηηη\u{1fbf}\u{1fbf}\u{1fbf}ιιιι\u{1fd4}\u{1fd5}ιιιιιι\u{1fdc}\u{1ffe}\u{1ffe}\u{1ffe}υυυυρρυυυυυυρ\u{a8}\u{a8}\u{60}\u{1ff0}\u{1ff1}ωωω\u{1ff5}ωωοοωωω\u{b4}\u{1ffe}\u{1fff}",
    ),
];

/// Returns a letter without its accents, in lower case.
pub(super) fn strip(letter: char) -> char {
    let code = letter as u32;
    static TABLES: std::sync::LazyLock<Vec<(u32, Vec<char>)>> = std::sync::LazyLock::new(|| {
        RUNS.iter().map(|(first, letters)| (*first, letters.chars().collect())).collect()
    });
    for (first, letters) in TABLES.iter() {
        if let Some(stripped) = code.checked_sub(*first).and_then(|at| letters.get(at as usize)) {
            return *stripped;
        }
    }
    letter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_lose_their_accents_and_others_stay() {
        for (letter, stripped) in [
            ('É', 'e'),
            ('ø', 'o'),
            ('Ž', 'z'),
            ('ế', 'e'),
            ('Ά', 'α'),
            ('й', 'й'),
            ('が', 'が'),
            ('ß', 'ß'),
            ('×', '×'),
        ] {
            assert_eq!(strip(letter), stripped, "{letter}");
        }
    }
}
