//! Regular expressions: what users may write is what Envoy's engine (RE2) takes, so that no pattern is refused there.

use regex_syntax::ast::{self, Ast};

/// Nodes of a pattern, repetitions multiplied out: beyond this RE2 needs too much memory or takes too long.
const MAX_COST: u64 = 5_000;

/// Longest pattern, in bytes.
const MAX_LENGTH: usize = 4_096;

/// Whether Envoy takes the pattern.
///
/// # Errors
/// What is wrong with it, as a sentence that fits behind "the regular expression".
pub fn check(pattern: &str) -> Result<(), String> {
    if pattern.len() > MAX_LENGTH {
        return Err(format!("is longer than {MAX_LENGTH} bytes"));
    }
    let ast = ast::parse::ParserBuilder::new()
        .nest_limit(100)
        .build()
        .parse(pattern)
        .map_err(|error| format!("does not parse: {}", error.kind()))?;
    if cost(&ast)? > MAX_COST {
        return Err("is too large: its repetitions multiply".into());
    }
    Ok(())
}

/// The pattern's size with repetitions written out, or why RE2 has no such syntax.
///
/// The recursion is bounded by the parser's nest limit.
fn cost(ast: &Ast) -> Result<u64, String> {
    let unsupported = |what: &str| Err(format!("uses {what}, which RE2 does not have"));
    Ok(match ast {
        Ast::Empty(_) | Ast::Dot(_) | Ast::ClassPerl(_) => 1,
        Ast::ClassUnicode(_) => 20,
        Ast::Flags(flags) => {
            flags_supported(&flags.flags)?;
            1
        }
        Ast::Literal(literal) => {
            if matches!(&literal.kind, ast::LiteralKind::HexFixed(kind) | ast::LiteralKind::HexBrace(kind) if *kind != ast::HexLiteralKind::X)
            {
                return unsupported("\\u escapes");
            }
            1
        }
        Ast::Assertion(assertion) => match assertion.kind {
            ast::AssertionKind::StartLine
            | ast::AssertionKind::EndLine
            | ast::AssertionKind::StartText
            | ast::AssertionKind::EndText
            | ast::AssertionKind::WordBoundary
            | ast::AssertionKind::NotWordBoundary => 1,
            _ => return unsupported("\\b{…} or \\< boundaries"),
        },
        Ast::ClassBracketed(class) => class_cost(&class.kind)?,
        Ast::Repetition(repetition) => {
            let times = match repetition.op.kind {
                ast::RepetitionKind::Range(ref range) => match *range {
                    ast::RepetitionRange::Exactly(n) | ast::RepetitionRange::AtLeast(n) => n,
                    ast::RepetitionRange::Bounded(_, n) => n,
                },
                _ => 1,
            };
            if times > 1_000 {
                return Err("repeats something more than 1000 times".into());
            }
            if matches!(*repetition.ast, Ast::Repetition(_)) {
                return unsupported("a repetition of a repetition");
            }
            cost(&repetition.ast)?.saturating_mul(u64::from(times.max(1)))
        }
        Ast::Group(group) => {
            if let ast::GroupKind::NonCapturing(ref flags) = group.kind {
                flags_supported(flags)?;
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

/// RE2 knows `i`, `m`, `s` and `U`.
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
            return Err("uses a flag other than i, m, s and U".into());
        }
    }
    Ok(())
}

/// A class costs little unless it is Unicode's.
fn class_cost(set: &ast::ClassSet) -> Result<u64, String> {
    match set {
        ast::ClassSet::BinaryOp(_) => {
            Err("uses set operations in a class, which RE2 does not have".into())
        }
        ast::ClassSet::Item(item) => class_item_cost(item),
    }
}

fn class_item_cost(item: &ast::ClassSetItem) -> Result<u64, String> {
    Ok(match item {
        ast::ClassSetItem::Bracketed(_) => {
            return Err("nests a class in a class, which RE2 does not have".into());
        }
        ast::ClassSetItem::Unicode(_) => 20,
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

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn takes_what_people_write() {
        for pattern in [
            "/v[0-9]+/.*",
            "(?i)/shop/(a|b)",
            r"\d{2,4}-\w+",
            "^/a$",
            "[[:alpha:]]+",
            r"\pL+",
            "",
        ] {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
    }

    #[test]
    fn refuses_what_envoy_would_refuse() {
        for pattern in [
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
        ] {
            assert!(check(pattern).is_err(), "{pattern}");
        }
        assert!(check(&"(".repeat(5_000)).is_err());
    }
}
