//! Regular expressions. Accepts only patterns that Envoy's engine (RE2) accepts, so that Envoy never rejects one.
//!
//! Envoy runs RE2 on bytes, and a non-ASCII character is several bytes. As a literal, such a character matches itself,
//! but in a class or with a repetition it would have another meaning, so it is rejected there.

use regex_syntax::ast::{self, Ast};

/// The maximum cost: the number of nodes with repetitions expanded. Above it, RE2 needs too much memory or time.
const MAX_COST: u64 = 5_000;

/// The maximum product of nested repetition counts. `*`, `+` and `?` don't count.
const MAX_REPEAT: u64 = 1_000;

/// Maximum pattern length, in bytes.
const MAX_LENGTH: usize = 4_096;

/// Checks that Envoy accepts the pattern.
///
/// # Errors
/// What is wrong, as a clause to follow "the regular expression".
pub fn check(pattern: &str) -> Result<(), String> {
    Pattern::read(pattern).map(|_| ())
}

/// A pattern that Envoy accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    cost: u64,
    /// Whether it starts with `^`.
    at_start: bool,
    /// Whether it has other start anchors.
    inside: bool,
}

impl Pattern {
    /// Checks that Envoy accepts the pattern.
    ///
    /// # Errors
    /// What is wrong, as a clause to follow "the regular expression".
    pub fn read(text: &str) -> Result<Self, String> {
        let (ast, cost) = parse(text)?;
        let at_start = text.starts_with('^') && starts_with_assertion(&ast);
        Ok(Self {
            text: text.to_owned(),
            cost,
            at_start,
            inside: starts(&ast) > u64::from(at_start),
        })
    }

    /// The pattern.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The pattern with a literal prefix. Doesn't parse the pattern again.
    ///
    /// # Errors
    /// Why the prefix isn't possible, as a clause to follow "the regular expression".
    pub fn after(&self, literal: &str) -> Result<Self, String> {
        if literal.is_empty() {
            return Ok(self.clone());
        }
        if self.inside {
            return Err(
                "has ^ or \\A other than at its start, which can't match after the prefix".into(),
            );
        }
        // The group keeps all alternatives after the literal.
        let text = format!(
            "{}(?:{})",
            regex_syntax::escape(literal),
            &self.text[usize::from(self.at_start)..]
        );
        let literals = u64::try_from(literal.chars().count()).unwrap_or(u64::MAX);
        let cost = self.cost.saturating_add(literals).saturating_add(1);
        within_bounds(&text, cost)?;
        Ok(Self {
            text,
            cost,
            at_start: false,
            inside: false,
        })
    }
}

fn within_bounds(text: &str, cost: u64) -> Result<(), String> {
    if text.len() > MAX_LENGTH {
        return Err(format!("is longer than {MAX_LENGTH} bytes"));
    }
    if cost > MAX_COST {
        return Err(
            "is too large after expanding repetitions; use smaller repetition counts".into(),
        );
    }
    Ok(())
}

/// Parses a pattern that Envoy accepts, and returns its cost.
fn parse(pattern: &str) -> Result<(Ast, u64), String> {
    if pattern.is_empty() {
        return Err("is empty; use .* to match everything".into());
    }
    within_bounds(pattern, 0)?;
    let ast = ast::parse::ParserBuilder::new()
        .nest_limit(100)
        .build()
        .parse(pattern)
        .map_err(|error| format!("is invalid: {}", error.kind()))?;
    if repeats(&ast) > MAX_REPEAT {
        return Err(format!(
            "repeats an expression more than {MAX_REPEAT} times, counting nested repetitions"
        ));
    }
    let cost = cost(&ast)?;
    within_bounds(pattern, cost)?;
    Ok((ast, cost))
}

/// Whether the first part of the pattern is `^`. The recursion is bounded by the parser's nest limit.
fn starts_with_assertion(ast: &Ast) -> bool {
    match ast {
        Ast::Assertion(assertion) => assertion.kind == ast::AssertionKind::StartLine,
        Ast::Alternation(alternation) => {
            alternation.asts.first().is_some_and(starts_with_assertion)
        }
        Ast::Concat(concat) => concat.asts.first().is_some_and(starts_with_assertion),
        _ => false,
    }
}

/// The number of start anchors. The recursion is bounded by the parser's nest limit.
fn starts(ast: &Ast) -> u64 {
    match ast {
        Ast::Assertion(assertion) => u64::from(matches!(
            assertion.kind,
            ast::AssertionKind::StartLine | ast::AssertionKind::StartText
        )),
        Ast::Repetition(repetition) => starts(&repetition.ast),
        Ast::Group(group) => starts(&group.ast),
        Ast::Alternation(alternation) => alternation.asts.iter().map(starts).sum(),
        Ast::Concat(concat) => concat.asts.iter().map(starts).sum(),
        _ => 0,
    }
}

/// The largest product of nested repetition counts.
///
/// The recursion is bounded by the parser's nest limit.
fn repeats(ast: &Ast) -> u64 {
    let most = |asts: &[Ast]| asts.iter().map(repeats).max().unwrap_or(1);
    match ast {
        Ast::Repetition(repetition) => repeats(&repetition.ast).saturating_mul(times(repetition)),
        Ast::Group(group) => repeats(&group.ast),
        Ast::Alternation(alternation) => most(&alternation.asts),
        Ast::Concat(concat) => most(&concat.asts),
        _ => 1,
    }
}

/// The factor of a repetition.
fn times(repetition: &ast::Repetition) -> u64 {
    let ast::RepetitionKind::Range(range) = &repetition.op.kind else {
        return 1;
    };
    match *range {
        ast::RepetitionRange::Exactly(n)
        | ast::RepetitionRange::AtLeast(n)
        | ast::RepetitionRange::Bounded(_, n) => u64::from(n.max(1)),
    }
}

/// The size of the pattern with repetitions expanded, or why RE2 doesn't support it.
///
/// The recursion is bounded by the parser's nest limit.
fn cost(ast: &Ast) -> Result<u64, String> {
    let unsupported = |what: &str| Err(format!("uses {what}, which RE2 does not support"));
    Ok(match ast {
        Ast::Empty(_) | Ast::Dot(_) | Ast::ClassPerl(_) => 1,
        Ast::ClassUnicode(class) => property_cost(class)?,
        Ast::Flags(flags) => {
            flags_supported(&flags.flags)?;
            1
        }
        Ast::Literal(literal) => {
            if matches!(&literal.kind, ast::LiteralKind::HexFixed(kind) | ast::LiteralKind::HexBrace(kind) if *kind != ast::HexLiteralKind::X)
            {
                return unsupported("\\u escapes");
            }
            within_bytes(literal)?;
            1
        }
        Ast::Assertion(assertion) => match assertion.kind {
            ast::AssertionKind::StartLine
            | ast::AssertionKind::EndLine
            | ast::AssertionKind::StartText
            | ast::AssertionKind::EndText
            | ast::AssertionKind::WordBoundary
            | ast::AssertionKind::NotWordBoundary => 1,
            _ => return unsupported("\\b{…} or \\< word boundaries"),
        },
        Ast::ClassBracketed(class) => class_cost(&class.kind)?,
        Ast::Repetition(repetition) => {
            if matches!(*repetition.ast, Ast::Repetition(_)) {
                return unsupported("consecutive repetition operators");
            }
            if matches!(&*repetition.ast, Ast::Literal(literal) if several_bytes(literal)) {
                return Err("repeats a non-ASCII character; put it in a group".into());
            }
            cost(&repetition.ast)?.saturating_mul(times(repetition))
        }
        Ast::Group(group) => {
            match &group.kind {
                ast::GroupKind::CaptureIndex(_) => {}
                ast::GroupKind::CaptureName { name, .. } => {
                    if !name
                        .name
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b == b'_')
                    {
                        return Err(
                            "has a group name with characters other than letters, digits and _"
                                .into(),
                        );
                    }
                }
                ast::GroupKind::NonCapturing(flags) => flags_supported(flags)?,
            }
            cost(&group.ast)?.saturating_add(1)
        }
        Ast::Alternation(alternation) => sum(&alternation.asts)?,
        Ast::Concat(concat) => sum(&concat.asts)?,
    })
}

fn sum(asts: &[Ast]) -> Result<u64, String> {
    asts.iter()
        .try_fold(0u64, |total, ast| Ok(total.saturating_add(cost(ast)?)))
}

/// RE2 supports `i`, `m`, `s` and `U`.
fn flags_supported(flags: &ast::Flags) -> Result<(), String> {
    for item in &flags.items {
        if let ast::FlagsItemKind::Flag(flag) = &item.kind
            && !matches!(
                flag,
                ast::Flag::CaseInsensitive
                    | ast::Flag::MultiLine
                    | ast::Flag::DotMatchesNewLine
                    | ast::Flag::SwapGreed
            )
        {
            return Err("uses a flag other than i, m, s or U".into());
        }
    }
    Ok(())
}

fn several_bytes(literal: &ast::Literal) -> bool {
    matches!(literal.kind, ast::LiteralKind::Verbatim) && !literal.c.is_ascii()
}

/// Rejects escapes of more than one byte.
fn within_bytes(literal: &ast::Literal) -> Result<(), String> {
    let escaped = matches!(
        literal.kind,
        ast::LiteralKind::HexFixed(_) | ast::LiteralKind::HexBrace(_)
    );
    if escaped && u32::from(literal.c) > 0xff {
        return Err("escapes a character above \\xff; write it literally".into());
    }
    Ok(())
}

/// RE2 supports general categories by their short names. For a script, it would match only one-byte characters.
fn property_cost(class: &ast::ClassUnicode) -> Result<u64, String> {
    const KNOWN: &[&str] = &[
        "Any", "C", "Cc", "Cf", "Co", "Cs", "L", "Latin", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc",
        "Me", "Mn", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",
        "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs",
    ];
    let known = match &class.kind {
        ast::ClassUnicodeKind::OneLetter(letter) => KNOWN.contains(&&*letter.to_string()),
        ast::ClassUnicodeKind::Named(name) => {
            KNOWN.contains(&name.strip_prefix('^').unwrap_or(name))
        }
        ast::ClassUnicodeKind::NamedValue { .. } => false,
    };
    if known {
        Ok(20)
    } else {
        Err(
            "uses a \\p class that is not a Unicode general category such as \\pL or \\p{Lu}"
                .into(),
        )
    }
}

/// Classes are cheap, except for Unicode ones.
fn class_cost(set: &ast::ClassSet) -> Result<u64, String> {
    match set {
        ast::ClassSet::BinaryOp(_) => {
            Err("uses set operations in a character class, which RE2 does not support".into())
        }
        ast::ClassSet::Item(item) => class_item_cost(item),
    }
}

fn class_item_cost(item: &ast::ClassSetItem) -> Result<u64, String> {
    Ok(match item {
        ast::ClassSetItem::Bracketed(_) => {
            return Err("uses nested character classes, which RE2 does not support".into());
        }
        ast::ClassSetItem::Unicode(class) => property_cost(class)?,
        ast::ClassSetItem::Literal(literal) => ascii_in_class(literal)?,
        ast::ClassSetItem::Range(range) => {
            ascii_in_class(&range.start)?.max(ascii_in_class(&range.end)?)
        }
        ast::ClassSetItem::Union(union) => {
            let mut total = 1u64;
            for item in &union.items {
                total = total.saturating_add(class_item_cost(item)? / 2);
            }
            total
        }
        _ => 1,
    })
}

/// Rejects non-ASCII characters: in a class, their bytes would be separate members. An escape is one byte.
fn ascii_in_class(literal: &ast::Literal) -> Result<u64, String> {
    if several_bytes(literal) {
        return Err(
            "has a non-ASCII character in a character class; use an alternation such as (a|b)"
                .into(),
        );
    }
    within_bytes(literal)?;
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::{Pattern, check};

    fn after(literal: &str, pattern: &str) -> Result<String, String> {
        let pattern = Pattern::read(pattern).expect("a valid pattern");
        let whole = pattern.after(literal)?;
        assert_eq!(check(whole.as_str()), Ok(()), "{whole:?}");
        Ok(whole.as_str().to_owned())
    }

    #[test]
    fn patterns_after_a_literal_need_no_parser() {
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(after("", "^/a"), ok("^/a"));
        assert_eq!(after("/p.q", "^/a|b"), ok(r"/p\.q(?:/a|b)"));
        assert_eq!(after("/p", "^"), ok("/p(?:)"));
        assert_eq!(after("/p", r"\^a"), ok(r"/p(?:\^a)"));
        for pattern in ["a|^b", "^a|^b", "(^a)", r"\Aa", "^*a", "(?m)^a"] {
            assert!(after("/p", pattern).is_err(), "{pattern}");
        }
        assert!(after(&"a".repeat(4_000), &"a".repeat(90)).is_ok());
        assert!(after(&"a".repeat(4_000), &"a".repeat(100)).is_err());
        assert!(after("/p", "a{1000}b{1000}c{1000}d{1000}e{990}").is_ok());
        assert!(after("/prefix1234", "a{1000}b{1000}c{1000}d{1000}e{990}").is_err());
    }

    #[test]
    fn accepts_common_patterns() {
        for pattern in [
            "/v[0-9]+/.*",
            "(?i)/shop/(a|b)",
            r"\d{2,4}-\w+",
            "^/a$",
            "[[:alpha:]]+",
            r"\pL+",
            r"\p{^Lu}\P{Any}[\p{Latin}]",
            "(a{10}){100}",
            "(a*){1000}",
            "é(ü)+",
            r"[\x00-\xff]",
            "(?P<name_1>a)",
        ] {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
    }

    #[test]
    fn rejects_what_envoy_would_reject() {
        for pattern in [
            "",
            "(",
            "[a",
            "a**",
            "(?=x)",
            r"(a)\1",
            "[a&&b]",
            "[a[b]]",
            "(?x)a",
            "a{1001}",
            "((a{100}){100}){100}",
            r"\u{41}",
            "(a{100}){11}",
            "((a{10}){10}b|c){11}",
            "(a{3,}){500}",
            r"\p{Letter}",
            r"\p{Greek}",
            r"\p{Script=Latin}",
            r"\p{LC}",
            r"\pé",
            "(?P<é>a)",
            "(?P<a.b>a)",
            r"\x{100}",
            r"[a-\x{100}]",
            "é+",
            "[é]",
            "[a-é]",
        ] {
            assert!(check(pattern).is_err(), "{pattern}");
        }
        assert!(check(&"(".repeat(5_000)).is_err());
    }
}
