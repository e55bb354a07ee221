//! What RE2 supports of the syntax.

use regex_syntax::ast::{self, Ast};

/// Whether the first part of the pattern is `^`. The recursion is bounded by the parser's nest limit.
pub(super) fn starts_with_assertion(ast: &Ast) -> bool {
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
pub(super) fn starts(ast: &Ast) -> u64 {
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
pub(super) fn repeats(ast: &Ast) -> u64 {
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

/// Checks that RE2 supports the pattern.
///
/// The recursion is bounded by the parser's nest limit.
pub(super) fn check(ast: &Ast) -> Result<(), String> {
    let unsupported = |what: &str| Err(format!("uses {what}, which RE2 does not support"));
    match ast {
        Ast::Empty(_) | Ast::Dot(_) | Ast::ClassPerl(_) => Ok(()),
        Ast::ClassUnicode(class) => property(class),
        Ast::Flags(flags) => flags_supported(&flags.flags),
        Ast::Literal(literal) => {
            if matches!(&literal.kind, ast::LiteralKind::HexFixed(kind) | ast::LiteralKind::HexBrace(kind) if *kind != ast::HexLiteralKind::X)
            {
                return unsupported("\\u escapes");
            }
            within_bytes(literal)
        }
        Ast::Assertion(assertion) => match assertion.kind {
            ast::AssertionKind::StartLine
            | ast::AssertionKind::EndLine
            | ast::AssertionKind::StartText
            | ast::AssertionKind::EndText
            | ast::AssertionKind::WordBoundary
            | ast::AssertionKind::NotWordBoundary => Ok(()),
            _ => unsupported("\\b{…} or \\< word boundaries"),
        },
        Ast::ClassBracketed(class) => class_set(&class.kind),
        Ast::Repetition(repetition) => {
            if matches!(*repetition.ast, Ast::Repetition(_)) {
                return unsupported("consecutive repetition operators");
            }
            if matches!(&*repetition.ast, Ast::Literal(literal) if several_bytes(literal)) {
                return Err("repeats a non-ASCII character; put it in a group".into());
            }
            check(&repetition.ast)
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
            check(&group.ast)
        }
        Ast::Alternation(alternation) => alternation.asts.iter().try_for_each(check),
        Ast::Concat(concat) => concat.asts.iter().try_for_each(check),
    }
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
fn property(class: &ast::ClassUnicode) -> Result<(), String> {
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
        Ok(())
    } else {
        Err(
            "uses a \\p class that is not a Unicode general category such as \\pL or \\p{Lu}"
                .into(),
        )
    }
}

fn class_set(set: &ast::ClassSet) -> Result<(), String> {
    match set {
        ast::ClassSet::BinaryOp(_) => {
            Err("uses set operations in a character class, which RE2 does not support".into())
        }
        ast::ClassSet::Item(item) => class_item(item),
    }
}

fn class_item(item: &ast::ClassSetItem) -> Result<(), String> {
    match item {
        ast::ClassSetItem::Bracketed(_) => {
            Err("uses nested character classes, which RE2 does not support".into())
        }
        ast::ClassSetItem::Unicode(class) => property(class),
        ast::ClassSetItem::Literal(literal) => ascii_in_class(literal),
        ast::ClassSetItem::Range(range) => {
            ascii_in_class(&range.start)?;
            ascii_in_class(&range.end)
        }
        ast::ClassSetItem::Union(union) => union.items.iter().try_for_each(class_item),
        _ => Ok(()),
    }
}

/// Rejects non-ASCII characters: in a class, their bytes would be separate members. An escape is one byte.
fn ascii_in_class(literal: &ast::Literal) -> Result<(), String> {
    if several_bytes(literal) {
        return Err(
            "has a non-ASCII character in a character class; use an alternation such as (a|b)"
                .into(),
        );
    }
    within_bytes(literal)
}
