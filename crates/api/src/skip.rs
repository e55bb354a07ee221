//! Whether a field is omitted when serialized.

/// Whether a field has its type's default value.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
