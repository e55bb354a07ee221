//! Regular expressions. Accepts only patterns that Envoy's engine (RE2) accepts, so that Envoy never rejects one.
//!
//! Envoy runs RE2 on bytes, and a non-ASCII character is several bytes. As a literal, such a character matches itself,
//! but in a class or with a repetition it would have another meaning, so it is rejected there.

mod automaton;
mod program;
mod syntax;

use regex_syntax::ast::{self, Ast};

pub use self::automaton::{BEGINNING, Measure, REQUEST};

/// The maximum size of an expression's program, in RE2's instructions. Envoys have the same limit. The longest
/// expression of Sesame's own, for a host name, has 1,015.
const MAX_SIZE: u64 = sesame_model::MAX_PROGRAM_SIZE as u64;

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
    /// See [`program::size`].
    size: u64,
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
        let (ast, size) = parse(text)?;
        let at_start = text.starts_with('^') && syntax::starts_with_assertion(&ast);
        Ok(Self {
            text: text.to_owned(),
            size,
            at_start,
            inside: syntax::starts(&ast) > u64::from(at_start),
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
                "contains ^ or \\A somewhere other than at its start, where it can't match".into(),
            );
        }
        // The group keeps all alternatives after the literal.
        let text = format!(
            "{}(?:{})",
            regex_syntax::escape(literal),
            &self.text[usize::from(self.at_start)..]
        );
        let literals = u64::try_from(literal.len()).unwrap_or(u64::MAX);
        let size = self.size.saturating_add(literals);
        within_bounds(&text, size)?;
        Ok(Self {
            text,
            size,
            at_start: false,
            inside: false,
        })
    }
}

fn within_bounds(text: &str, size: u64) -> Result<(), String> {
    if text.len() > MAX_LENGTH {
        return Err(format!("is longer than {MAX_LENGTH} bytes"));
    }
    if size > MAX_SIZE {
        return Err(format!(
            "compiles to about {size} instructions; the limit is {MAX_SIZE}; use smaller repetition counts"
        ));
    }
    Ok(())
}

/// Parses a pattern that Envoy accepts, and returns its program's size.
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
    if syntax::repeats(&ast) > MAX_REPEAT {
        return Err(format!(
            "repeats an expression more than {MAX_REPEAT} times, counting nested repetitions"
        ));
    }
    syntax::check(&ast)?;
    let size = program::size(pattern, &ast);
    within_bounds(pattern, size)?;
    Ok((ast, size))
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
        assert!(after(&"a".repeat(900), &"a".repeat(90)).is_ok());
        assert!(after(&"a".repeat(900), &"a".repeat(150)).is_err());
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
            "(a{10}){50}",
            "(a*){100}",
            "[a-z0-9.-]{1,253}",
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
            "(.*a){1000}",
            "a{1000}b{100}",
            "((a{10}){10}b|c){11}",
            r"\p{^N}{250}",
            r"\P{^N}{350}",
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
